//! From one id to the next, and from an id to a descriptor.

use towpath_bpf::Errno;

use super::{BPF_F_TOKEN_FD, Call};
use crate::attr::id as field;
use crate::object::map::MapUse;
use crate::object::{BPF_F_RDONLY, BPF_F_WRONLY, Handle, Mode, Object};
use crate::objects::Objects;

impl Call<'_> {
    /// `bpf_obj_get_next_id`
    pub(super) fn next_id(
        &mut self,
        next_after: impl Fn(&Objects, u32) -> Option<u32>,
    ) -> Result<u32, Errno> {
        self.attr.ends_at(field::OPEN_FLAGS)?;
        let start = self.u32(field::START_ID);
        if start >= i32::MAX as u32 {
            return Err(Errno::EINVAL);
        }
        let next = next_after(self.objects, start).ok_or(Errno::ENOENT)?;
        self.attr.answer(self.caller, field::NEXT_ID, next)?;
        Ok(0)
    }

    /// `bpf_prog_get_fd_by_id`
    pub(super) fn program_by_id(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::NEXT_ID)?;
        let program = self.objects.programs.get(self.u32(field::START_ID)).ok_or(Errno::ENOENT)?;
        self.caller.install(Handle::new(Object::Program(program)))
    }

    /// `bpf_link_get_fd_by_id`
    pub(super) fn link_by_id(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::NEXT_ID)?;
        let link = self.objects.links.get(self.u32(field::START_ID)).ok_or(Errno::ENOENT)?;
        self.caller.install(Handle::new(Object::Link(link)))
    }

    /// `bpf_btf_get_fd_by_id`
    pub(super) fn btf_by_id(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::TOKEN_FD + 4)?;
        let flags = self.u32(field::OPEN_FLAGS);
        if flags & !BPF_F_TOKEN_FD != 0 {
            return Err(Errno::EINVAL);
        }
        self.check_token(flags, field::TOKEN_FD)?;
        let btf = self.objects.btfs.get(self.u32(field::START_ID)).ok_or(Errno::ENOENT)?;
        self.caller.install(Handle::new(Object::Btf(btf)))
    }

    /// `bpf_map_get_fd_by_id`
    pub(super) fn map_by_id(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let flags = self.u32(field::OPEN_FLAGS);
        if flags & !(BPF_F_RDONLY | BPF_F_WRONLY) != 0 {
            return Err(Errno::EINVAL);
        }
        let mode = Mode::from_flags(flags)?;
        let map = self.objects.maps.get(self.u32(field::START_ID)).ok_or(Errno::ENOENT)?;
        self.caller.install(Handle { object: Object::Map(MapUse::new(map)), mode })
    }
}
