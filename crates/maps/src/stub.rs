//! Kinds that a program may declare but that have nothing to hold here: sockets, cgroups, tasks
//! and stack traces live in a host stack. They exist, so that objects load, and are empty.

use towpath_bpf::Errno;
use towpath_bpf::program::MapType;

use crate::store::Store;
use crate::user::Value;

/// An always empty map with the error numbers of its kind.
#[derive(Debug)]
pub(crate) struct Stub {
    kind: MapType,
}

impl Stub {
    pub(crate) fn new(kind: MapType) -> Self {
        Stub { kind }
    }
}

impl Store for Stub {
    fn update(&self, _worker: usize, _key: &[u8], _value: &[u8], _flags: u64) -> Result<(), Errno> {
        Err(match self.kind {
            // The value is a descriptor of something that doesn't exist here.
            MapType::Sockmap | MapType::Sockhash | MapType::ReuseportSockarray => Errno::EBADF,
            MapType::CgroupArray | MapType::SkStorage | MapType::InodeStorage => Errno::EBADF,
            MapType::TaskStorage | MapType::CgrpStorage => Errno::EBADF,
            MapType::CgroupStorage | MapType::PercpuCgroupStorage => Errno::ENOENT,
            MapType::StackTrace => Errno::EINVAL,
            _ => Errno::EOPNOTSUPP,
        })
    }

    fn delete(&self, _worker: usize, _key: &[u8]) -> Result<(), Errno> {
        Err(match self.kind {
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
            MapType::TaskStorage | MapType::CgrpStorage => Errno::EBADF,
            MapType::SkStorage | MapType::InodeStorage => Errno::EBADF,
            _ => Errno::ENOENT,
        })
    }

    fn next_key(&self, _key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        Err(match self.kind {
            MapType::TaskStorage | MapType::CgrpStorage => Errno::ENOTSUPP,
            MapType::SkStorage | MapType::InodeStorage => Errno::ENOTSUPP,
            _ => Errno::ENOENT,
        })
    }

    fn count(&self) -> Option<u64> {
        Some(0)
    }
}
