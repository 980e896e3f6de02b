//! The memory of rings that programs write records to, and the protocol by which they do.
//!
//! The layout is that of the kernel's `kernel/bpf/ringbuf.c`: a page with the consumer's position,
//! a page with the producer's, then the data, mapped twice in a row. A record is a header (length
//! with two flag bits, then a page offset) and the bytes, padded to 8.
//!
//! No lock is taken where the kernel takes one. A producer claims room by moving a third position,
//! writes the header of what it claimed, marked busy, and moves the producer's position over it
//! when all claims before it have been moved over. So the consumer never sees room without a
//! header, and producers wait for each other for no longer than it takes to write one. The consumer
//! is not woken, because it polls, so that a producer's only locked instruction is the one that
//! claims room.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use towpath_bpf::Errno;

use crate::access::{Access, Span};
use crate::memory::{PAGE_BYTES, Region};
use crate::shared::Shared;
use crate::sync::{AtomicU32, AtomicU64, Ordering, spin_loop, yield_now};

/// In a record's length: not committed yet (`BPF_RINGBUF_BUSY_BIT`).
pub(crate) const BUSY: u32 = 1 << 31;
/// In a record's length: to be skipped (`BPF_RINGBUF_DISCARD_BIT`).
pub(crate) const DISCARD: u32 = 1 << 30;
/// Bytes of a record before its data (`BPF_RINGBUF_HDR_SZ`).
pub(crate) const RECORD_HEADER_BYTES: usize = 8;
/// Most bytes of one record (`RINGBUF_MAX_RECORD_SZ`).
const RECORD_BYTES_MAX: u64 = u32::MAX as u64 / 4;

/// Bytes a record of `size` bytes takes in the ring.
pub(crate) fn record_bytes(size: u32) -> u64 {
    (u64::from(size) + RECORD_HEADER_BYTES as u64).next_multiple_of(8)
}

/// The memory of a ring: positions count up for ever, the data are found modulo the size.
#[derive(Debug)]
pub(crate) struct Ring {
    region: Region,
    /// Bytes of data, a power of two.
    size: usize,
    /// End of the room that producers have claimed: the producer's position, or a later one.
    claimed: Shared<AtomicU64>,
}

/// The positions are a page each, so that users can map one to write and one to read. Loom has no
/// memory for whole pages.
const POSITION_BYTES: usize = if cfg!(loom) { 8 } else { PAGE_BYTES };
/// Offset of the data: behind the consumer's and the producer's page.
const DATA_OFFSET: usize = 2 * POSITION_BYTES;

impl Ring {
    pub(crate) fn new(size: usize) -> Result<Self, Errno> {
        let claimed = Shared::new(AtomicU64::new(0));
        Ok(Ring { region: Region::with_mirror(DATA_OFFSET, size)?, size, claimed })
    }

    /// Makes a record of `size` bytes, which only its producer sees until it is committed: its
    /// position; `None` when there is no room.
    #[inline]
    pub(crate) fn reserve(&self, size: u64) -> Option<u64> {
        if size > RECORD_BYTES_MAX {
            return None;
        }
        let bytes = record_bytes(size as u32);
        let mut start = self.claimed.read().load(Ordering::Relaxed);
        loop {
            let consumed = self.consumer().load(Ordering::Acquire);
            // As in the kernel, records may fill the ring but for its last byte.
            if (start + bytes).wrapping_sub(consumed) >= self.size() {
                return None;
            }
            let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.claimed.write().compare_exchange_weak(start, start + bytes, order, failed) {
                Ok(_) => break,
                Err(now) => start = now,
            }
        }
        let [length, page_offset] = self.header(start);
        length.store(size as u32 | BUSY, Ordering::Relaxed);
        page_offset.store(self.page_number(start), Ordering::Relaxed);
        self.wait_for_turn(start);
        self.producer().store(start + bytes, Ordering::Release);
        Some(start)
    }

    /// Waits until all earlier claims have a header. Their writes are visible then, also to every
    /// reader of the next write.
    #[inline]
    fn wait_for_turn(&self, start: u64) {
        let mut rounds = 0;
        while self.producer().load(Ordering::Acquire) != start {
            rounds += 1;
            // The earlier writer was interrupted.
            if rounds % SPIN_ROUNDS == 0 { yield_now() } else { spin_loop() }
        }
    }

    /// Gives a reserved record to the consumer; `EINVAL` when it isn't one.
    #[inline]
    pub(crate) fn commit(&self, position: u64, discard: u32) -> Result<(), Errno> {
        let [length, _] = self.header(position);
        // Only the writer that reserved the record writes it.
        let old = length.load(Ordering::Relaxed);
        if old & BUSY == 0 {
            return Err(Errno::EINVAL);
        }
        length.store((old ^ BUSY) | discard, Ordering::Release);
        Ok(())
    }

    /// Passes committed records to `visit`, oldest first, until it breaks, the ring is empty or a
    /// record isn't committed yet; returns their number. Only one thread at a time may do this.
    pub(crate) fn consume(&self, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> usize {
        let mut record = Vec::new();
        let mut shown = 0;
        let mut position = self.consumer().load(Ordering::Relaxed);
        while let Some(length) = self.committed(position) {
            let size = length & !DISCARD;
            let mut flow = ControlFlow::Continue(());
            if length & DISCARD == 0 {
                record.resize(size as usize, 0);
                self.read(position, &mut record);
                shown += 1;
                flow = visit(&record);
            }
            position += record_bytes(size);
            self.consumer().store(position, Ordering::Release);
            if flow.is_break() {
                break;
            }
        }
        shown
    }

    /// Takes the oldest record, if it is committed. Only one thread at a time may do this.
    pub(crate) fn take_oldest(&self) -> Option<Vec<u8>> {
        let mut oldest = None;
        self.consume(|record| {
            oldest = Some(record.to_vec());
            ControlFlow::Break(())
        });
        oldest
    }

    /// The length word of the record at a position, if there is one and it is committed.
    fn committed(&self, position: u64) -> Option<u32> {
        if position >= self.producer().load(Ordering::Acquire) {
            return None;
        }
        let length = self.header(position)[0].load(Ordering::Acquire);
        (length & BUSY == 0).then_some(length)
    }

    /// Discards all records, including those that are committed later.
    pub(crate) fn skip_all(&self) {
        self.consume(|_record| ControlFlow::Continue(()));
    }

    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size as u64
    }

    #[inline]
    pub(crate) fn consumer(&self) -> &AtomicU64 {
        self.region.word(0)
    }

    #[inline]
    pub(crate) fn producer(&self) -> &AtomicU64 {
        self.region.word(POSITION_BYTES)
    }

    /// The words in front of a record: its length, and its place in pages from the start of the
    /// ring.
    #[inline]
    pub(crate) fn header(&self, position: u64) -> &[AtomicU32; 2] {
        self.region.halves(self.offset(position))
    }

    #[inline]
    pub(crate) fn page_number(&self, position: u64) -> u32 {
        (self.offset(position) / PAGE_BYTES) as u32
    }

    /// Address of the data of the record at a position.
    #[inline]
    pub(crate) fn data_at(&self, position: u64) -> NonNull<u8> {
        self.region.at(self.offset(position) + RECORD_HEADER_BYTES)
    }

    /// Position, modulo the size, of the record whose data start at an address.
    #[inline]
    pub(crate) fn position_of(&self, sample: NonNull<u8>) -> Option<u64> {
        let offset = (sample.as_ptr() as u64).checked_sub(self.region.base())?;
        let data = offset.checked_sub((DATA_OFFSET + RECORD_HEADER_BYTES) as u64)?;
        (data < self.size() && data.is_multiple_of(8)).then_some(data)
    }

    /// Writes a part of a record's data, from `at` on.
    #[inline]
    pub(crate) fn write(&self, position: u64, at: usize, data: &[u8]) {
        self.region.write(self.offset(position) + RECORD_HEADER_BYTES + at, data);
    }

    pub(crate) fn read(&self, position: u64, out: &mut [u8]) {
        self.region.read(self.offset(position) + RECORD_HEADER_BYTES, out);
    }

    /// Both images of the data.
    pub(crate) fn span(&self) -> Span {
        let bytes = 2 * self.size();
        Span::values(self.region.base() + DATA_OFFSET as u64, bytes, bytes, bytes, Access::Record)
    }

    /// A multiple of 8, as positions are but for those that users make up.
    #[inline]
    fn offset(&self, position: u64) -> usize {
        DATA_OFFSET + (position as usize & (self.size - 1) & !7)
    }
}

/// Rounds of waiting before other threads get the processor.
const SPIN_ROUNDS: u32 = if cfg!(loom) { 1 } else { 64 };

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two producers and the consumer, in a ring with room for one record: it is written over.
    #[test]
    fn records_arrive_whole_and_once() {
        loom::model(|| {
            let ring = Arc::new(Ring::new(32).unwrap());
            let produce = |value: u64| {
                let ring = Arc::clone(&ring);
                move || {
                    let Some(position) = ring.reserve(8) else { return false };
                    ring.write(position, 0, &value.to_ne_bytes());
                    ring.commit(position, 0).unwrap();
                    true
                }
            };
            let (first, second) = (thread::spawn(produce(1)), thread::spawn(produce(2)));
            let mut seen = Vec::new();
            let mut take = || {
                ring.consume(|record| {
                    seen.push(u64::from_ne_bytes(record.try_into().unwrap()));
                    ControlFlow::Continue(())
                })
            };
            take();
            let sent = [first.join().unwrap(), second.join().unwrap()];
            take();
            seen.sort_unstable();
            let wanted: Vec<u64> = (1..).zip(sent).filter(|(_, s)| *s).map(|(v, _)| v).collect();
            assert_eq!(seen, wanted);
            assert!(!wanted.is_empty(), "there was room for one");
        });
    }
}
