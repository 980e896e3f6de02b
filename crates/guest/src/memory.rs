//! A guest as a caller of `bpf(2)`: its handles are the file descriptors.

use std::collections::BTreeMap;

use towpath_bpf::Errno;
use towpath_objects::{Caller, Handle, Process};

/// Handles by number, and memory for one call.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) bytes: Process,
    pub(crate) handles: BTreeMap<u32, Handle>,
    /// Number of the next object.
    pub(crate) next: u32,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory { bytes: Process::new(0), handles: BTreeMap::new(), next: FIRST_HANDLE }
    }
}

impl Caller for Memory {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
        self.bytes.read(address, out)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.bytes.write(address, bytes)
    }

    fn handle(&self, descriptor: u32) -> Result<Handle, Errno> {
        self.handles.get(&descriptor).cloned().ok_or(Errno::EBADF)
    }

    fn install(&mut self, handle: Handle) -> Result<u32, Errno> {
        // Numbers are not reused: a handle that was closed stays invalid.
        let next = self.next.checked_add(1).ok_or(Errno::EMFILE)?;
        let number = std::mem::replace(&mut self.next, next);
        self.handles.insert(number, handle);
        Ok(number)
    }
}

pub(crate) const FIRST_HANDLE: u32 = 1;
