//! The file that a socket's rings are in: sparse, each ring where the kernel has it
//! (`XDP_PGOFF_*`), so that code that maps a kernel socket can map this file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use towpath_ring::{Entry, Mapped, Memory, OFFSETS};

use crate::abi::{PGOFF_COMPLETION, PGOFF_FILL, PGOFF_RX, PGOFF_TX};

/// One of the four rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Which {
    /// Received packets.
    Rx,
    /// Packets to send.
    Tx,
    /// Free chunks.
    Fill,
    /// Chunks of packets that were sent.
    Completion,
}

impl Which {
    /// Its offset in the file.
    pub fn page_offset(self) -> u64 {
        match self {
            Which::Rx => PGOFF_RX,
            Which::Tx => PGOFF_TX,
            Which::Fill => PGOFF_FILL,
            Which::Completion => PGOFF_COMPLETION,
        }
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct RingFile(OwnedFd);

impl RingFile {
    pub(crate) fn new() -> Result<RingFile, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("towpath-xsk", flags)?;
        ftruncate(&file, FILE_BYTES)?;
        // The mapped memory stays valid, whatever the application does to the file.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(RingFile(file))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The memory of one ring (`xsk_init_queue`).
#[derive(Debug, Clone)]
pub(crate) struct RingMemory {
    memory: Arc<Memory>,
    pub(crate) entries: u32,
}

impl RingMemory {
    pub(crate) fn new<T: Entry>(
        file: &RingFile,
        which: Which,
        entries: u32,
    ) -> Result<RingMemory, Errno> {
        if !entries.is_power_of_two() {
            return Err(Errno::INVAL);
        }
        if entries > ENTRIES_MAX {
            return Err(Errno::NOMEM);
        }
        let memory = Memory::map::<T>(file.fd(), which.page_offset(), &OFFSETS, entries);
        Ok(RingMemory { memory: memory.map_err(|_failed| Errno::NOMEM)?, entries })
    }

    pub(crate) fn ring<T: Entry>(&self) -> Result<Mapped<T>, Errno> {
        Mapped::new(&self.memory, &OFFSETS, self.entries).map_err(|_nonsense| Errno::INVAL)
    }
}

/// Length of the file: up to the end of the last ring's room.
const FILE_BYTES: u64 = PGOFF_COMPLETION + PGOFF_TX;
/// Most entries of a ring. In the kernel only memory limits them; here the memory is the daemon's.
const ENTRIES_MAX: u32 = 1 << 18;
