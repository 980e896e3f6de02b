//! Operations of user space on a map: the commands of `bpf(2)`, from any thread.

use towpath_bpf::Errno;
use towpath_bpf::map::UserOps;

use crate::flags::{BPF_F_LOCK, BPF_F_RDONLY, BPF_F_WRONLY};
use crate::map::Map;
use crate::qsbr::Guard;
use crate::store::USER;

/// A value as user space sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// One value.
    One(Vec<u8>),
    /// One value for each CPU, in CPU order.
    PerCpu(Vec<Vec<u8>>),
}

impl Value {
    /// The bytes of a map without per-CPU values, or of CPU 0.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::One(bytes) => bytes,
            Value::PerCpu(all) => all.first().map_or(&[], Vec::as_slice),
        }
    }

    /// One slice a CPU; a single one for maps without per-CPU values.
    pub fn cpus(&self) -> Vec<&[u8]> {
        match self {
            Value::One(bytes) => vec![bytes],
            Value::PerCpu(all) => all.iter().map(Vec::as_slice).collect(),
        }
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value::One(bytes)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Value::One(bytes.to_vec())
    }
}

/// The user side of a map ([`Map::user`]). Counts as a reader of the map's domain: keep it short.
#[derive(Debug)]
pub struct User<'a> {
    pub(crate) map: &'a Map,
    pub(crate) _reader: Guard<'a>,
}

impl User<'_> {
    /// `BPF_MAP_LOOKUP_ELEM`. `flags`: 0 or `BPF_F_LOCK`. Queues and stacks show the value that
    /// comes next for an empty key.
    pub fn lookup(&self, key: &[u8], flags: u64) -> Result<Value, Errno> {
        self.may_read()?;
        self.check_lock_only(flags)?;
        self.map.check_key(key)?;
        self.ops().lookup?;
        self.map.store().read(key, flags & BPF_F_LOCK != 0)
    }

    /// `BPF_MAP_UPDATE_ELEM`. `flags`: `BPF_ANY`, `BPF_NOEXIST` or `BPF_EXIST`, and `BPF_F_LOCK`.
    /// Queues, stacks and bloom filters take an empty key and push.
    pub fn update(&self, key: &[u8], value: &Value, flags: u64) -> Result<(), Errno> {
        self.may_write()?;
        self.check_lock(flags)?;
        self.map.check_key(key)?;
        self.map.check_value(value)?;
        self.ops().update?;
        self.map.store().write(key, value, flags)
    }

    /// `BPF_MAP_DELETE_ELEM`.
    pub fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.may_write()?;
        self.map.check_key(key)?;
        self.ops().delete?;
        self.map.store().delete(USER, key)
    }

    /// `BPF_MAP_LOOKUP_AND_DELETE_ELEM`: hash tables, and queues and stacks with an empty key.
    pub fn lookup_and_delete(&self, key: &[u8], flags: u64) -> Result<Value, Errno> {
        self.may_read()?;
        self.may_write()?;
        self.check_lock_only(flags)?;
        self.map.check_key(key)?;
        self.ops().lookup_and_delete?;
        self.map.store().take(key, flags & BPF_F_LOCK != 0)
    }

    /// Whether a bloom filter may hold a value (`BPF_MAP_LOOKUP_ELEM` on one).
    pub fn contains(&self, value: &[u8]) -> Result<bool, Errno> {
        self.may_read()?;
        match self.map.peek(&mut value.to_vec()) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// `BPF_MAP_GET_NEXT_KEY`: the key after `key` (the first one when `key` is `None` or not in
    /// the map); `ENOENT` after the last.
    pub fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        self.may_read()?;
        if let Some(key) = key {
            self.map.check_key(key)?;
        }
        self.ops().next_key?;
        self.map.store().next_key(key)
    }

    /// All keys, in `next_key` order. The walk ends after `max_entries` of them, because a walk
    /// over a changing map may start again.
    pub fn keys(&self) -> impl Iterator<Item = Vec<u8>> {
        let mut last: Option<Vec<u8>> = None;
        let keys = std::iter::from_fn(move || {
            last = self.next_key(last.as_deref()).ok();
            last.clone()
        });
        keys.take(self.map.max_entries() as usize)
    }

    /// All elements, in the order of [`User::keys`]. One that disappears meanwhile is left out.
    pub fn entries(&self) -> impl Iterator<Item = (Vec<u8>, Value)> {
        self.keys().filter_map(|key| {
            let value = self.lookup(&key, 0).ok()?;
            Some((key, value))
        })
    }

    /// Contents of a queue or stack, the oldest value first: pushing in this order restores it.
    pub fn queued(&self) -> Result<Vec<Value>, Errno> {
        self.may_read()?;
        Ok(self.map.store().queued())
    }

    fn ops(&self) -> &UserOps {
        &self.map.kind().spec().user
    }

    fn may_read(&self) -> Result<(), Errno> {
        if self.map.flags() & BPF_F_WRONLY != 0 { Err(Errno::EPERM) } else { Ok(()) }
    }

    fn may_write(&self) -> Result<(), Errno> {
        let refused = self.map.flags() & BPF_F_RDONLY != 0 || self.map.is_frozen();
        if refused { Err(Errno::EPERM) } else { Ok(()) }
    }

    fn check_lock(&self, flags: u64) -> Result<(), Errno> {
        if flags & BPF_F_LOCK != 0 && !self.map.has_lock() { Err(Errno::EINVAL) } else { Ok(()) }
    }

    fn check_lock_only(&self, flags: u64) -> Result<(), Errno> {
        if flags & !BPF_F_LOCK != 0 { Err(Errno::EINVAL) } else { self.check_lock(flags) }
    }
}
