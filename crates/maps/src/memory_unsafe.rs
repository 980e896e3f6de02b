//! Memory of a map: a mapping that never moves, reached by offset.
//!
//! This is the only module of the crate with `unsafe` code. Every word is accessed as an atomic
//! with relaxed order, because a program may write a value while a user thread copies it: the
//! reader may see old and new words mixed (as with the kernel's `bpf_long_memcpy`) but never half a
//! word.

#![expect(unsafe_code, reason = "mapped memory is shared with programs and threads")]

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use rustix::fd::AsFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use towpath_bpf::Errno;

use crate::memory::{PAGE_BYTES, REGION_BYTES_MAX, partial_word};

/// Size of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A zeroed, readable and writable mapping.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Region` owns its mapping and hands out only atomics into it.
unsafe impl Send for Region {}
// SAFETY: as above; all access through `&Region` is atomic.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `len` bytes (rounded up to pages), all zero.
    pub(crate) fn new(len: u64) -> Result<Self, Errno> {
        let len = usize::try_from(len.max(1)).map_err(|_too_big| Errno::ENOMEM)?;
        if len as u64 > REGION_BYTES_MAX {
            return Err(Errno::ENOMEM);
        }
        let len = len.next_multiple_of(PAGE_BYTES);
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address the kernel chooses replaces nothing.
        let base = unsafe { mmap_anonymous(null_mut(), len, prot, flags) }.map_err(from_os)?;
        Ok(Region { base: NonNull::new(base.cast()).ok_or(Errno::ENOMEM)?, len })
    }

    /// Asks for huge pages, where the machine has any and the region fills at least one: a look-up
    /// in a large table then waits for its memory alone, and not for its address translation.
    pub(crate) fn in_huge_pages(self) -> Self {
        if self.len >= HUGE_PAGE_BYTES {
            let (base, advice) = (self.base.as_ptr().cast(), Advice::LinuxHugepage);
            // SAFETY: the range is in the mapping, which stays as it is; only the size of its pages
            // may change.
            let _kept_small = unsafe { madvise(base, self.len, advice) };
        }
        self
    }

    /// Populates up to `len` bytes from an offset on, so that no frame waits for the kernel to find
    /// memory. Other pages are allocated at their first access.
    pub(crate) fn populate(&self, offset: usize, len: usize) {
        let from = offset / PAGE_BYTES * PAGE_BYTES;
        let len = (offset - from + len).min(self.len - from.min(self.len));
        if len > 0 {
            let (base, advice) = (self.at(from).as_ptr().cast(), Advice::LinuxPopulateWrite);
            // SAFETY: the range is in the mapping, whose bytes stay as they are.
            let _comes_later = unsafe { madvise(base, len, advice) };
        }
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// `front` bytes followed by `data` bytes mapped twice in a row, so that a record which wraps
    /// is contiguous in memory. Both are multiples of a page.
    pub(crate) fn with_mirror(front: usize, data: usize) -> Result<Self, Errno> {
        assert!(front.is_multiple_of(PAGE_BYTES) && data.is_multiple_of(PAGE_BYTES));
        let region = Region::new((front + 2 * data) as u64)?;
        let file = memfd_create("towpath-ring", MemfdFlags::CLOEXEC).map_err(from_os)?;
        ftruncate(&file, (front + data) as u64).map_err(from_os)?;
        region.map_file(0, front + data, &file, 0)?;
        region.map_file(front + data, data, &file, front as u64)?;
        Ok(region)
    }

    /// Replaces `len` bytes at `offset` by a shared mapping of `file`.
    fn map_file(&self, offset: usize, len: usize, file: impl AsFd, at: u64) -> Result<(), Errno> {
        assert!(offset + len <= self.len);
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let address = self.base.as_ptr().wrapping_add(offset).cast();
        // SAFETY: MAP_FIXED replaces pages of this region only (asserted above), and no other code
        // has seen them yet: the region is still being built.
        unsafe { mmap(address, len, prot, flags, file, at) }.map_err(from_os)?;
        Ok(())
    }

    /// Address of the first byte.
    pub(crate) fn base(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Address of a byte, for a program.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len, "offset {offset} outside a region of {} bytes", self.len);
        // SAFETY: inside the mapping (asserted), so inside one allocated object.
        unsafe { self.base.add(offset) }
    }

    /// The 64-bit word at a multiple of 8.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.len);
        // SAFETY: inside the mapping and aligned (asserted; the length is a multiple of a page),
        // valid as long as `self`, and only ever accessed atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The 32-bit word at a multiple of 4.
    #[inline]
    pub(crate) fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < self.len);
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Prefetches the cache line at an offset.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        prefetch(self.base() + offset as u64);
    }

    /// As above, for writing: other cores give up the line.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, offset: usize) {
        prefetch_to_write(self.base() + offset as u64);
    }

    /// The two 32-bit words at a multiple of 8.
    #[inline]
    pub(crate) fn halves(&self, offset: usize) -> &[AtomicU32; 2] {
        assert!(offset.is_multiple_of(8) && offset < self.len);
        // SAFETY: as in `word`, for both: the length is a multiple of a page.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        assert!(offset < self.len);
        // SAFETY: as in `word`; bytes have no alignment.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset)) }
    }

    /// `count` words from a multiple of 8 on.
    #[inline]
    fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8) && offset <= self.len && count <= (self.len - offset) / 8);
        // SAFETY: as in `word`, for each of them.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset).cast(), count) }
    }

    /// Copies bytes in, whole words where it can.
    #[inline]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let (mut done, (words, _)) = (0, bytes.as_chunks::<8>());
        if offset.is_multiple_of(8) {
            for (to, word) in self.words(offset, words.len()).iter().zip(words) {
                to.store(u64::from_ne_bytes(*word), Relaxed);
            }
            done = words.len() * 8;
        }
        if done < bytes.len() {
            self.write_pieces(offset + done, &bytes[done..]);
        }
    }

    /// Copies bytes that are no whole words, or lie where no words are.
    fn write_pieces(&self, mut offset: usize, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if offset.is_multiple_of(8)
                && let Some((word, rest)) = bytes.split_first_chunk::<8>()
            {
                self.word(offset).store(u64::from_ne_bytes(*word), Relaxed);
                (offset, bytes) = (offset + 8, rest);
            } else if offset.is_multiple_of(4)
                && let Some((half, rest)) = bytes.split_first_chunk::<4>()
            {
                self.half(offset).store(u32::from_ne_bytes(*half), Relaxed);
                (offset, bytes) = (offset + 4, rest);
            } else {
                self.byte(offset).store(first, Relaxed);
                (offset, bytes) = (offset + 1, rest);
            }
        }
    }

    /// Copies bytes to a multiple of 8, and zeroes up to the next multiple of 8.
    pub(crate) fn write_padded(&self, offset: usize, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        self.write(offset, words.as_flattened());
        if !rest.is_empty() {
            self.word(offset + words.len() * 8).store(partial_word(rest), Relaxed);
        }
    }

    /// Copies bytes out, whole words where it can.
    pub(crate) fn read(&self, mut offset: usize, mut out: &mut [u8]) {
        while !out.is_empty() {
            if offset.is_multiple_of(8) && out.len() >= 8 {
                let (word, rest) = out.split_at_mut(8);
                word.copy_from_slice(&self.word(offset).load(Relaxed).to_ne_bytes());
                (offset, out) = (offset + 8, rest);
            } else {
                let (byte, rest) = out.split_at_mut(1);
                byte[0] = self.byte(offset).load(Relaxed);
                (offset, out) = (offset + 1, rest);
            }
        }
    }

    /// Sets bytes to zero.
    pub(crate) fn clear(&self, offset: usize, len: usize) {
        const ZEROES: [u8; 256] = [0; 256];
        for start in (0..len).step_by(ZEROES.len()) {
            self.write(offset + start, &ZEROES[..ZEROES.len().min(len - start)]);
        }
    }

    /// Whether bytes in memory equal `bytes`. `offset` is a multiple of 8 and the memory after the
    /// bytes up to the next multiple of 8 is zero, as in a key.
    #[inline]
    pub(crate) fn equals(&self, mut offset: usize, bytes: &[u8]) -> bool {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            if self.word(offset).load(Relaxed) != u64::from_ne_bytes(*word) {
                return false;
            }
            offset += 8;
        }
        if rest.is_empty() {
            return true;
        }
        self.word(offset).load(Relaxed) == partial_word(rest)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this address and length, and every holder of
        // an address into it holds the map too.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Prefetches a cache line; changes nothing, whatever the address.
#[inline(always)]
pub(crate) fn prefetch(address: u64) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address as *const i8) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _no_stable_prefetch = address;
}

/// As above, for writing.
#[inline(always)]
fn prefetch_to_write(address: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless; a processor without this one does nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _no_stable_prefetch = address;
}

fn from_os(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_any_alignment() {
        let region = Region::new(64).unwrap();
        let bytes: Vec<u8> = (1..=23).collect();
        region.write(5, &bytes);
        let mut back = [0; 25];
        region.read(4, &mut back);
        assert_eq!(back[0], 0);
        assert_eq!(back[1..24], bytes);
        assert_eq!(back[24], 0);
        region.clear(5, 22);
        region.read(4, &mut back);
        assert_eq!(back.iter().filter(|&&b| b != 0).count(), 1);
    }

    #[test]
    fn a_mirrored_ring_is_contiguous_over_its_end() {
        let region = Region::with_mirror(PAGE_BYTES, PAGE_BYTES).unwrap();
        region.write(2 * PAGE_BYTES - 3, b"abcdef");
        let mut start = [0; 3];
        region.read(PAGE_BYTES, &mut start);
        assert_eq!(&start, b"def");
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert_eq!(Region::new(34 << 40).unwrap_err(), Errno::ENOMEM);
        assert_eq!(Region::new(u64::MAX).unwrap_err(), Errno::ENOMEM);
    }
}
