//! Memory shared by file descriptor, divided into blocks.

#![expect(unsafe_code, reason = "maps memory")]

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::Block;

/// A memfd and its mapping. Blocks of it keep it alive.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    memfd: OwnedFd,
    huge: bool,
    /// Blocks that were dropped: offset and length.
    lost: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: the mapping is plain memory; its parts are owned by blocks, one owner each.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself never touches the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len` zero bytes, in huge pages of the default size if the machine has
    /// reserved some, else in ordinary pages that the kernel may merge.
    pub(crate) fn new(len: usize) -> std::io::Result<Arc<Mapping>> {
        let huge_len = len.next_multiple_of(HUGE_PAGE_BYTES);
        match Mapping::of(huge_len, true) {
            Ok(mapping) => Ok(Arc::new(mapping)),
            Err(_no_huge_pages) => Ok(Arc::new(Mapping::of(len.next_multiple_of(4096), false)?)),
        }
    }

    fn of(len: usize, huge: bool) -> std::io::Result<Mapping> {
        let kind = if huge { MemfdFlags::HUGETLB } else { MemfdFlags::ALLOW_SEALING };
        let memfd = memfd_create("towpath-frames", MemfdFlags::CLOEXEC | kind)?;
        ftruncate(&memfd, len as u64)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // Without POPULATE a missing huge page would cause SIGBUS at the first access.
        let flags = if huge { flags | MapFlags::POPULATE } else { flags };
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, &memfd, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        let _exposed = base.as_ptr().expose_provenance();
        Ok(Mapping { base, len, memfd, huge, lost: Mutex::default() })
    }

    /// Allocates all of its pages, instead of at the first access to each. Huge pages are allocated
    /// already.
    ///
    /// # Errors
    ///
    /// Fails with kernels before 5.14 (`EINVAL`), or if there is too little memory.
    pub(crate) fn populate(&self) -> std::io::Result<()> {
        if self.huge {
            return Ok(());
        }
        // In parts, so that threads that map memory meanwhile wait for one part at most.
        for offset in (0..self.len).step_by(HUGE_PAGE_BYTES) {
            let len = HUGE_PAGE_BYTES.min(self.len - offset);
            // SAFETY: a part of the mapping.
            let start = unsafe { self.base.add(offset) };
            // SAFETY: this changes no byte.
            unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateWrite) }?;
        }
        Ok(())
    }

    /// Returns whole pages between two offsets to the system: they read zero from now on. No other
    /// code may use these bytes.
    pub(crate) fn discard(&self, part: Range<usize>) -> std::io::Result<()> {
        let page = if self.huge { HUGE_PAGE_BYTES } else { 4096 };
        let (start, end) = (part.start.next_multiple_of(page), part.end / page * page);
        if start < end {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&self.memfd, flags, start as u64, (end - start) as u64)?;
        }
        Ok(())
    }

    /// Maps `len` bytes of another process's file from `start` on: `len` is a multiple of the page
    /// size, and the file is sealed against shrinking.
    pub(crate) fn over(file: OwnedFd, start: u64, len: usize) -> std::io::Result<Mapping> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, &file, start) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        let _exposed = base.as_ptr().expose_provenance();
        Ok(Mapping { base, len, memfd: file, huge: false, lost: Mutex::default() })
    }

    /// The whole mapping as blocks of `size` bytes, `stride` apart. To be called once.
    pub(crate) fn blocks(
        self: &Arc<Self>,
        size: usize,
        stride: usize,
    ) -> impl Iterator<Item = Block> {
        let stride = stride.max(size);
        (0..self.len / stride).map(move |index| self.block(index * stride, size))
    }

    /// Takes the blocks that were dropped, for reuse.
    pub(crate) fn lost(self: &Arc<Self>) -> impl Iterator<Item = Block> {
        let lost = std::mem::take(&mut *self.lost.lock());
        lost.into_iter().map(|(offset, len)| self.block(offset, len))
    }

    /// Number of blocks that [`Mapping::lost`] would return.
    pub(crate) fn lost_count(&self) -> usize {
        self.lost.lock().len()
    }

    /// Whether [`Mapping::lost`] would return any.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.lost_count() > 0
    }

    /// `len` bytes from `offset` on. The caller hands each part out once, and again only after its
    /// block was dropped.
    ///
    /// # Panics
    ///
    /// If the range exceeds the mapping.
    pub(crate) fn block(self: &Arc<Self>, offset: usize, len: usize) -> Block {
        assert!(offset <= self.len && len <= self.len - offset, "a part of the mapping");
        // SAFETY: in bounds, checked above.
        let base = unsafe { self.base.add(offset) };
        // SAFETY: each part is given out once, and again only after its block was dropped.
        unsafe { Block::within(base, len, Arc::clone(self)) }
    }

    /// Takes back a block that is being dropped.
    pub(super) fn reclaim(&self, base: NonNull<u8>, len: usize) {
        let offset = base.as_ptr() as usize - self.base.as_ptr() as usize;
        self.lost.lock().push((offset, len));
    }

    pub(crate) fn has_huge_pages(&self) -> bool {
        self.huge
    }

    pub(crate) fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    pub(crate) fn base(&self) -> u64 {
        self.base.as_ptr() as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no block is left: each holds a reference to it.
        let _unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Page size of `MFD_HUGETLB` without a size on x86-64 and most other machines.
const HUGE_PAGE_BYTES: usize = 2 << 20;
