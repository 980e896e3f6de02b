//! Kinds that a program may declare but that have nothing to hold here: sockets, cgroups, tasks
//! and stack traces live in a host stack. They exist, so that objects load, and are empty.

use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};

use crate::array::next_index;
use crate::prog_array::number;
use crate::store::Store;
use crate::user::Value;

/// An always empty map with the error numbers of its kind.
#[derive(Debug)]
pub(crate) struct Stub {
    kind: MapType,
    entries: u32,
    value_size: u32,
}

impl Stub {
    pub(crate) fn new(def: &MapDef) -> Self {
        // A stack's key is a bucket, and the number of those is a power of two.
        let is_stacks = def.kind == MapType::StackTrace;
        let buckets = def.max_entries.checked_next_power_of_two().unwrap_or(u32::MAX);
        let entries = if is_stacks { buckets } else { def.max_entries };
        Stub { kind: def.kind, entries, value_size: def.value_size }
    }

    /// Whether a key is past the last slot of a kind whose keys are indices.
    fn is_past_end(&self, key: &[u8]) -> bool {
        number(key) >= self.entries
    }
}

impl Store for Stub {
    fn update(&self, _worker: usize, key: &[u8], _value: &[u8], flags: u64) -> Result<(), Errno> {
        Err(match self.kind {
            MapType::CgroupArray if flags != 0 => Errno::EINVAL,
            MapType::CgroupArray if self.is_past_end(key) => Errno::E2BIG,
            // The value is a descriptor of something that doesn't exist here.
            MapType::Sockmap | MapType::Sockhash | MapType::ReuseportSockarray => Errno::EBADF,
            MapType::CgroupArray | MapType::SkStorage | MapType::InodeStorage => Errno::EBADF,
            MapType::TaskStorage | MapType::CgrpStorage => Errno::EBADF,
            MapType::CgroupStorage | MapType::PercpuCgroupStorage => Errno::ENOENT,
            MapType::StackTrace => Errno::EINVAL,
            _ => Errno::EOPNOTSUPP,
        })
    }

    fn delete(&self, _worker: usize, key: &[u8]) -> Result<(), Errno> {
        Err(match self.kind {
            MapType::CgroupArray if self.is_past_end(key) => Errno::E2BIG,
            MapType::StackTrace if self.is_past_end(key) => Errno::E2BIG,
            MapType::Sockmap => Errno::EINVAL,
            MapType::TaskStorage | MapType::CgrpStorage => Errno::EBADF,
            MapType::SkStorage | MapType::InodeStorage => Errno::EBADF,
            MapType::CgroupStorage | MapType::PercpuCgroupStorage => Errno::EINVAL,
            _ => Errno::ENOENT,
        })
    }

    fn read(&self, _key: &[u8], _locked: bool) -> Result<Value, Errno> {
        Err(match self.kind {
            MapType::CgroupArray => Errno::ENOTSUPP,
            // Users get a socket's cookie, which takes 8 bytes.
            MapType::Sockmap | MapType::Sockhash | MapType::ReuseportSockarray
                if self.value_size != 8 =>
            {
                Errno::ENOSPC
            }
            MapType::TaskStorage | MapType::CgrpStorage => Errno::EBADF,
            MapType::SkStorage | MapType::InodeStorage => Errno::EBADF,
            _ => Errno::ENOENT,
        })
    }

    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        Err(match self.kind {
            // Their slots exist, but nothing is in them.
            MapType::CgroupArray | MapType::Sockmap | MapType::ReuseportSockarray => {
                return next_index(key, self.entries);
            }
            MapType::TaskStorage | MapType::CgrpStorage => Errno::ENOTSUPP,
            MapType::SkStorage | MapType::InodeStorage => Errno::ENOTSUPP,
            _ => Errno::ENOENT,
        })
    }

    fn count(&self) -> Option<u64> {
        Some(0)
    }
}
