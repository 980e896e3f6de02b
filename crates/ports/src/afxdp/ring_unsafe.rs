//! The four rings of an AF_XDP socket: single producer, single consumer, in memory shared with the
//! kernel (`net/xdp/xsk_queue.h`).
//!
//! Both indices run freely; an entry's place is its index modulo the ring's size, a power of two.
//! The producer writes entries, then its index with release order; the consumer reads that with
//! acquire order, then the entries, then writes its own index with release order. What the other
//! side's index says is believed only as far as the ring is long.

#![expect(unsafe_code, reason = "memory shared with the kernel")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;

/// `struct xdp_desc`: a part of a packet in the rx or tx ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(super) struct Desc {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}

const _: () = assert!(size_of::<Desc>() == 16);

/// What rings consist of: plain numbers, for which any bits are a value.
pub(super) trait Entry: Copy + Send {}
impl Entry for u64 {}
impl Entry for Desc {}

/// The memory of one ring.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: shared memory, touched by atomics and by one producer and one consumer.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps a socket's ring of `entries` entries of type `T`, which begins at `page_offset`.
    pub(super) fn of_socket<T: Entry>(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        at: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Arc<Memory>> {
        let len = ring_bytes::<T>(at, entries)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let flags = flags | MapFlags::POPULATE;
        // SAFETY: a new mapping, wherever the kernel likes.
        let base =
            unsafe { mmap(std::ptr::null_mut(), len, protection, flags, socket, page_offset) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Arc::new(Memory { base, len }))
    }

    /// The atomic number at an offset.
    fn word(&self, offset: u64) -> io::Result<NonNull<AtomicU32>> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if !offset.is_multiple_of(4) || offset.saturating_add(4) > self.len {
            return Err(io::Error::other("the kernel's ring offsets lie outside of the ring"));
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

/// Bytes of a ring, if its numbers make sense.
fn ring_bytes<T: Entry>(at: &XdpRingOffset, entries: u32) -> io::Result<usize> {
    let is_aligned = at.desc.is_multiple_of(align_of::<T>() as u64) && at.desc < 1 << 20;
    if !is_aligned || !entries.is_power_of_two() {
        return Err(io::Error::other("the kernel's ring offsets make no sense"));
    }
    Ok(at.desc as usize + entries as usize * size_of::<T>())
}

/// What both ends of a ring have.
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    size: u32,
    /// Keeps what the pointers point into.
    _memory: Arc<Memory>,
}

// SAFETY: the pointers are into memory that the ring keeps alive; `Producer` and `Consumer` are the
// only one of their end, and need `&mut` to touch entries.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    fn new(memory: &Arc<Memory>, at: &XdpRingOffset, size: u32) -> io::Result<Ring<T>> {
        if ring_bytes::<T>(at, size)? > memory.len {
            return Err(io::Error::other("a ring longer than its memory"));
        }
        // SAFETY: in bounds, checked above.
        let entries = unsafe { memory.base.add(at.desc as usize) }.cast();
        Ok(Ring {
            producer: memory.word(at.producer)?,
            consumer: memory.word(at.consumer)?,
            flags: at.flags.map(|flags| memory.word(flags)).transpose()?,
            entries,
            size,
            _memory: Arc::clone(memory),
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the memory that `self` keeps, aligned (`Memory::word`); all access to it
        // is atomic.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: reduced to the ring's size, which fits the memory (`Ring::new`).
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

/// Our end of a ring that the kernel consumes: fill and tx.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The next entry to write.
    next: u32,
    /// The kernel's index as last seen.
    taken: u32,
}

impl<T: Entry> Producer<T> {
    pub(super) fn new(memory: &Arc<Memory>, at: &XdpRingOffset, size: u32) -> io::Result<Self> {
        let ring = Ring::new(memory, at, size)?;
        let next = ring.producer().load(Ordering::Relaxed);
        let taken = ring.consumer().load(Ordering::Acquire);
        Ok(Producer { ring, next, taken })
    }

    /// Entries that can be written now. Looks for what the kernel took when fewer than `wanted`
    /// are known to be free.
    #[inline]
    pub(super) fn free(&mut self, wanted: u32) -> u32 {
        if self.ring.size - self.next.wrapping_sub(self.taken) < wanted {
            let taken = self.ring.consumer().load(Ordering::Acquire);
            // An index outside of the ring is nonsense: as if nothing had been taken.
            if self.next.wrapping_sub(taken) <= self.ring.size {
                self.taken = taken;
            }
        }
        self.ring.size - self.next.wrapping_sub(self.taken)
    }

    /// Writes an entry; the kernel sees it after [`Producer::submit`].
    ///
    /// # Panics
    ///
    /// When none is free.
    #[inline]
    pub(super) fn write(&mut self, entry: T) {
        assert!(self.next.wrapping_sub(self.taken) < self.ring.size, "a free entry");
        // SAFETY: in bounds, and ours until the index is published: the kernel took what was there.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the kernel what was written.
    #[inline]
    pub(super) fn submit(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Entries that the kernel has not taken yet.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        let taken = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(taken).min(self.ring.size)
    }

    /// Whether the kernel wants a system call before it goes on (`XDP_RING_NEED_WAKEUP`).
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        let Some(flags) = self.ring.flags else { return true };
        // Either the kernel sees what was submitted, or we see that it sleeps.
        fence(Ordering::SeqCst);
        // SAFETY: as in `Ring::producer`.
        unsafe { flags.as_ref() }.load(Ordering::Relaxed) & 1 != 0
    }
}

/// Our end of a ring that the kernel produces: rx and completion.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The next entry to read.
    next: u32,
    /// The kernel's index as last seen.
    written: u32,
}

impl<T: Entry> Consumer<T> {
    pub(super) fn new(memory: &Arc<Memory>, at: &XdpRingOffset, size: u32) -> io::Result<Self> {
        let ring = Ring::new(memory, at, size)?;
        let next = ring.consumer().load(Ordering::Relaxed);
        Ok(Consumer { ring, next, written: next })
    }

    /// Entries that can be read now. Looks for new ones when fewer than `wanted` are known.
    #[inline]
    pub(super) fn available(&mut self, wanted: u32) -> u32 {
        if self.written.wrapping_sub(self.next) < wanted {
            let written = self.ring.producer().load(Ordering::Acquire);
            // An index outside of the ring is nonsense: as if nothing had been written.
            if written.wrapping_sub(self.next) <= self.ring.size {
                self.written = written;
            }
        }
        self.written.wrapping_sub(self.next)
    }

    /// Reads an entry.
    ///
    /// # Panics
    ///
    /// When none is available.
    #[inline]
    pub(super) fn read(&mut self) -> T {
        assert!(self.written != self.next, "an available entry");
        // SAFETY: in bounds, written by the kernel before its index (acquired in `available`), and
        // not written again before ours says so; any bits are a value.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        entry
    }

    /// Gives the kernel back the entries that were read.
    #[inline]
    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "ring_tests_unsafe.rs"]
mod tests;
