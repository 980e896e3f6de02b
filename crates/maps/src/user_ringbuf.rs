//! USER_RINGBUF: samples from user space to programs.
//!
//! Kernel counterpart: `bpf_user_ringbuf_drain` in `kernel/bpf/ringbuf.c`; the producer's side
//! follows libbpf's `user_ring_buffer__*`. Memory is laid out as in [`crate::ringbuf`].

use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use towpath_bpf::{Errno, MapDef};

use crate::access::Span;
use crate::flags::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use crate::ring::{BUSY, DISCARD, Ring, record_bytes};
use crate::store::Store;
use crate::sync::Ordering;

/// Most samples of one drain (`BPF_MAX_USER_RINGBUF_SAMPLES`).
const SAMPLES_MAX: u64 = 128 * 1024;

/// A ring that user space fills.
#[derive(Debug)]
#[doc(alias = "BPF_MAP_TYPE_USER_RINGBUF")]
pub struct UserRingbuf {
    ring: Ring,
    /// A program is draining.
    busy: AtomicBool,
    /// Held while a sample is reserved.
    producer: Mutex<()>,
}

/// A sample that user space reserved; it must be submitted or discarded.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an unfinished sample blocks those behind it"]
pub struct Sample {
    position: u64,
    size: u32,
}

impl UserRingbuf {
    pub(crate) fn new(def: &MapDef) -> Result<Self, Errno> {
        let ring = Ring::new(def.max_entries as usize)?;
        Ok(UserRingbuf { ring, busy: AtomicBool::new(false), producer: Mutex::default() })
    }

    /// `user_ring_buffer__reserve`: `E2BIG` when it can never fit, `ENOSPC` when it doesn't now.
    pub fn reserve(&self, size: u32) -> Result<Sample, Errno> {
        // The top two bits of a length are flags.
        if size >= DISCARD || record_bytes(size) > self.ring.size() {
            return Err(Errno::E2BIG);
        }
        let _only = self.producer.lock();
        let consumed = self.ring.consumer().load(Ordering::Acquire);
        let position = self.ring.producer().load(Ordering::Relaxed);
        let end = position + record_bytes(size);
        if end - consumed > self.ring.size() {
            return Err(Errno::ENOSPC);
        }
        self.ring.header(position)[0].store(size | BUSY, Ordering::Relaxed);
        self.ring.header(position)[1].store(0, Ordering::Relaxed);
        self.ring.producer().store(end, Ordering::Release);
        Ok(Sample { position, size })
    }

    /// `user_ring_buffer__submit`, with the sample's bytes (`EINVAL` when they are more than it).
    pub fn submit(&self, sample: &Sample, data: &[u8]) -> Result<(), Errno> {
        if data.len() > sample.size as usize {
            return Err(Errno::EINVAL);
        }
        self.ring.write(sample.position, 0, data);
        self.ring.header(sample.position)[0].store(sample.size, Ordering::Release);
        Ok(())
    }

    /// `user_ring_buffer__discard`
    pub fn discard(&self, sample: &Sample) {
        self.ring.header(sample.position)[0].store(sample.size | DISCARD, Ordering::Release);
    }

    /// Reserves, copies and submits.
    pub fn send(&self, data: &[u8]) -> Result<(), Errno> {
        let size = u32::try_from(data.len()).map_err(|_too_big| Errno::E2BIG)?;
        self.submit(&self.reserve(size)?, data)
    }

    /// Whether [`UserRingbuf::drain`] would find nothing, and no other thread drains. This is the
    /// usual case, and it is determined without claiming the ring.
    #[inline]
    pub fn is_idle(&self, flags: u64) -> bool {
        let is_known = flags & !DRAIN_FLAGS == 0;
        let is_free = !self.busy.load(Ordering::Acquire);
        let position = self.ring.consumer().load(Ordering::Acquire);
        let produced = self.ring.producer().load(Ordering::Acquire);
        is_known && is_free && produced.is_multiple_of(8) && position >= produced
    }

    /// `bpf_user_ringbuf_drain`: shows each sample (address and size; readable until `visit`
    /// returns) until `visit` breaks; returns the number of samples shown.
    pub fn drain(
        &self,
        flags: u64,
        mut visit: impl FnMut(NonNull<u8>, u32) -> ControlFlow<()>,
    ) -> Result<u64, Errno> {
        if flags & !DRAIN_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        if self.busy.swap(true, Ordering::Acquire) {
            return Err(Errno::EBUSY);
        }
        let result = self.drain_alone(&mut visit);
        self.busy.store(false, Ordering::Release);
        result
    }

    fn drain_alone(
        &self,
        visit: &mut dyn FnMut(NonNull<u8>, u32) -> ControlFlow<()>,
    ) -> Result<u64, Errno> {
        let mut shown = 0;
        for _ in 0..SAMPLES_MAX {
            let position = self.ring.consumer().load(Ordering::Acquire);
            let size = match self.peek(position) {
                Ok(size) => size,
                Err(Errno::EAGAIN) => continue,
                Err(Errno::ENODATA) => break,
                Err(other) => return Err(other),
            };
            shown += 1;
            let flow = visit(self.ring.data_at(position), size);
            self.ring.consumer().store(position + record_bytes(size), Ordering::Release);
            if flow.is_break() {
                break;
            }
        }
        Ok(shown)
    }

    /// `__bpf_user_ringbuf_peek`: the size of the next sample. No position or length from user
    /// space is trusted: a program gets a sample only if it lies within the produced bytes.
    fn peek(&self, position: u64) -> Result<u32, Errno> {
        let produced = self.ring.producer().load(Ordering::Acquire);
        if !produced.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        if position >= produced {
            return Err(Errno::ENODATA);
        }
        let length = self.ring.header(position)[0].load(Ordering::Acquire);
        if length & BUSY != 0 {
            return Err(Errno::EBUSY);
        }
        let size = length & !DISCARD;
        let total = record_bytes(size);
        if total > produced - position {
            return Err(Errno::EINVAL);
        }
        if total > self.ring.size() {
            return Err(Errno::E2BIG);
        }
        if length & DISCARD != 0 {
            self.ring.consumer().store(position + total, Ordering::Release);
            return Err(Errno::EAGAIN);
        }
        Ok(size)
    }
}

/// Flags accepted by [`UserRingbuf::drain`]; a writer that waits for room polls by itself.
const DRAIN_FLAGS: u64 = BPF_RB_NO_WAKEUP | BPF_RB_FORCE_WAKEUP;

impl Store for UserRingbuf {
    fn spans(&self) -> Vec<Span> {
        vec![self.ring.span()]
    }
}

#[cfg(test)]
mod tests {
    use towpath_bpf::program::MapType;

    use crate::testing::def;

    use super::*;

    #[test]
    fn samples_reach_the_program_in_order() {
        let ring = UserRingbuf::new(&def(MapType::UserRingbuf, 0, 0, 4096, 0)).unwrap();
        let dropped = ring.reserve(16).unwrap();
        ring.send(b"hello").unwrap();
        ring.send(b"world!").unwrap();
        let count = |ring: &UserRingbuf| ring.drain(0, |_, _| ControlFlow::Continue(()));
        assert_eq!(count(&ring), Err(Errno::EBUSY), "the first isn't finished");
        ring.discard(&dropped);
        let mut sizes = Vec::new();
        let result = ring.drain(0, |_, size| {
            sizes.push(size);
            assert_eq!(ring.drain(0, |_, _| ControlFlow::Break(())), Err(Errno::EBUSY));
            ControlFlow::Break(())
        });
        assert_eq!((result, sizes), (Ok(1), vec![5]));
        assert_eq!(count(&ring), Ok(1));
        assert!(ring.is_idle(0) && ring.is_idle(BPF_RB_NO_WAKEUP));
        assert!(!ring.is_idle(1 << 5), "the flags are wrong");
        assert_eq!(count(&ring), Ok(0));
        assert_eq!(ring.drain(4, |_, _| ControlFlow::Continue(())), Err(Errno::EINVAL));
    }

    #[test]
    fn room_and_lies() {
        let ring = UserRingbuf::new(&def(MapType::UserRingbuf, 0, 0, 4096, 0)).unwrap();
        assert_eq!(ring.reserve(4096), Err(Errno::E2BIG));
        let all = ring.reserve(4088).unwrap();
        assert_eq!(ring.reserve(1), Err(Errno::ENOSPC));
        assert_eq!(ring.submit(&all, &[0; 4089]), Err(Errno::EINVAL));
        ring.ring.header(0)[0].store(5000, Ordering::Release);
        let seen = ring.drain(0, |_, _| ControlFlow::Continue(()));
        assert_eq!(seen, Err(Errno::EINVAL), "more than was produced");
    }
}
