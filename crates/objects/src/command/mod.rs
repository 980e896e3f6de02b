//! One function with the semantics of `bpf(cmd, attr)`, and the commands behind it.
//!
//! Each command checks in the kernel's order, so that a call that is wrong in two ways gets the
//! same answer as there.

mod batch;
mod btf;
pub(crate) mod debug_info;
mod element;
mod id;
mod info;
pub(crate) mod insns;
mod link;
mod log;
pub(crate) mod map;
mod map_btf;
mod pin;
mod program;
mod stream;
pub(crate) mod test_run;

use strum::FromRepr;
use towpath_bpf::Errno;

use crate::attr::Attr;
use crate::caller::Caller;
use crate::objects::Objects;

/// Commands of `bpf(2)` that are answered (`enum bpf_cmd`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u32)]
pub enum Command {
    /// `BPF_MAP_CREATE`
    MapCreate = 0,
    /// `BPF_MAP_LOOKUP_ELEM`
    MapLookupElem = 1,
    /// `BPF_MAP_UPDATE_ELEM`
    MapUpdateElem = 2,
    /// `BPF_MAP_DELETE_ELEM`
    MapDeleteElem = 3,
    /// `BPF_MAP_GET_NEXT_KEY`
    MapGetNextKey = 4,
    /// `BPF_PROG_LOAD`
    ProgLoad = 5,
    /// `BPF_OBJ_PIN`
    ObjPin = 6,
    /// `BPF_OBJ_GET`
    ObjGet = 7,
    /// `BPF_PROG_TEST_RUN`
    ProgTestRun = 10,
    /// `BPF_PROG_GET_NEXT_ID`
    ProgGetNextId = 11,
    /// `BPF_MAP_GET_NEXT_ID`
    MapGetNextId = 12,
    /// `BPF_PROG_GET_FD_BY_ID`
    ProgGetFdById = 13,
    /// `BPF_MAP_GET_FD_BY_ID`
    MapGetFdById = 14,
    /// `BPF_OBJ_GET_INFO_BY_FD`
    ObjGetInfoByFd = 15,
    /// `BPF_BTF_LOAD`
    BtfLoad = 18,
    /// `BPF_BTF_GET_FD_BY_ID`
    BtfGetFdById = 19,
    /// `BPF_MAP_LOOKUP_AND_DELETE_ELEM`
    MapLookupAndDeleteElem = 21,
    /// `BPF_MAP_FREEZE`
    MapFreeze = 22,
    /// `BPF_BTF_GET_NEXT_ID`
    BtfGetNextId = 23,
    /// `BPF_MAP_LOOKUP_BATCH`
    MapLookupBatch = 24,
    /// `BPF_MAP_LOOKUP_AND_DELETE_BATCH`
    MapLookupAndDeleteBatch = 25,
    /// `BPF_MAP_UPDATE_BATCH`
    MapUpdateBatch = 26,
    /// `BPF_MAP_DELETE_BATCH`
    MapDeleteBatch = 27,
    /// `BPF_LINK_CREATE`
    LinkCreate = 28,
    /// `BPF_LINK_UPDATE`
    LinkUpdate = 29,
    /// `BPF_LINK_GET_FD_BY_ID`
    LinkGetFdById = 30,
    /// `BPF_LINK_GET_NEXT_ID`
    LinkGetNextId = 31,
    /// `BPF_ENABLE_STATS`
    EnableStats = 32,
    /// `BPF_LINK_DETACH`
    LinkDetach = 34,
    /// `BPF_PROG_BIND_MAP`
    ProgBindMap = 35,
    /// `BPF_PROG_STREAM_READ_BY_FD`
    ProgStreamReadByFd = 37,
}

impl Objects {
    /// Implements `bpf(2)`: executes a command whose attribute of `size` bytes lies at `attr` in
    /// the caller's memory. Returns a descriptor, a number of bytes
    /// ([`Command::ProgStreamReadByFd`]), or 0.
    ///
    /// # Errors
    ///
    /// Fails with the error of the system call, and with `EINVAL` for commands that are not
    /// answered here.
    pub fn bpf(
        &self,
        caller: &mut dyn Caller,
        command: u32,
        attr: u64,
        size: u32,
    ) -> Result<u32, Errno> {
        let attr = Attr::read(caller, attr, size)?;
        let command = Command::from_repr(command).ok_or(Errno::EINVAL)?;
        Call { objects: self, caller, attr: &attr }.execute(command)
    }
}

/// The context of one call.
pub(crate) struct Call<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) caller: &'a mut dyn Caller,
    pub(crate) attr: &'a Attr,
}

impl Call<'_> {
    fn execute(&mut self, command: Command) -> Result<u32, Errno> {
        match command {
            Command::MapCreate => self.map_create(),
            Command::MapLookupElem => self.map_lookup(),
            Command::MapUpdateElem => self.map_update(),
            Command::MapDeleteElem => self.map_delete(),
            Command::MapGetNextKey => self.map_next_key(),
            Command::MapLookupAndDeleteElem => self.map_lookup_and_delete(),
            Command::MapFreeze => self.map_freeze(),
            Command::ObjPin => self.pin(),
            Command::ObjGet => self.get(),
            Command::MapGetNextId => self.next_id(|objects, id| objects.maps.next_after(id)),
            Command::ProgLoad => self.prog_load(),
            Command::ProgGetNextId => self.next_id(|objects, id| objects.programs.next_after(id)),
            Command::ProgGetFdById => self.program_by_id(),
            Command::BtfLoad => self.btf_load(),
            Command::BtfGetFdById => self.btf_by_id(),
            Command::BtfGetNextId => self.next_id(|objects, id| objects.btfs.next_after(id)),
            Command::ProgTestRun => self.test_run(),
            Command::MapLookupBatch => self.lookup_batch(false),
            Command::MapLookupAndDeleteBatch => self.lookup_batch(true),
            Command::MapUpdateBatch => self.update_batch(),
            Command::MapDeleteBatch => self.delete_batch(),
            Command::LinkCreate => self.link_create(),
            Command::LinkUpdate => self.link_update(),
            Command::LinkDetach => self.link_detach(),
            Command::LinkGetFdById => self.link_by_id(),
            Command::LinkGetNextId => self.next_id(|objects, id| objects.links.next_after(id)),
            Command::EnableStats => self.enable_stats(),
            Command::ProgBindMap => self.bind_map(),
            Command::ProgStreamReadByFd => self.read_stream(),
            Command::MapGetFdById => self.map_by_id(),
            Command::ObjGetInfoByFd => self.info(),
        }
    }

    /// Refuses a token, since there are none here; a wrong descriptor is refused first.
    fn check_token(&self, flags: u32, descriptor: usize) -> Result<(), Errno> {
        if flags & BPF_F_TOKEN_FD == 0 {
            return Ok(());
        }
        self.caller.handle(self.u32(descriptor))?;
        Err(Errno::EINVAL)
    }

    /// The 32-bit field of the attribute at an offset.
    fn u32(&self, offset: usize) -> u32 {
        self.attr.u32(offset)
    }

    /// The 64-bit field of the attribute at an offset.
    fn u64(&self, offset: usize) -> u64 {
        self.attr.u64(offset)
    }
}

/// The descriptor of a token is given.
const BPF_F_TOKEN_FD: u32 = 1 << 16;
