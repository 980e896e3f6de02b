//! Commands on one element of a map.

use towpath_bpf::Errno;
use towpath_bpf::map::Values;
use towpath_maps::flags::BPF_F_LOCK;

use super::Call;
use crate::attr::element as field;
use crate::caller::copy_in;
use crate::object::Handle;
use crate::object::map::MapObject;

impl Call<'_> {
    /// `map_lookup_elem`
    pub(super) fn map_lookup(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let flags = self.check_lock_only()?;
        let handle = self.map_handle(field::MAP_FD, Need { read: true, write: false })?;
        let map = handle.map()?;
        check_lock(map, flags)?;
        let key = self.key(map)?;
        let asked = if map.map().kind().values() == Values::Members {
            copy_in(self.caller, self.u64(field::VALUE), map.value_bytes())?
        } else {
            Vec::new()
        };
        let value = map.lookup(&key, &asked, flags)?;
        self.caller.write(self.u64(field::VALUE), &value)?;
        Ok(0)
    }

    /// `map_update_elem`
    pub(super) fn map_update(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let flags = self.u64(field::FLAGS);
        let handle = self.map_handle(field::MAP_FD, Need { read: false, write: true })?;
        let map = handle.map()?;
        check_lock(map, flags)?;
        let key = self.key(map)?;
        let value = copy_in(self.caller, self.u64(field::VALUE), map.value_bytes())?;
        map.update(self.caller, &key, &value, flags)?;
        Ok(0)
    }

    /// `map_delete_elem`
    pub(super) fn map_delete(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::VALUE)?;
        let handle = self.map_handle(field::MAP_FD, Need { read: false, write: true })?;
        let map = handle.map()?;
        let key = self.key(map)?;
        map.delete(&key)?;
        Ok(0)
    }

    /// `map_get_next_key`
    pub(super) fn map_next_key(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::FLAGS)?;
        let handle = self.map_handle(field::MAP_FD, Need { read: true, write: false })?;
        let map = handle.map()?;
        let key = if self.u64(field::KEY) == 0 { None } else { Some(self.key(map)?) };
        let next = map.next_key(key.as_deref())?;
        self.caller.write(self.u64(field::VALUE), &next)?;
        Ok(0)
    }

    /// `map_lookup_and_delete_elem`
    pub(super) fn map_take(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let flags = self.check_lock_only()?;
        let handle = self.map_handle(field::MAP_FD, Need { read: true, write: true })?;
        let map = handle.map()?;
        let is_queue = map.map().kind().values() == Values::Queued;
        if is_queue && flags != 0 {
            return Err(Errno::EINVAL);
        }
        check_lock(map, flags)?;
        let key = self.key(map)?;
        let value = map.take(&key, flags)?;
        self.caller.write(self.u64(field::VALUE), &value)?;
        Ok(0)
    }

    /// The map of a descriptor, if it is open for what is needed (`map_get_sys_perms`).
    pub(super) fn map_handle(&self, at: usize, need: Need) -> Result<Handle, Errno> {
        let handle = self.caller.handle(self.u32(at))?;
        let frozen = handle.map()?.map().is_frozen();
        let may_write = handle.mode.may_write() && !frozen;
        let allowed = (!need.read || handle.mode.may_read()) && (!need.write || may_write);
        if allowed { Ok(handle) } else { Err(Errno::EPERM) }
    }

    /// The key of the attribute (`__bpf_copy_key`).
    fn key(&self, map: &MapObject) -> Result<Vec<u8>, Errno> {
        let address = self.u64(field::KEY);
        match map.map().key_size() as usize {
            0 if address != 0 => Err(Errno::EINVAL),
            size => copy_in(self.caller, address, size),
        }
    }

    fn check_lock_only(&self) -> Result<u64, Errno> {
        let flags = self.u64(field::FLAGS);
        if flags & !BPF_F_LOCK == 0 { Ok(flags) } else { Err(Errno::EINVAL) }
    }
}

/// What a command does with a map's contents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub(super) read: bool,
    pub(super) write: bool,
}

/// `BPF_F_LOCK` needs a lock.
pub(super) fn check_lock(map: &MapObject, flags: u64) -> Result<(), Errno> {
    let missing = flags & BPF_F_LOCK != 0 && !map.map().has_lock();
    if missing { Err(Errno::EINVAL) } else { Ok(()) }
}
