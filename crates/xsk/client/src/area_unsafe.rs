//! Packet memory on the application's side.

#![expect(unsafe_code, reason = "memory shared with the daemon")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Memory that both sides share, or a part of it. No two of them have bytes in common.
#[derive(Debug)]
pub struct Area {
    mapping: Arc<Mapping>,
    /// The bytes of this part, as offsets in the mapping.
    part: Range<usize>,
}

/// The mapped memory.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
    file: OwnedFd,
    /// The caller's address range, which stays mapped.
    is_borrowed: bool,
}

// SAFETY: plain memory; nothing in `Mapping` depends on the thread.
unsafe impl Send for Mapping {}
// SAFETY: all access is through an `Area`, and each byte belongs to one of them.
unsafe impl Sync for Mapping {}

impl Area {
    /// `len` zero bytes.
    pub fn new(len: usize) -> io::Result<Area> {
        let file = Area::file(len)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, &file, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Area::whole(Mapping { base, len, file, is_borrowed: false }))
    }

    /// Replaces existing memory by memory that can be shared, in place: contents and address stay.
    /// Rounds `len` up to whole pages.
    ///
    /// # Safety
    ///
    /// The whole pages are the caller's, mapped, readable and writable, aligned, and no other code
    /// accesses them during the call.
    pub unsafe fn over(base: NonNull<u8>, len: usize) -> io::Result<Area> {
        let len = len.next_multiple_of(PAGE_BYTES);
        let file = Area::file(len)?;
        // SAFETY: readable, as the caller says.
        let before = unsafe { std::slice::from_raw_parts(base.as_ptr(), len) };
        let mut at = 0;
        // Pages of zeroes need no memory yet.
        for page in before.chunks(PAGE_BYTES) {
            if page.iter().any(|&byte| byte != 0) {
                rustix::io::pwrite(&file, page, at)?;
            }
            at += page.len() as u64;
        }
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let flags = flags | MapFlags::FIXED;
        // SAFETY: replaces pages that are the caller's by others with the same contents.
        let _same = unsafe { mmap(base.as_ptr().cast(), len, protection, flags, &file, 0) }?;
        Ok(Area::whole(Mapping { base, len, file, is_borrowed: true }))
    }

    fn whole(mapping: Mapping) -> Area {
        Area { part: 0..mapping.len, mapping: Arc::new(mapping) }
    }

    fn file(len: usize) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("towpath-umem", flags)?;
        ftruncate(&file, len as u64)?;
        // The daemon maps only files that cannot become shorter.
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        Ok(file)
    }

    /// Two parts: the bytes in front of an offset in the memory, and the rest.
    pub fn split_at(self, offset: usize) -> (Area, Area) {
        let middle = offset.clamp(self.part.start, self.part.end);
        let mapping = Arc::clone(&self.mapping);
        let first = Area { mapping, part: self.part.start..middle };
        (first, Area { mapping: self.mapping, part: middle..self.part.end })
    }

    /// The memory's file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.file.as_fd()
    }

    /// The first address of the memory.
    pub fn addr(&self) -> u64 {
        self.mapping.base.as_ptr() as u64
    }

    /// Bytes of the part.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// Bytes at an offset in the memory; `None` when they lie outside of the part. The daemon
    /// writes to chunks that were given to it, so look only at those that it gave back.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = self.start_of(offset, len)?;
        // SAFETY: inside the mapping and in no other part, and borrowed as `self` is. The daemon,
        // which could write to it meanwhile, would break its word only to make bytes differ.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// As [`Area::bytes`], to write to.
    #[inline]
    pub fn bytes_mut(&mut self, offset: u64, len: usize) -> Option<&mut [u8]> {
        let start = self.start_of(offset, len)?;
        // SAFETY: as above.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    #[inline]
    fn start_of(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        if start < self.part.start || end > self.part.end {
            return None;
        }
        // SAFETY: inside the mapping.
        Some(unsafe { self.mapping.base.add(start) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.is_borrowed {
            // SAFETY: our own mapping, and borrows of it have ended.
            let _unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::Area;

    #[test]
    fn parts_have_nothing_in_common() {
        let area = Area::new(8192).unwrap();
        let (mut first, mut second) = area.split_at(4096);
        assert_eq!((first.len(), second.len()), (4096, 4096));
        first.bytes_mut(4000, 96).unwrap().fill(1);
        second.bytes_mut(4096, 4096).unwrap().fill(2);
        assert!(first.bytes(0, 4000).unwrap().iter().all(|&byte| byte == 0));
        assert!(first.bytes(4000, 96).unwrap().iter().all(|&byte| byte == 1));
        for (offset, len) in [(4000, 97), (4097, 0), (8192, 1), (u64::MAX, 1), (u64::MAX, 0)] {
            assert!(first.bytes(offset, len).is_none(), "{offset} {len}");
        }
        for (offset, len) in [(0, 1), (4095, 1), (4095, 2), (8192, 1), (u64::MAX, 1)] {
            assert!(second.bytes(offset, len).is_none(), "{offset} {len}");
        }
        drop(first);
        assert!(second.bytes(8191, 1).is_some_and(|bytes| bytes == [2]));
    }
}
