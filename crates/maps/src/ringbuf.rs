//! RINGBUF: records from programs to one consumer, in the order of reservation.
//!
//! Kernel counterpart: `kernel/bpf/ringbuf.c`, whose memory layout this is: a page with the
//! consumer's position, a page with the producer's, then the data, mapped twice in a row. A record
//! is a header (length with two flag bits, then a page offset) and the bytes, padded to 8.

use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use towpath_bpf::{Errno, MapDef};

use crate::access::{Access, Span};
use crate::flags::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use crate::memory::{PAGE_BYTES, Region};
use crate::store::Store;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::user::Value;

/// In a record's length: not committed yet (`BPF_RINGBUF_BUSY_BIT`).
pub(crate) const BUSY: u32 = 1 << 31;
/// In a record's length: to be skipped (`BPF_RINGBUF_DISCARD_BIT`).
pub(crate) const DISCARD: u32 = 1 << 30;
/// Bytes of a record before its data (`BPF_RINGBUF_HDR_SZ`).
pub(crate) const RECORD_HEADER_BYTES: usize = 8;
/// Most bytes of one record (`RINGBUF_MAX_RECORD_SZ`).
const RECORD_BYTES_MAX: u64 = u32::MAX as u64 / 4;

/// What `bpf_ringbuf_query` is asked.
const BPF_RB_AVAIL_DATA: u64 = 0;
const BPF_RB_RING_SIZE: u64 = 1;
const BPF_RB_CONS_POS: u64 = 2;
const BPF_RB_PROD_POS: u64 = 3;

/// A ring and its memory.
#[derive(Debug)]
#[doc(alias = "BPF_MAP_TYPE_RINGBUF")]
pub struct Ringbuf {
    ring: Ring,
    /// Position up to which all records are committed; held while a record is reserved.
    pending: Mutex<u64>,
    /// Held by the consumer.
    consumer: Mutex<()>,
    /// How often a commit asked to wake the consumer.
    wakeups: AtomicU64,
}

impl Ringbuf {
    pub(crate) fn new(def: &MapDef) -> Result<Self, Errno> {
        Ok(Ringbuf {
            ring: Ring::new(def.max_entries as usize)?,
            pending: Mutex::default(),
            consumer: Mutex::default(),
            wakeups: AtomicU64::new(0),
        })
    }

    /// `bpf_ringbuf_reserve` (its flags are 0): where the record's data go; `None` when there is no
    /// room. The record must be submitted or discarded.
    pub fn reserve(&self, size: u64) -> Option<NonNull<u8>> {
        if size > RECORD_BYTES_MAX {
            return None;
        }
        let bytes = record_bytes(size as u32);
        if bytes > self.ring.size() {
            return None;
        }
        let consumed = self.ring.consumer().load(Ordering::Acquire);
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let start = self.ring.producer().load(Ordering::Relaxed);
        while *pending < start {
            let length = self.ring.length(*pending).load(Ordering::Relaxed);
            if length & BUSY != 0 {
                break;
            }
            *pending += record_bytes(length & !DISCARD);
        }
        let end = start + bytes;
        // As the kernel, a record may fill the ring but for its last byte.
        if end - consumed >= self.ring.size() || end - *pending >= self.ring.size() {
            return None;
        }
        self.ring.length(start).store(size as u32 | BUSY, Ordering::Relaxed);
        self.ring.page_offset(start).store(self.ring.page_number(start), Ordering::Relaxed);
        self.ring.producer().store(end, Ordering::Release);
        Some(self.ring.data_at(start))
    }

    /// `bpf_ringbuf_submit`: hands the record to the consumer. `sample` is what `reserve` gave;
    /// anything else is refused.
    pub fn submit(&self, sample: NonNull<u8>, flags: u64) -> Result<(), Errno> {
        self.commit(sample, flags, 0)
    }

    /// `bpf_ringbuf_discard`: the consumer will skip the record.
    pub fn discard(&self, sample: NonNull<u8>, flags: u64) -> Result<(), Errno> {
        self.commit(sample, flags, DISCARD)
    }

    /// `bpf_ringbuf_output`: reserves, copies and submits.
    pub fn output(&self, data: &[u8], flags: u64) -> Result<(), Errno> {
        if flags & !(BPF_RB_NO_WAKEUP | BPF_RB_FORCE_WAKEUP) != 0 {
            return Err(Errno::EINVAL);
        }
        let sample = self.reserve(data.len() as u64).ok_or(Errno::EAGAIN)?;
        let position = self.ring.position_of(sample).ok_or(Errno::EINVAL)?;
        self.ring.write(position, data);
        self.submit(sample, flags)
    }

    /// `bpf_ringbuf_query`
    pub fn query(&self, what: u64) -> u64 {
        let consumed = self.ring.consumer().load(Ordering::Acquire);
        let produced = self.ring.producer().load(Ordering::Acquire);
        match what {
            BPF_RB_AVAIL_DATA => produced - consumed,
            BPF_RB_RING_SIZE => self.ring.size(),
            BPF_RB_CONS_POS => consumed,
            BPF_RB_PROD_POS => produced,
            _ => 0,
        }
    }

    /// Shows committed records to `visit`, oldest first, until it breaks, the ring is empty or a
    /// record isn't committed yet; gives the number shown. One consumer works at a time.
    pub fn consume(&self, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> usize {
        let _only = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = Vec::new();
        let mut shown = 0;
        let mut position = self.ring.consumer().load(Ordering::Relaxed);
        while position < self.ring.producer().load(Ordering::Acquire) {
            let length = self.ring.length(position).load(Ordering::Acquire);
            if length & BUSY != 0 {
                break;
            }
            let size = length & !DISCARD;
            let mut flow = ControlFlow::Continue(());
            if length & DISCARD == 0 {
                record.resize(size as usize, 0);
                self.ring.read(position, &mut record);
                shown += 1;
                flow = visit(&record);
            }
            position += record_bytes(size);
            self.ring.consumer().store(position, Ordering::Release);
            if flow.is_break() {
                break;
            }
        }
        shown
    }

    /// How often a commit asked to wake the consumer: a changed number is what epoll would tell.
    pub fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Acquire)
    }

    fn commit(&self, sample: NonNull<u8>, flags: u64, discard: u32) -> Result<(), Errno> {
        let record = self.ring.position_of(sample).ok_or(Errno::EINVAL)?;
        let length = self.ring.length(record);
        let old = length.load(Ordering::Relaxed);
        if old & BUSY == 0 {
            return Err(Errno::EINVAL);
        }
        length.swap((old ^ BUSY) | discard, Ordering::AcqRel);
        let consumed = self.ring.consumer().load(Ordering::Acquire) % self.ring.size();
        let wake = flags & BPF_RB_FORCE_WAKEUP != 0
            || (consumed == record % self.ring.size() && flags & BPF_RB_NO_WAKEUP == 0);
        if wake {
            self.wakeups.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl Store for Ringbuf {
    fn spans(&self) -> Vec<Span> {
        vec![self.ring.span()]
    }

    fn update(&self, _worker: usize, _key: &[u8], _value: &[u8], _flags: u64) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn delete(&self, _worker: usize, _key: &[u8]) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn read(&self, _key: &[u8], _locked: bool) -> Result<Value, Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn next_key(&self, _key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        Err(Errno::ENOTSUPP)
    }
}

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
}

/// Where the data start: behind the consumer's and the producer's page.
const DATA_OFFSET: usize = 2 * PAGE_BYTES;

impl Ring {
    pub(crate) fn new(size: usize) -> Result<Self, Errno> {
        Ok(Ring { region: Region::with_mirror(DATA_OFFSET, size)?, size })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size as u64
    }

    pub(crate) fn consumer(&self) -> &AtomicU64 {
        self.region.word(0)
    }

    pub(crate) fn producer(&self) -> &AtomicU64 {
        self.region.word(PAGE_BYTES)
    }

    /// The length word of the record at a position.
    pub(crate) fn length(&self, position: u64) -> &AtomicU32 {
        self.region.half(self.offset(position))
    }

    /// The word after the length: where the record lies, in pages from the start of the ring.
    pub(crate) fn page_offset(&self, position: u64) -> &AtomicU32 {
        self.region.half(self.offset(position) + 4)
    }

    pub(crate) fn page_number(&self, position: u64) -> u32 {
        (self.offset(position) / PAGE_BYTES) as u32
    }

    /// Address of the data of the record at a position.
    pub(crate) fn data_at(&self, position: u64) -> NonNull<u8> {
        self.region.at(self.offset(position) + RECORD_HEADER_BYTES)
    }

    /// Position, modulo the size, of the record whose data start at an address.
    pub(crate) fn position_of(&self, sample: NonNull<u8>) -> Option<u64> {
        let offset = (sample.as_ptr() as u64).checked_sub(self.region.base())?;
        let data = offset.checked_sub((DATA_OFFSET + RECORD_HEADER_BYTES) as u64)?;
        (data < self.size() && data.is_multiple_of(8)).then_some(data)
    }

    pub(crate) fn write(&self, position: u64, data: &[u8]) {
        self.region.write(self.offset(position) + RECORD_HEADER_BYTES, data);
    }

    pub(crate) fn read(&self, position: u64, out: &mut [u8]) {
        self.region.read(self.offset(position) + RECORD_HEADER_BYTES, out);
    }

    /// Both images of the data.
    pub(crate) fn span(&self) -> Span {
        let bytes = 2 * self.size();
        Span::values(self.region.base() + DATA_OFFSET as u64, bytes, bytes, bytes, Access::Record)
    }

    fn offset(&self, position: u64) -> usize {
        DATA_OFFSET + (position as usize & (self.size - 1))
    }
}

#[cfg(test)]
mod tests {
    use towpath_bpf::program::MapType;

    use crate::testing::def;

    use super::*;

    fn ring() -> Ringbuf {
        Ringbuf::new(&def(MapType::Ringbuf, 0, 0, 4096, 0)).unwrap()
    }

    fn drain(ring: &Ringbuf) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        ring.consume(|record| {
            all.push(record.to_vec());
            ControlFlow::Continue(())
        });
        all
    }

    #[test]
    fn records_come_in_order_of_reservation() {
        let ring = ring();
        let first = ring.reserve(4).unwrap();
        ring.output(b"second", 0).unwrap();
        let third = ring.reserve(8).unwrap();
        assert!(drain(&ring).is_empty(), "the first is still busy");
        ring.discard(third, 0).unwrap();
        ring.submit(first, 0).unwrap();
        assert_eq!(ring.submit(first, 0), Err(Errno::EINVAL), "submitted twice");
        assert_eq!(drain(&ring), [vec![0; 4], b"second".to_vec()]);
        assert_eq!(ring.query(BPF_RB_AVAIL_DATA), 0);
        assert_eq!(ring.query(BPF_RB_PROD_POS), 16 + 16 + 16);
    }

    #[test]
    fn room_ends_where_the_kernels_ends() {
        let ring = ring();
        assert_eq!(ring.reserve(4096 - 8), None, "a record can't fill the ring");
        assert_eq!(ring.reserve(1 << 30), None);
        let all_but_one = ring.reserve(4096 - 16).unwrap();
        assert_eq!(ring.output(b"x", 0), Err(Errno::EAGAIN));
        assert_eq!(ring.output(b"x", 4), Err(Errno::EINVAL));
        ring.submit(all_but_one, 0).unwrap();
        assert_eq!(ring.output(b"x", 0), Err(Errno::EAGAIN), "submitted is not consumed");
        drain(&ring);
        assert_eq!(ring.output(b"x", 0), Ok(()));
    }

    #[test]
    fn records_wrap_without_a_seam() {
        let ring = ring();
        for round in 0..1000u32 {
            let data = vec![round as u8; 100 + (round % 7) as usize * 97];
            ring.output(&data, 0).unwrap();
            assert_eq!(drain(&ring), [data]);
        }
        assert!(ring.wakeups() == 1000);
        ring.output(b"quiet", BPF_RB_NO_WAKEUP).unwrap();
        assert!(ring.wakeups() == 1000);
        ring.output(b"loud", BPF_RB_FORCE_WAKEUP).unwrap();
        assert!(ring.wakeups() == 1001);
    }

    #[test]
    fn producers_and_a_consumer_at_once() {
        let ring = ring();
        let (producers, each) = (2u64, 20_000u64);
        let mut sum = 0;
        std::thread::scope(|scope| {
            for _ in 0..producers {
                scope.spawn(|| {
                    for number in 1..=each {
                        while ring.output(&number.to_ne_bytes(), 0).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut seen = 0;
            while seen < producers * each {
                seen += ring.consume(|record| {
                    sum += u64::from_ne_bytes(*record.first_chunk().unwrap());
                    ControlFlow::Continue(())
                }) as u64;
            }
        });
        assert_eq!(sum, producers * each * (each + 1) / 2);
    }
}
