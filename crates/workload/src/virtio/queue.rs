//! A queue from its driver's side: buffers are made available and come back in order.

use std::sync::Arc;

use super::{GuestMemory, USER_BASE, guest_address};

/// Form of a buffer's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One descriptor.
    Single,
    /// A separate descriptor for the header.
    Chained,
    /// As `Chained`, in an indirect table.
    Indirect,
}

/// Properties of a queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueShape {
    /// Number of slots, a power of two.
    pub size: u16,
    /// Whether it is a packed ring.
    pub packed: bool,
    /// Form of the buffers' descriptors.
    pub layout: Layout,
    /// Size of each buffer, in bytes.
    pub buffer: u32,
    /// Whether the device writes to the buffers.
    pub to_guest: bool,
}

/// One queue, in memory that begins with its ring, followed by its buffers.
#[derive(Debug)]
pub struct Queue {
    /// Memory of the guest.
    pub memory: Arc<GuestMemory>,
    /// Properties of the queue.
    pub shape: QueueShape,
    base: usize,
    /// Number of buffers made available so far, and of those that came back.
    posted: u64,
    reaped: u64,
    /// Length of each buffer's header.
    header: u32,
}

impl Queue {
    /// Number of bytes that a queue takes.
    pub fn bytes(shape: &QueueShape) -> usize {
        BUFFERS + usize::from(shape.size) * shape.buffer as usize
    }

    /// A new queue from `base` on, whose buffers begin with headers of `header` bytes.
    pub fn new(memory: &Arc<GuestMemory>, base: usize, shape: QueueShape, header: u32) -> Queue {
        let queue = Queue { memory: Arc::clone(memory), shape, base, posted: 0, reaped: 0, header };
        memory.write(base, &vec![0; BUFFERS]);
        if !shape.packed {
            let heads = if shape.layout == Layout::Chained { 2 } else { 1 };
            for place in 0..usize::from(shape.size) {
                let head = place % queue.capacity() * heads;
                memory.store16(queue.available() + 4 + 2 * place, head as u16);
            }
        }
        // No interrupts: the owner of the queue polls it.
        match shape.packed {
            true => memory.store16(queue.available() + 2, 1),
            false => memory.store16(queue.available(), 1),
        }
        queue
    }

    /// Addresses of its three parts in the front end: descriptors, the driver's area, the device's
    /// area.
    pub fn addresses(&self) -> [u64; 3] {
        [self.base, self.available(), self.used()].map(|at| USER_BASE + at as u64)
    }

    /// Offsets of the same parts in the guest's memory.
    pub fn places(&self) -> [usize; 3] {
        [self.base, self.available(), self.used()]
    }

    /// Size in bytes of the ring and all that belongs to it, from the first of [`Queue::places`]
    /// on.
    pub const RING_BYTES: usize = BUFFERS;

    fn available(&self) -> usize {
        self.base + AVAILABLE
    }

    fn used(&self) -> usize {
        self.base + USED
    }

    fn table(&self, buffer: usize) -> usize {
        self.base + TABLES + 32 * buffer
    }

    /// Offset of a buffer.
    pub fn buffer(&self, buffer: usize) -> usize {
        self.base + BUFFERS + buffer * self.shape.buffer as usize
    }

    /// Number of buffers.
    pub fn capacity(&self) -> usize {
        let slots = if self.shape.layout == Layout::Chained { 2 } else { 1 };
        usize::from(self.shape.size) / slots
    }

    /// Number of buffers that can be made available now.
    pub fn room(&self) -> usize {
        self.capacity() - (self.posted - self.reaped) as usize
    }

    /// Number of buffers that did not come back yet.
    pub fn outstanding(&self) -> u64 {
        self.posted - self.reaped
    }

    /// Number of the buffer that is made available next.
    pub fn next_buffer(&self) -> usize {
        (self.posted % self.capacity() as u64) as usize
    }

    /// Makes the first `len` bytes of the next buffer available. In a split ring the device sees it
    /// after [`Queue::publish`].
    #[inline]
    pub fn post(&mut self, len: u32) {
        self.post_at(self.buffer(self.next_buffer()), len);
    }

    /// As [`Queue::post`], with `len` bytes from anywhere in the guest's memory: for buffers that
    /// their driver moves from queue to queue.
    #[inline]
    pub fn post_at(&mut self, at: usize, len: u32) {
        assert!(self.room() > 0, "there is room");
        let (buffer, write) = (self.next_buffer(), if self.shape.to_guest { WRITE } else { 0 });
        let at = guest_address(at);
        let rest = (at + u64::from(self.header), len - self.header);
        let slot = buffer * if self.shape.layout == Layout::Chained { 2 } else { 1 };
        let lap = (self.posted / self.capacity() as u64).is_multiple_of(2);
        let place = self.base + 16 * slot;
        match self.shape.layout {
            Layout::Single => self.describe(place, (at, len), write, buffer, lap),
            Layout::Indirect => {
                let table = self.table(buffer);
                let is_packed = self.shape.packed;
                let next = if is_packed { 0 } else { NEXT };
                self.put(table, (at, self.header), write | next, 1);
                self.put(table + 16, rest, write, 0);
                self.describe(place, (guest_address(table), 32), INDIRECT, buffer, lap);
            }
            Layout::Chained => {
                let number = if self.shape.packed { buffer } else { slot + 1 };
                self.describe(place + 16, rest, write, buffer, lap);
                // Last, because this makes both available.
                self.describe(place, (at, self.header), write | NEXT, number, lap);
            }
        }
        self.posted += 1;
    }

    /// As [`Queue::post`], even if there is no room: earlier buffers count as returned.
    pub fn post_again(&mut self, len: u32) {
        self.reaped = self.reaped.max((self.posted + 1).saturating_sub(self.capacity() as u64));
        self.post(len);
    }

    /// Writes a descriptor of the ring.
    #[inline]
    fn describe(&self, at: usize, of: (u64, u32), flags: u16, number: usize, lap: bool) {
        let lap = if lap { AVAIL } else { USED_FLAG };
        let flags = if self.shape.packed { flags | lap } else { flags };
        self.put(at, of, flags, number as u16);
    }

    #[inline]
    fn put(&self, at: usize, (addr, len): (u64, u32), flags: u16, number: u16) {
        let (low, high) = if self.shape.packed { (number, flags) } else { (flags, number) };
        self.memory.store64(at, addr);
        let rest = u64::from(high) << 48 | u64::from(low) << 32 | u64::from(len);
        self.memory.store64(at + 8, rest);
    }

    /// Makes all posted buffers visible to the device.
    #[inline]
    pub fn publish(&self) {
        if !self.shape.packed {
            self.memory.store16(self.available() + 2, self.posted as u16);
        }
    }

    /// A buffer that came back, and the number of bytes that the device wrote into it.
    ///
    /// # Panics
    ///
    /// Panics if it is not the buffer that was due next.
    #[inline]
    pub fn reap(&mut self) -> Option<(usize, u32)> {
        let buffer = (self.reaped % self.capacity() as u64) as usize;
        let slots = if self.shape.layout == Layout::Chained { 2 } else { 1 };
        let len = if self.shape.packed {
            let rest = self.memory.load64(self.base + 16 * buffer * slots + 8);
            let lap = (self.reaped / self.capacity() as u64).is_multiple_of(2);
            let flags = (rest >> 48) as u16;
            if (flags & AVAIL != 0) != lap || (flags & USED_FLAG != 0) != lap {
                return None;
            }
            assert_eq!((rest >> 32) as u16, buffer as u16, "buffers come back in order");
            rest as u32
        } else {
            if self.memory.load16(self.used() + 2) == self.reaped as u16 {
                return None;
            }
            // The used ring has a slot for each descriptor, no matter how many a buffer takes.
            let place = self.reaped as usize % usize::from(self.shape.size);
            let at = self.used() + 4 + 8 * place;
            let id = self.memory.load32(at);
            assert_eq!(id, (buffer * slots) as u32, "buffers come back in order");
            self.memory.load32(at + 4)
        };
        self.reaped += 1;
        Some((buffer, len))
    }

    /// Whether the device asks to be kicked. `has_event_index` is the negotiated feature.
    pub fn wants_kick(&self, has_event_index: bool) -> bool {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if self.shape.packed {
            return self.memory.load16(self.used() + 2) != 1;
        }
        if !has_event_index {
            return self.memory.load16(self.used()) & 1 == 0;
        }
        let event = self.memory.load16(self.used() + 4 + 8 * usize::from(self.shape.size));
        // If the event index is in the range that was made available, it kicks: too many kicks do
        // no harm.
        let posted = self.posted as u16;
        posted.wrapping_sub(event).wrapping_sub(1) < self.capacity() as u16
    }
}

/// Offsets of the parts, for rings of up to 1024 slots.
const AVAILABLE: usize = 16 << 10;
const USED: usize = 20 << 10;
const TABLES: usize = 32 << 10;
const BUFFERS: usize = 64 << 10;
/// Largest number of slots of a queue.
pub const SIZE_MAX: u16 = 1024;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED_FLAG: u16 = 1 << 15;
