//! Commands on one element of a map, as they come from a caller's memory.

use towpath_bpf::Errno;
use towpath_maps::flags::BPF_F_LOCK;

use super::Call;
use crate::attr::element as field;
use crate::caller::copy_in;
use crate::object::map::flatten;

impl Call<'_> {
    /// `map_lookup_elem`
    pub(super) fn map_lookup(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let flags = self.lock_only()?;
        let handle = self.caller.handle(self.u32(field::MAP_FD))?;
        let value = handle.lookup(&|size| self.key(size), &|size| self.value(size), flags)?;
        let bytes = value.as_ref().map_or(Vec::new(), flatten);
        self.caller.write(self.u64(field::VALUE), &bytes)?;
        Ok(0)
    }

    /// `map_update_elem`
    pub(super) fn map_update(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let handle = self.caller.handle(self.u32(field::MAP_FD))?;
        let (key, value) = (|size| self.key(size), |size| self.value(size));
        handle.update(self.caller, &key, &value, self.u64(field::FLAGS))?;
        Ok(0)
    }

    /// `map_delete_elem`
    pub(super) fn map_delete(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::VALUE)?;
        let handle = self.caller.handle(self.u32(field::MAP_FD))?;
        handle.delete(&|size| self.key(size))?;
        Ok(0)
    }

    /// `map_get_next_key`
    pub(super) fn map_next_key(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::FLAGS)?;
        let handle = self.caller.handle(self.u32(field::MAP_FD))?;
        let next = match self.u64(field::KEY) {
            0 => handle.next_key(None)?,
            _ => handle.next_key(Some(&|size| self.key(size)))?,
        };
        self.caller.write(self.u64(field::VALUE), &next)?;
        Ok(0)
    }

    /// `map_lookup_and_delete_elem`
    pub(super) fn map_lookup_and_delete(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let flags = self.lock_only()?;
        let handle = self.caller.handle(self.u32(field::MAP_FD))?;
        let value = handle.lookup_and_delete(&|size| self.key(size), flags)?;
        self.caller.write(self.u64(field::VALUE), &flatten(&value))?;
        Ok(0)
    }

    /// `map_freeze`
    pub(super) fn map_freeze(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::MAP_FD + 4)?;
        self.caller.handle(self.u32(field::MAP_FD))?.freeze()?;
        Ok(0)
    }

    /// The key of the attribute (`__bpf_copy_key`).
    fn key(&self, size: usize) -> Result<Vec<u8>, Errno> {
        match (size, self.u64(field::KEY)) {
            (0, 1..) => Err(Errno::EINVAL),
            (size, address) => copy_in(self.caller, address, size),
        }
    }

    fn value(&self, size: usize) -> Result<Vec<u8>, Errno> {
        copy_in(self.caller, self.u64(field::VALUE), size)
    }

    /// Flags of commands that know only one.
    fn lock_only(&self) -> Result<u64, Errno> {
        let flags = self.u64(field::FLAGS);
        if flags & !BPF_F_LOCK == 0 { Ok(flags) } else { Err(Errno::EINVAL) }
    }
}
