//! Packet memory on the application's side.

#![expect(unsafe_code, reason = "memory shared with the daemon")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Memory that both sides share.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    len: usize,
    file: OwnedFd,
    /// The caller's address range, which stays mapped.
    is_borrowed: bool,
}

// SAFETY: plain memory; nothing in `Area` depends on the thread.
unsafe impl Send for Area {}

impl Area {
    /// `len` zero bytes.
    pub fn new(len: usize) -> io::Result<Area> {
        let file = Area::file(len)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, &file, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Area { base, len, file, is_borrowed: false })
    }

    /// Replaces existing memory by memory that can be shared, in place: contents and address stay.
    /// Rounds `len` up to whole pages.
    ///
    /// # Safety
    ///
    /// The whole pages are the caller's, mapped, readable and writable, aligned, and no other code
    /// accesses them during the call.
    pub(crate) unsafe fn over(base: NonNull<u8>, len: usize) -> io::Result<Area> {
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
        Ok(Area { base, len, file, is_borrowed: true })
    }

    fn file(len: usize) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("towpath-umem", flags)?;
        ftruncate(&file, len as u64)?;
        // The daemon maps only files that cannot become shorter.
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        Ok(file)
    }

    /// The memory's file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its first address.
    pub fn addr(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of it; `None` when it lies outside. The daemon writes to chunks that were given to
    /// it, so look only at those that it gave back.
    pub fn bytes_mut(&mut self, offset: u64, len: usize) -> Option<&mut [u8]> {
        let end = usize::try_from(offset).ok()?.checked_add(len)?;
        if end > self.len {
            return None;
        }
        // SAFETY: inside the mapping, and borrowed as `self` is. The daemon, which could write to
        // it meanwhile, would break its word only to make bytes differ.
        Some(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(end - len), len) })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if !self.is_borrowed {
            // SAFETY: our own mapping, and borrows of it have ended.
            let _unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

const PAGE_BYTES: usize = 4096;
