//! RINGBUF: records from programs to one consumer, in the order of reservation.
//!
//! Kernel counterpart: `kernel/bpf/ringbuf.c`; the memory and how records get into it are
//! `ring.rs`. Readers poll for records and don't sleep until one arrives, so the flags about waking
//! the consumer change nothing.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use parking_lot::Mutex;
use towpath_bpf::{Errno, MapDef};

use crate::access::Span;
use crate::flags::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use crate::ring::{DISCARD, Ring};
use crate::store::Store;
use crate::sync::{AtomicU64, Ordering};

/// Queries of `bpf_ringbuf_query`.
const BPF_RB_AVAIL_DATA: u64 = 0;
const BPF_RB_RING_SIZE: u64 = 1;
const BPF_RB_CONS_POS: u64 = 2;
const BPF_RB_PROD_POS: u64 = 3;

/// A ring.
#[derive(Debug)]
#[doc(alias = "BPF_MAP_TYPE_RINGBUF")]
pub struct Ringbuf {
    ring: Ring,
    /// Held by the consumer.
    consumer: Mutex<()>,
    /// Number of records for which there was no room.
    lost: AtomicU64,
}

impl Ringbuf {
    pub(crate) fn new(def: &MapDef) -> Result<Self, Errno> {
        let ring = Ring::new(def.max_entries as usize)?;
        Ok(Ringbuf { ring, consumer: Mutex::default(), lost: AtomicU64::new(0) })
    }

    /// `bpf_ringbuf_reserve` (its flags are 0): where the record's data go; `None` when there is no
    /// room. The record must be submitted or discarded.
    #[inline]
    pub fn reserve(&self, size: u64) -> Option<NonNull<u8>> {
        match self.ring.reserve(size) {
            Some(position) => Some(self.ring.data_at(position)),
            None => {
                self.note_lost();
                None
            }
        }
    }

    /// `bpf_ringbuf_submit`: hands the record to the consumer. `sample` is the result of `reserve`;
    /// anything else is refused.
    #[inline]
    pub fn submit(&self, sample: NonNull<u8>) -> Result<(), Errno> {
        self.ring.commit(self.ring.position_of(sample).ok_or(Errno::EINVAL)?, 0)
    }

    /// `bpf_ringbuf_discard`: the consumer will skip the record.
    #[inline]
    pub fn discard(&self, sample: NonNull<u8>) -> Result<(), Errno> {
        self.ring.commit(self.ring.position_of(sample).ok_or(Errno::EINVAL)?, DISCARD)
    }

    /// `bpf_ringbuf_output`: reserves, copies and submits.
    #[inline]
    pub fn output(&self, data: &[u8], flags: u64) -> Result<(), Errno> {
        if flags & !(BPF_RB_NO_WAKEUP | BPF_RB_FORCE_WAKEUP) != 0 {
            return Err(Errno::EINVAL);
        }
        let position = self.ring.reserve(data.len() as u64).ok_or_else(|| {
            self.note_lost();
            Errno::EAGAIN
        })?;
        self.ring.write(position, 0, data);
        self.ring.commit(position, 0)
    }

    /// `bpf_ringbuf_query`
    #[inline]
    pub fn query(&self, what: u64) -> u64 {
        let consumed = self.ring.consumer().load(Ordering::Acquire);
        let produced = self.ring.producer().load(Ordering::Acquire);
        match what {
            BPF_RB_AVAIL_DATA => produced.wrapping_sub(consumed),
            BPF_RB_RING_SIZE => self.ring.size(),
            BPF_RB_CONS_POS => consumed,
            BPF_RB_PROD_POS => produced,
            _ => 0,
        }
    }

    /// Passes committed records to `visit`, oldest first, until it breaks, the ring is empty or a
    /// record isn't committed yet; returns their number. One consumer works at a time.
    pub fn consume(&self, visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> usize {
        let _only = self.consumer.lock();
        self.ring.consume(visit)
    }

    /// Takes the oldest record, if it is committed.
    pub fn read(&self) -> Option<Vec<u8>> {
        let _only = self.consumer.lock();
        self.ring.take_oldest()
    }

    /// Number of records so far for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Bytes that records may take together.
    pub fn size(&self) -> u64 {
        self.ring.size()
    }

    /// Bytes of records that the consumer has not taken.
    pub fn used(&self) -> u64 {
        self.query(BPF_RB_AVAIL_DATA)
    }

    #[cold]
    fn note_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Store for Ringbuf {
    fn spans(&self) -> Vec<Span> {
        vec![self.ring.span()]
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
        ring.discard(third).unwrap();
        ring.submit(first).unwrap();
        assert_eq!(ring.submit(first), Err(Errno::EINVAL), "submitted twice");
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
        ring.submit(all_but_one).unwrap();
        assert_eq!(ring.output(b"x", 0), Err(Errno::EAGAIN), "submitted is not consumed");
        drain(&ring);
        assert_eq!(ring.output(b"x", 0), Ok(()));
        assert_eq!((ring.lost(), ring.used(), ring.size()), (4, 16, 4096));
    }

    #[test]
    fn records_wrap_without_a_seam() {
        let ring = ring();
        for round in 0..1000u32 {
            let data = vec![round as u8; 100 + (round % 7) as usize * 97];
            ring.output(&data, 0).unwrap();
            assert_eq!(drain(&ring), [data]);
        }
        ring.output(b"quiet", BPF_RB_NO_WAKEUP).unwrap();
        ring.output(b"loud", BPF_RB_FORCE_WAKEUP).unwrap();
        assert_eq!(drain(&ring), [b"quiet".to_vec(), b"loud".to_vec()]);
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
