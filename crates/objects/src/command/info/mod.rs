//! `BPF_OBJ_GET_INFO_BY_FD`: information about an object.

mod btf;
mod link;
mod program;

use towpath_bpf::Errno;

use super::Call;
use crate::attr::{check_tail, info as field};
use crate::caller::copy_in;
use crate::object::Object;
use crate::object::map::MapObject;
use crate::sha256::{HASH_BYTES, sha256};

impl Call<'_> {
    /// `bpf_obj_get_info_by_fd`
    pub(super) fn info(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let handle = self.caller.handle(self.u32(field::BPF_FD)).map_err(|errno| match errno {
            Errno::EBADF => Errno::EBADFD,
            errno => errno,
        })?;
        match &handle.object {
            Object::Map(map) => self.map_info(map),
            Object::Program(program) => self.program_info(program),
            Object::Btf(btf) => self.btf_info(btf),
            Object::Link(link) => self.link_info(link),
            Object::Stats => Err(Errno::EINVAL),
        }
    }

    /// `bpf_map_get_info_by_fd`
    fn map_info(&mut self, map: &MapObject) -> Result<u32, Errno> {
        let mut info = self.read_info(MAP_INFO_BYTES)?;
        if info.u64(map_info::HASH) != 0 {
            self.write_hash(map, &info)?;
        }
        let def = map.map().def();
        info.put(map_info::TYPE, def.kind as u32);
        info.put(map_info::ID, map.id());
        info.put(map_info::KEY_SIZE, def.key_size);
        info.put(map_info::VALUE_SIZE, def.value_size);
        info.put(map_info::MAX_ENTRIES, def.max_entries);
        info.put(map_info::MAP_FLAGS, map.flags());
        info.put_bytes(map_info::NAME, &map.name().bytes());
        if let Some(btf) = map.btf() {
            info.put(map_info::BTF_ID, btf.id());
            info.put(map_info::BTF_KEY_TYPE_ID, def.key_type);
            info.put(map_info::BTF_VALUE_TYPE_ID, def.value_type);
        }
        info.put(map_info::BTF_VMLINUX_VALUE_TYPE_ID, 0);
        info.put_bytes(map_info::MAP_EXTRA, &def.map_extra.to_ne_bytes());
        self.write_info(&info)
    }

    /// The hash of an array that can't change any more, for programs that are signed together with
    /// their maps (`array_map_get_hash`).
    fn write_hash(&mut self, map: &MapObject, info: &Info) -> Result<(), Errno> {
        let def = map.map().def();
        if !def.kind.is_array() || info.u32(map_info::HASH_SIZE) as usize != HASH_BYTES {
            return Err(Errno::EINVAL);
        }
        if !map.map().is_frozen() {
            return Err(Errno::EPERM);
        }
        let mut bytes = Vec::new();
        for index in 0..def.max_entries {
            bytes.extend_from_slice(map.lookup(&index.to_ne_bytes(), 0)?.bytes());
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        self.caller.write(info.u64(map_info::HASH), &sha256(&bytes))
    }

    /// Reads the caller's struct, of which `known` bytes have a meaning here. As in the kernel,
    /// fields that a command doesn't fill in stay unchanged.
    fn read_info(&self, known: usize) -> Result<Info, Errno> {
        let (address, size) = (self.u64(field::INFO), self.u32(field::INFO_LEN));
        check_tail(self.caller, address, known, size)?;
        let len = (size as usize).min(known.next_multiple_of(8));
        let mut bytes = copy_in(self.caller, address, len)?;
        bytes.resize(known.next_multiple_of(8), 0);
        Ok(Info { bytes, len })
    }

    /// Gives the caller as much of the struct as it asked for, and tells how much that is.
    fn write_info(&mut self, info: &Info) -> Result<u32, Errno> {
        self.caller.write(self.u64(field::INFO), &info.bytes[..info.len])?;
        self.attr.answer(self.caller, field::INFO_LEN, info.len as u32)?;
        Ok(0)
    }
}

/// A `struct bpf_*_info`.
struct Info {
    bytes: Vec<u8>,
    /// Bytes that the caller has room for.
    len: usize,
}

impl Info {
    fn u64(&self, offset: usize) -> u64 {
        self.bytes[offset..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    fn u32(&self, offset: usize) -> u32 {
        self.bytes[offset..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    fn put(&mut self, offset: usize, value: u32) {
        self.put_bytes(offset, &value.to_ne_bytes());
    }

    fn put_bytes(&mut self, offset: usize, value: &[u8]) {
        self.bytes[offset..offset + value.len()].copy_from_slice(value);
    }
}

/// `struct bpf_map_info`
mod map_info {
    pub(super) const TYPE: usize = 0;
    pub(super) const ID: usize = 4;
    pub(super) const KEY_SIZE: usize = 8;
    pub(super) const VALUE_SIZE: usize = 12;
    pub(super) const MAX_ENTRIES: usize = 16;
    pub(super) const MAP_FLAGS: usize = 20;
    pub(super) const NAME: usize = 24;
    pub(super) const BTF_VMLINUX_VALUE_TYPE_ID: usize = 44;
    pub(super) const BTF_ID: usize = 64;
    pub(super) const BTF_KEY_TYPE_ID: usize = 68;
    pub(super) const BTF_VALUE_TYPE_ID: usize = 72;
    pub(super) const MAP_EXTRA: usize = 80;
    pub(super) const HASH: usize = 88;
    pub(super) const HASH_SIZE: usize = 96;
}

/// Bytes of `struct bpf_map_info` up to its last field (Linux 6.18).
const MAP_INFO_BYTES: usize = 100;
