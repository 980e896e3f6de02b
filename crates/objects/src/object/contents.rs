//! The only access to a map's contents: the commands on its elements, typed, with the kernel's
//! checks in the kernel's order. `bpf(cmd, attr)` calls it with keys and values in a caller's
//! memory, the API with bytes of its own.
//!
//! Commands belong here. Saved contents and migrations copy what a map stores, whatever a command
//! may see of it: those use [`towpath_maps::User`].

use towpath_bpf::Errno;
use towpath_maps::Value;
use towpath_maps::flags::BPF_F_LOCK;

use super::{Handle, MapObject, MapUse};
use crate::caller::Caller;

/// A key or a value, of as many bytes as the map wants.
pub type Bytes<'a> = &'a dyn Fn(usize) -> Result<Vec<u8>, Errno>;

/// A command's access to a map's contents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Need {
    pub(crate) const READ: Need = Need { read: true, write: false };
    pub(crate) const WRITE: Need = Need { read: false, write: true };
    pub(crate) const BOTH: Need = Need { read: true, write: true };
}

impl Handle {
    /// The map of a descriptor, if it is open for what is needed (`map_get_sys_perms`).
    pub(crate) fn map_for(&self, need: Need) -> Result<&MapUse, Errno> {
        let map = self.map()?;
        let may_write = self.mode.may_write() && !map.map().is_frozen();
        let allowed = (!need.read || self.mode.may_read()) && (!need.write || may_write);
        if allowed { Ok(map) } else { Err(Errno::EPERM) }
    }

    /// `BPF_MAP_LOOKUP_ELEM`. In a bloom filter, it looks for a value, and returns none.
    ///
    /// # Errors
    ///
    /// Same errno as the bpf(2) command.
    pub fn lookup(
        &self,
        key: Bytes<'_>,
        asked: Bytes<'_>,
        flags: u64,
    ) -> Result<Option<Value>, Errno> {
        let map = self.map_for(Need::READ)?;
        map.check_lock(flags)?;
        let key = key(map.key_bytes())?;
        if map.is_asked() {
            map.contains(&asked(map.value_bytes())?)?;
            return Ok(None);
        }
        map.lookup(&key, flags).map(Some)
    }

    /// `BPF_MAP_UPDATE_ELEM`; descriptors in the value are the caller's.
    ///
    /// # Errors
    ///
    /// Same errno as the bpf(2) command.
    pub fn update(
        &self,
        caller: &dyn Caller,
        key: Bytes<'_>,
        value: Bytes<'_>,
        flags: u64,
    ) -> Result<(), Errno> {
        let map = self.map_for(Need::WRITE)?;
        map.check_lock(flags)?;
        let key = key(map.key_bytes())?;
        map.update(caller, &key, &value(map.value_bytes())?, flags)
    }

    /// `BPF_MAP_DELETE_ELEM`
    ///
    /// # Errors
    ///
    /// Same errno as the bpf(2) command.
    pub fn delete(&self, key: Bytes<'_>) -> Result<(), Errno> {
        let map = self.map_for(Need::WRITE)?;
        map.delete(&key(map.key_bytes())?)
    }

    /// `BPF_MAP_GET_NEXT_KEY`
    ///
    /// # Errors
    ///
    /// Same errno as the bpf(2) command.
    pub fn next_key(&self, key: Option<Bytes<'_>>) -> Result<Vec<u8>, Errno> {
        let map = self.map_for(Need::READ)?;
        let key = key.map(|key| key(map.key_bytes())).transpose()?;
        map.next_key(key.as_deref())
    }

    /// `BPF_MAP_LOOKUP_AND_DELETE_ELEM`
    ///
    /// # Errors
    ///
    /// Same errno as the bpf(2) command.
    pub fn lookup_and_delete(&self, key: Bytes<'_>, flags: u64) -> Result<Value, Errno> {
        let map = self.map_for(Need::BOTH)?;
        if map.is_queue() && flags != 0 {
            return Err(Errno::EINVAL);
        }
        map.check_lock(flags)?;
        map.lookup_and_delete(&key(map.key_bytes())?, flags)
    }

    /// `BPF_MAP_FREEZE`
    ///
    /// # Errors
    ///
    /// Same errno as the bpf(2) command.
    pub fn freeze(&self) -> Result<(), Errno> {
        let map = self.map()?.map();
        if !map.fields().is_empty() {
            return Err(Errno::ENOTSUPP);
        }
        self.map_for(Need::WRITE)?;
        map.freeze()
    }
}

impl MapObject {
    /// `BPF_F_LOCK` needs a lock.
    pub(crate) fn check_lock(&self, flags: u64) -> Result<(), Errno> {
        let missing = flags & BPF_F_LOCK != 0 && !self.map().has_lock();
        if missing { Err(Errno::EINVAL) } else { Ok(()) }
    }
}
