//! A mapping of a part of a guest's memory, with raw access and never a reference.
//!
//! The guest may write to it at any time, so nothing is read twice: words are loaded once,
//! atomically, and everything else is copied. A guest may lead two of our threads to the same
//! bytes; that is harmless, because the guest could have written any result itself.

#![expect(unsafe_code, reason = "memory that a guest writes cannot be a slice")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FileType, FsWord, SealFlags, fcntl_add_seals, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use towpath_xdp::{SharedBytes, SharedBytesMut};

use super::fault_unsafe::Guarded;

/// Mapped bytes of a file passed by another process.
#[derive(Debug)]
pub(super) struct Mapping {
    /// The first byte of the requested range, at some offset of the mapped range.
    base: NonNull<u8>,
    len: usize,
    whole: NonNull<u8>,
    whole_len: usize,
    /// Guard of the range, dropped before the mapping is removed.
    _guarded: Guarded,
}

// SAFETY: plain shared memory that is only accessed through raw pointers.
unsafe impl Send for Mapping {}
// SAFETY: as above; see the module on threads that are led to the same bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, which must exist. If the file is truncated
    /// later, zeroes are read in place of the missing bytes.
    pub(super) fn new(file: impl AsFd, offset: u64, len: u64) -> io::Result<Mapping> {
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or(Errno::INVAL)?;
        let stat = fstat(&file)?;
        check_is_memory(&file, stat.st_mode)?;
        if u64::try_from(stat.st_size).unwrap_or(0) < end {
            return Err(Errno::FAULT.into());
        }
        // Best effort: fails on huge pages of a file system, and on a file whose seals are sealed.
        let _sealed = fcntl_add_seals(&file, SealFlags::SHRINK);
        // Mapped from the start of the file, because the offset need not be page-aligned.
        let page = u64::try_from(stat.st_blksize).unwrap_or(4096).max(4096);
        let whole_len = end.checked_next_multiple_of(page).ok_or(Errno::INVAL)?;
        let whole_len = usize::try_from(whole_len).map_err(|_too_long| Errno::INVAL)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let flags = flags | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let whole = unsafe { mmap(std::ptr::null_mut(), whole_len, protection, flags, &file, 0) }?;
        let whole = NonNull::new(whole.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let guarded = Guarded::new(whole.as_ptr() as usize, whole_len).ok_or_else(|| {
            // SAFETY: ours, and no other code knows it yet.
            let _unmapped = unsafe { munmap(whole.as_ptr().cast(), whole_len) };
            io::Error::other("too many memory regions of guests")
        })?;
        // SAFETY: `offset` lies inside, since `end` does.
        let base = unsafe { whole.add(offset as usize) };
        Ok(Mapping { base, len: len as usize, whole, whole_len, _guarded: guarded })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Panics
    ///
    /// If the range exceeds the mapping.
    #[inline]
    pub(super) fn read(&self, offset: usize, to: SharedBytesMut<'_>) {
        let len = to.len();
        // SAFETY: inside the mapping, as `at` checks; `to` is ours.
        to.copy_from(unsafe { SharedBytes::new(self.at(offset, len), len) });
    }

    /// Copies bytes to `offset`.
    ///
    /// # Panics
    ///
    /// If the range exceeds the mapping.
    #[inline]
    pub(super) fn write(&self, offset: usize, from: SharedBytes<'_>) {
        let to = self.at(offset, from.len());
        // SAFETY: inside the mapping, as `at` checks; frames are never in a guest's memory.
        unsafe { to.as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    /// As [`Mapping::read`], for a number of bytes known at compile time.
    #[inline]
    pub(super) fn read_array<const N: usize>(&self, offset: usize) -> [u8; N] {
        // SAFETY: inside the mapping, as `at` checks.
        unsafe { read_words(self.at(offset, N).as_ptr()) }
    }

    /// As [`Mapping::write`], for a number of bytes known at compile time.
    #[cfg(test)]
    pub(super) fn write_array<const N: usize>(&self, offset: usize, bytes: [u8; N]) {
        let to = self.at(offset, N);
        // SAFETY: inside the mapping, as `at` checks.
        unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), N) };
    }

    /// `len` bytes from `offset` on; `None` if the range exceeds the mapping.
    #[inline]
    pub(super) fn place(&self, offset: u64, len: u32) -> Option<Place<'_>> {
        let whole = self.len as u64;
        if offset >= whole || u64::from(len) > whole - offset {
            return None;
        }
        // SAFETY: inside, checked above.
        let at = unsafe { self.base.add(offset as usize) };
        Some(Place { at, len, of: PhantomData })
    }

    /// Prefetches the cache line at `offset`, for writing if `to_write`.
    #[inline]
    pub(super) fn prefetch(&self, offset: usize, to_write: bool) {
        prefetch(self.base.as_ptr().wrapping_add(offset), to_write);
    }

    /// Sets bits of a byte.
    #[inline]
    pub(super) fn set_bits(&self, offset: usize, bits: u8) {
        let at: *mut u8 = self.at(offset, 1).as_ptr();
        // SAFETY: as in `load16`.
        unsafe { std::sync::atomic::AtomicU8::from_ptr(at) }.fetch_or(bits, Ordering::Relaxed);
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "inside of a region");
        // SAFETY: inside, checked above.
        unsafe { self.base.add(offset) }
    }
}

/// Bytes of a borrowed mapping: located once, after which only the length is checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'m> {
    at: NonNull<u8>,
    len: u32,
    of: PhantomData<&'m Mapping>,
}

impl Place<'_> {
    #[inline]
    pub(super) fn len(self) -> u32 {
        self.len
    }

    /// Prefetches the cache lines of a header and a short packet behind it.
    #[inline]
    pub(super) fn prefetch(self, to_write: bool) {
        prefetch(self.at.as_ptr(), to_write);
        // Prefetching beyond the end of a shorter buffer is harmless.
        prefetch(self.at.as_ptr().wrapping_add(LINE_BYTES), to_write);
    }

    /// Reads a header, and copies the packet that starts at `skip`.
    ///
    /// # Panics
    ///
    /// If the bytes are too few.
    #[inline]
    pub(super) fn read_behind<const N: usize>(
        self,
        skip: usize,
        mut to: SharedBytesMut<'_>,
    ) -> [u8; N] {
        assert!(N <= skip && skip + to.len() <= self.len as usize, "the packet is inside");
        let (len, from) = (to.len(), self.at.as_ptr());
        // SAFETY: inside the mapping, checked above; `to` is ours, and as long.
        unsafe {
            copy(from.add(skip), to.as_mut_ptr(), len);
            read_words(from)
        }
    }

    /// Writes a header, and a packet behind it.
    ///
    /// # Panics
    ///
    /// If there is no room for them.
    #[inline]
    pub(super) fn write_behind<const N: usize>(self, header: [u8; N], packet: SharedBytes<'_>) {
        assert!(N + packet.len() <= self.len as usize, "the packet is inside");
        let to = self.at.as_ptr();
        // SAFETY: inside the mapping, checked above; frames are never in a guest's memory.
        unsafe {
            to.copy_from_nonoverlapping(header.as_ptr(), N);
            copy(packet.as_ptr(), to.add(N), packet.len());
        }
    }
}

/// A part of a mapping that a running ring uses: words at multiples of their size, which is at most
/// `ALIGN`.
#[derive(Debug, Clone)]
pub(super) struct Area<const ALIGN: usize> {
    base: NonNull<u8>,
    /// At least `ALIGN` bytes.
    len: usize,
    /// Its guest address, if it has one.
    pub(super) guest: u64,
    _mapping: Arc<Mapping>,
}

// SAFETY: as of the mapping, which stays as long as this does.
unsafe impl<const ALIGN: usize> Send for Area<ALIGN> {}
// SAFETY: as above.
unsafe impl<const ALIGN: usize> Sync for Area<ALIGN> {}

impl<const ALIGN: usize> Area<ALIGN> {
    /// A part of the mapping; `None` if it is not aligned, or exceeds the mapping.
    pub(super) fn new(
        mapping: &Arc<Mapping>,
        start: usize,
        len: usize,
        guest: u64,
    ) -> Option<Area<ALIGN>> {
        let is_inside = start.checked_add(len).is_some_and(|end| end <= mapping.len);
        if !is_inside || len < ALIGN {
            return None;
        }
        let base = mapping.at(start, len);
        let is_aligned = (base.as_ptr() as usize).is_multiple_of(ALIGN);
        is_aligned.then(|| Area { base, len, guest, _mapping: Arc::clone(mapping) })
    }

    #[inline]
    pub(super) fn load16(&self, offset: usize, order: Ordering) -> u16 {
        // SAFETY: inside and aligned, as `word` checks; others access it atomically, too, or are
        // other machines to us.
        unsafe { AtomicU16::from_ptr(self.word(offset)) }.load(order)
    }

    #[inline]
    pub(super) fn store16(&self, offset: usize, value: u16, order: Ordering) {
        // SAFETY: as in `load16`.
        unsafe { AtomicU16::from_ptr(self.word(offset)) }.store(value, order);
    }

    /// Stores two consecutive words of 4 bytes.
    #[inline]
    pub(super) fn store_element(&self, offset: usize, first: u32, second: u32) {
        let pair = self.word::<[u32; 2]>(offset).cast::<u32>();
        // SAFETY: as in `load16`; both are inside, as `word` checks.
        let words = unsafe { (AtomicU32::from_ptr(pair), AtomicU32::from_ptr(pair.add(1))) };
        words.0.store(first, Ordering::Relaxed);
        words.1.store(second, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn load64(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: as in `load16`.
        unsafe { AtomicU64::from_ptr(self.word(offset)) }.load(order)
    }

    #[inline]
    pub(super) fn store64(&self, offset: usize, value: u64, order: Ordering) {
        // SAFETY: as in `load16`.
        unsafe { AtomicU64::from_ptr(self.word(offset)) }.store(value, order);
    }

    /// The two words of 8 bytes at `offset`; the second one is loaded first, with order `order`.
    #[inline]
    pub(super) fn load_pair(&self, offset: usize, order: Ordering) -> [u64; 2] {
        let pair = self.word::<[u64; 2]>(offset).cast::<u64>();
        // SAFETY: as in `load16`; both are inside, as `word` checks.
        let (first, second) =
            unsafe { (AtomicU64::from_ptr(pair), AtomicU64::from_ptr(pair.add(1))) };
        let second = second.load(order);
        [first.load(Ordering::Relaxed), second]
    }

    #[inline]
    fn word<T>(&self, offset: usize) -> *mut T {
        const { assert!(align_of::<T>() <= ALIGN, "words are aligned") };
        let is_inside = self.len.checked_sub(size_of::<T>()).is_some_and(|last| offset <= last);
        assert!(is_inside && offset.is_multiple_of(align_of::<T>()), "a word of the ring");
        // SAFETY: inside, checked above.
        unsafe { self.base.as_ptr().add(offset) }.cast::<T>()
    }
}

/// Prefetches a cache line, for writing if `to_write`.
#[inline]
fn prefetch(at: *const u8, to_write: bool) {
    #[cfg(target_arch = "x86_64")]
    let to = at.addr();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch may be given any address. `prefetchw` is written in assembly because the
    // compiler has no intrinsic for it that works for every processor; a processor without it
    // ignores it.
    unsafe {
        if to_write {
            std::arch::asm!("prefetchw [{}]", in(reg) to, options(nomem, nostack, preserves_flags));
        } else {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _no_hint = (at, to_write);
}

/// A word at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned<T>(T);

/// Reads words of 8 bytes, and the rest, volatile, so that no byte is read twice.
///
/// # Safety
///
/// `N` bytes can be read at `from`.
#[inline]
unsafe fn read_words<const N: usize>(from: *const u8) -> [u8; N] {
    let mut bytes = [0; N];
    for (word, to) in bytes.chunks_mut(8).enumerate() {
        // SAFETY: as above; these need no alignment.
        unsafe {
            let from = from.add(8 * word);
            match to.len() {
                8 => to.copy_from_slice(&read::<Unaligned<u64>>(from).0.to_ne_bytes()),
                4 => to.copy_from_slice(&read::<Unaligned<u32>>(from).0.to_ne_bytes()),
                2 => to.copy_from_slice(&read::<Unaligned<u16>>(from).0.to_ne_bytes()),
                _ => (0..to.len()).for_each(|at| to[at] = read(from.add(at))),
            }
        }
    }
    bytes
}

/// # Safety
///
/// A `T` can be read at `from`; no alignment is needed.
#[inline]
unsafe fn read<T: Copy>(from: *const u8) -> T {
    // SAFETY: as above.
    unsafe { from.cast::<T>().read_volatile() }
}

/// Copies bytes, without a call for the lengths of most packets.
///
/// # Safety
///
/// `len` bytes can be read at `from` and written at `to`, and the ranges do not overlap.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if (32..=64).contains(&len) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
        // Two halves of 32 bytes, which may overlap each other. Everything is loaded into registers
        // before anything is stored.
        let places = [0, 16, len - 32, len - 16];
        // SAFETY: all four are inside; these need no alignment.
        unsafe {
            let words = places.map(|at| _mm_loadu_si128(from.add(at).cast::<__m128i>()));
            for (at, word) in places.into_iter().zip(words) {
                _mm_storeu_si128(to.add(at).cast::<__m128i>(), word);
            }
        }
        return;
    }
    // SAFETY: as above.
    unsafe { to.copy_from_nonoverlapping(from, len) };
}

const LINE_BYTES: usize = 64;

impl Drop for Mapping {
    fn drop(&mut self) {
        self._guarded.end();
        // SAFETY: ours, and no reference to it is left.
        let _unmapped = unsafe { munmap(self.whole.as_ptr().cast(), self.whole_len) };
    }
}

/// Refuses files whose page faults could wait forever for another process: those of file systems in
/// user space or behind a network, and devices.
fn check_is_memory(file: impl AsFd, mode: u32) -> io::Result<()> {
    let is_file = FileType::from_raw_mode(mode) == FileType::RegularFile;
    if is_file && MEMORY_MAGICS.contains(&fstatfs(file)?.f_type) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "a guest's memory must be a memfd, or a file in a tmpfs, a hugetlbfs, or on a disk of this \
         machine (ext4, XFS, Btrfs)",
    ))
}

/// tmpfs, hugetlbfs, ramfs, ext4, XFS, Btrfs (`<linux/magic.h>`).
const MEMORY_MAGICS: [FsWord; 6] =
    [0x0102_1994, 0x9584_58f6, 0x8584_58f6, 0xef53, 0x5846_5342, 0x9123_683e];
