//! The dirty log: pages of a guest that the device wrote to, during migration.

use std::io;
use std::os::fd::OwnedFd;

use super::mapping_unsafe::Mapping;

/// A bit for each page of 4096 bytes, in memory that the front end passed (`VHOST_LOG_PAGE`).
#[derive(Debug)]
pub(super) struct Log(Mapping);

impl Log {
    pub(super) fn new(file: OwnedFd, offset: u64, len: u64) -> io::Result<Log> {
        Ok(Log(Mapping::new(file, offset, len)?))
    }

    /// Marks `len` bytes at a guest address as written. Addresses beyond the log are ignored: the
    /// front end made it as long as its memory.
    pub(super) fn mark(&self, guest: u64, len: u64) {
        if len == 0 {
            return;
        }
        let last = guest.saturating_add(len - 1) / PAGE_BYTES;
        for page in guest / PAGE_BYTES..=last {
            let byte = usize::try_from(page / 8).unwrap_or(usize::MAX);
            if byte >= self.0.len() {
                return;
            }
            self.0.set_bits(byte, 1 << (page % 8));
        }
    }
}

const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::pread;

    use super::*;

    #[test]
    fn pages_are_bits() {
        let file = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4096).unwrap();
        let log = Log::new(file.try_clone().unwrap(), 0, 4).unwrap();
        log.mark(4095, 2);
        log.mark(9 << 12, 1);
        log.mark(10 << 12, 0);
        log.mark(31 << 12, 1 << 20);
        log.mark(u64::MAX, 9);
        let mut bytes = [0; 6];
        pread(&file, &mut bytes, 0).unwrap();
        assert_eq!(bytes, [0b11, 0b10, 0, 0b1000_0000, 0, 0]);
    }
}
