//! A guest's memory as its driver sees it: a memfd that the device has mapped as well.

#![expect(unsafe_code, reason = "memory that a device writes cannot be a slice")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Memory of a guest, which is zeroed at first.
#[derive(Debug)]
pub struct GuestMemory {
    base: NonNull<u8>,
    len: usize,
    file: OwnedFd,
}

// SAFETY: plain shared memory that is only accessed through raw pointers.
unsafe impl Send for GuestMemory {}
// SAFETY: as above; words are accessed atomically, and a copy of bytes that another thread writes
// is a mixture, as with the device.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// Allocates `len` bytes, a multiple of the page size.
    pub fn new(len: usize) -> io::Result<GuestMemory> {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, &file, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(GuestMemory { base, len, file })
    }

    /// The file, to be passed to the device.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "there are always some")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes to `at`.
    ///
    /// # Panics
    ///
    /// Panics if they would lie outside, as all other methods do.
    #[inline]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.at(at, bytes.len());
        // SAFETY: inside, as `at` checks.
        unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes from `at`.
    #[inline]
    pub fn read(&self, at: usize, out: &mut [u8]) {
        let from = self.at(at, out.len());
        // SAFETY: inside, as `at` checks.
        unsafe { from.as_ptr().copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
    }

    /// Loads a word of 16 bits.
    #[inline]
    pub fn load16(&self, at: usize) -> u16 {
        // SAFETY: inside and aligned, as `word` checks; other threads access it atomically, too.
        unsafe { AtomicU16::from_ptr(self.word(at)) }.load(Ordering::Acquire)
    }

    /// Stores a word of 16 bits.
    #[inline]
    pub fn store16(&self, at: usize, value: u16) {
        // SAFETY: as in `load16`.
        unsafe { AtomicU16::from_ptr(self.word(at)) }.store(value, Ordering::Release);
    }

    /// Loads a word of 32 bits.
    #[inline]
    pub fn load32(&self, at: usize) -> u32 {
        // SAFETY: as in `load16`.
        unsafe { AtomicU32::from_ptr(self.word(at)) }.load(Ordering::Relaxed)
    }

    /// Loads a word of 64 bits.
    #[inline]
    pub fn load64(&self, at: usize) -> u64 {
        // SAFETY: as in `load16`.
        unsafe { AtomicU64::from_ptr(self.word(at)) }.load(Ordering::Acquire)
    }

    /// Stores a word of 64 bits.
    #[inline]
    pub fn store64(&self, at: usize, value: u64) {
        // SAFETY: as in `load16`.
        unsafe { AtomicU64::from_ptr(self.word(at)) }.store(value, Ordering::Release);
    }

    #[inline]
    fn word<T>(&self, at: usize) -> *mut T {
        let word = self.at(at, size_of::<T>()).cast::<T>();
        assert!(word.is_aligned(), "words are aligned");
        word.as_ptr()
    }

    #[inline]
    fn at(&self, at: usize, len: usize) -> NonNull<u8> {
        assert!(at <= self.len && len <= self.len - at, "inside of the memory");
        // SAFETY: inside, checked above.
        unsafe { self.base.add(at) }
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        let _unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
