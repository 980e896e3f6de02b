//! Rings in mapped memory.

#![expect(unsafe_code, reason = "memory shared with others")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;

use crate::ends::{Shared, Word};
use crate::entry::Entry;

/// The memory of one ring.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the shared memory is accessed by atomics only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the ring of `entries` entries of type `T` that begins at `page_offset` of a socket, or
    /// of a file that is that long and will stay so.
    pub fn map<T: Entry>(
        fd: BorrowedFd<'_>,
        page_offset: u64,
        at: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Arc<Memory>> {
        let len = Memory::bytes::<T>(at, entries)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let flags = flags | MapFlags::POPULATE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, fd, page_offset) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Arc::new(Memory { base, len }))
    }

    /// Bytes of a ring, if its offsets are valid.
    pub fn bytes<T: Entry>(at: &XdpRingOffset, entries: u32) -> io::Result<usize> {
        let is_aligned = at.desc.is_multiple_of(8) && at.desc < 1 << 20;
        if !is_aligned || !entries.is_power_of_two() {
            return Err(io::Error::other("ring offsets that make no sense"));
        }
        Ok(at.desc as usize + entries as usize * T::WORDS * 8)
    }

    /// Address of its first byte, for use from C.
    pub fn addr(&self) -> NonNull<u8> {
        self.base
    }

    /// The atomic number at an offset.
    fn word(&self, offset: u64) -> io::Result<NonNull<AtomicU32>> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if !offset.is_multiple_of(4) || offset.saturating_add(4) > self.len {
            return Err(io::Error::other("ring offsets that lie outside of the ring"));
        }
        // SAFETY: in bounds, checked above; the mapping is aligned to a page.
        Ok(unsafe { self.base.add(offset) }.cast())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping; rings that point into it hold references to it.
        let _unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A ring in mapped memory.
#[derive(Debug)]
pub struct Mapped<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<AtomicU64>,
    size: u32,
    /// Keeps what the pointers point into.
    _memory: Arc<Memory>,
    _of: std::marker::PhantomData<fn() -> T>,
}

// SAFETY: the pointers are into memory that the ring keeps alive, and all access is atomic.
unsafe impl<T: Entry> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Entry> Sync for Mapped<T> {}

impl<T: Entry> Mapped<T> {
    /// The ring of `size` entries in the memory.
    pub fn new(memory: &Arc<Memory>, at: &XdpRingOffset, size: u32) -> io::Result<Mapped<T>> {
        if Memory::bytes::<T>(at, size)? > memory.len {
            return Err(io::Error::other("a ring longer than its memory"));
        }
        // SAFETY: in bounds, checked above.
        let entries = unsafe { memory.base.add(at.desc as usize) }.cast();
        Ok(Mapped {
            producer: memory.word(at.producer)?,
            consumer: memory.word(at.consumer)?,
            flags: at.flags.map(|flags| memory.word(flags)).transpose()?,
            entries,
            size,
            _memory: Arc::clone(memory),
            _of: std::marker::PhantomData,
        })
    }

    #[inline]
    fn words(&self, index: u32) -> &[AtomicU64] {
        let at = (index & (self.size - 1)) as usize * T::WORDS;
        // SAFETY: reduced to the ring's size, which fits the memory that `self` keeps (`new`); the
        // mapping is aligned to a page and `desc` to a word; all access is atomic.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr().add(at), T::WORDS) }
    }
}

impl<T: Entry> Shared for Mapped<T> {
    type Entry = T;
    type Word = AtomicU32;

    #[inline]
    fn size(&self) -> u32 {
        self.size
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the memory that `self` keeps, aligned (`Memory::word`); all access to it
        // is atomic.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn flags(&self) -> Option<&AtomicU32> {
        // SAFETY: as in `producer`.
        self.flags.map(|flags| unsafe { flags.as_ref() })
    }

    #[inline]
    fn read(&self, index: u32) -> T {
        match self.words(index) {
            [first] => T::from_words([first.load(Ordering::Relaxed), 0]),
            [first, second, ..] => {
                T::from_words([first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)])
            }
            [] => T::from_words([0, 0]),
        }
    }

    #[inline]
    fn write(&self, index: u32, entry: T) {
        for (word, value) in self.words(index).iter().zip(entry.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Word for AtomicU32 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u32 {
        self.load(ordering)
    }

    #[inline]
    fn store(&self, value: u32, ordering: Ordering) {
        self.store(value, ordering);
    }

    /// A locked instruction is a full fence, and takes a third of the time of the `mfence` that
    /// compilers put here (the kernel's `smp_mb`).
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn fence() {
        // SAFETY: the word on top of the stack stays what it is. The compiler takes it for an
        // access to all memory, and moves none across it.
        unsafe { std::arch::asm!("lock or dword ptr [rsp], 0") };
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    fn fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}
