//! Kinds that a program may declare but that hold nothing here: sockets, cgroups, tasks and stack
//! traces live in a host stack. They exist, so that objects load, and are empty. The row of a kind
//! lists the operations that it refuses.

use towpath_bpf::map::{Host, Keys, Values};
use towpath_bpf::{Errno, MapDef};

use crate::array::next_index;
use crate::flags::{BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST};
use crate::prog_array::number;
use crate::store::{Store, USER};
use crate::user::Value;

/// An always empty map.
#[derive(Debug)]
pub(crate) struct Absent {
    keys: Keys,
    values: Values,
    entries: u32,
    /// Users get a socket's cookie, which takes 8 bytes.
    lacks_room: bool,
}

impl Absent {
    pub(crate) fn new(def: &MapDef) -> Self {
        // A bucket's number is the end of a hash, and the number of buckets a power of two.
        let buckets = def.max_entries.checked_next_power_of_two().unwrap_or(u32::MAX);
        let is_socket = def.kind.values() == Values::Host(Host::Socket);
        Absent {
            keys: def.kind.keys(),
            values: def.kind.values(),
            entries: if def.kind.keys() == Keys::Bucket { buckets } else { def.max_entries },
            lacks_room: is_socket && def.value_size != 8,
        }
    }

    /// A key past the last slot of a kind whose keys are numbers.
    fn check_bounds(&self, key: &[u8]) -> Result<(), Errno> {
        let is_number = matches!(self.keys, Keys::Index | Keys::Bucket);
        if is_number && number(key) >= self.entries { Err(Errno::E2BIG) } else { Ok(()) }
    }
}

impl Store for Absent {
    /// The value is a descriptor of something that doesn't exist here, or belongs to it.
    fn update(&self, _worker: usize, key: &[u8], _value: &[u8], flags: u64) -> Result<(), Errno> {
        let (known, missing): (&[u64], Errno) = match self.values {
            Values::Host(Host::Cgroup) => (&[BPF_ANY], Errno::EBADF),
            Values::Host(Host::CgroupStorage | Host::PercpuCgroupStorage) => {
                (&[BPF_ANY, BPF_EXIST], Errno::ENOENT)
            }
            _ => (&[BPF_ANY, BPF_NOEXIST, BPF_EXIST], Errno::EBADF),
        };
        if !known.contains(&(flags & !BPF_F_LOCK)) {
            return Err(Errno::EINVAL);
        }
        self.check_bounds(key).and(Err(missing))
    }

    fn write(&self, key: &[u8], value: &Value, flags: u64) -> Result<(), Errno> {
        self.update(USER, key, value.bytes(), flags)
    }

    fn delete(&self, _worker: usize, key: &[u8]) -> Result<(), Errno> {
        self.check_bounds(key).and(Err(Errno::ENOENT))
    }

    fn read(&self, _key: &[u8], _locked: bool) -> Result<Value, Errno> {
        Err(if self.lacks_room { Errno::ENOSPC } else { Errno::ENOENT })
    }

    /// Slots exist, but nothing is in them.
    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        if self.keys == Keys::Index { next_index(key, self.entries) } else { Err(Errno::ENOENT) }
    }

    fn count(&self) -> Option<u64> {
        Some(0)
    }
}
