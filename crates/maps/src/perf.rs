//! PERF_EVENT_ARRAY: samples from programs to user space, a ring for each CPU.
//!
//! Kernel counterpart: `bpf_perf_event_output` in `kernel/trace/bpf_trace.c`. A slot works once
//! user space has opened it, for programs on the CPU of that number. A full ring drops samples and
//! counts them, like a perf ring without a reader.

use std::sync::OnceLock;

use parking_lot::Mutex;
use towpath_bpf::{Errno, MapDef};

use crate::array::next_index;
use crate::memory::PAGE_BYTES;
use crate::prog_array::number;
use crate::ring::Ring;
use crate::store::Store;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// In place of an index: the CPU that the program runs on (`BPF_F_CURRENT_CPU`).
pub const BPF_F_CURRENT_CPU: u64 = 0xffff_ffff;

/// Rings by slot.
#[derive(Debug)]
#[doc(alias = "BPF_MAP_TYPE_PERF_EVENT_ARRAY")]
pub struct PerfEventArray {
    /// One for each CPU at most: others could never be used.
    slots: Box<[Slot]>,
    entries: u32,
}

/// One slot, on cache lines of its own since each CPU has one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot {
    /// Whether the slot has a listener.
    is_open: AtomicBool,
    /// Made when the slot is opened for the first time, and kept: a program may be writing to it.
    ring: OnceLock<Ring>,
    lost: AtomicU64,
    /// Held by the reader that takes samples out.
    reader: Mutex<()>,
}

/// A sample that is being written: room in a ring that is not visible yet.
#[derive(Debug)]
pub struct Sample<'a> {
    ring: &'a Ring,
    position: u64,
    written: usize,
}

impl Sample<'_> {
    /// Writes the next bytes; all together are as many as the sample was made for.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.ring.write(self.position, self.written, bytes);
        self.written += bytes.len();
    }

    /// Publishes the sample to the reader.
    #[inline]
    pub fn commit(self) {
        let committed = self.ring.commit(self.position, 0);
        debug_assert!(committed.is_ok(), "the ring made it");
    }
}

impl PerfEventArray {
    pub(crate) fn new(def: &MapDef, cpus: usize) -> Self {
        let slots = (def.max_entries as usize).min(cpus);
        PerfEventArray {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            entries: def.max_entries,
        }
    }

    /// Opens a slot with a ring of at least `bytes` bytes. Opening it again empties it, and leaves
    /// the size of its ring unchanged.
    pub fn open(&self, index: u32, bytes: usize) -> Result<(), Errno> {
        let slot = self.slots.get(index as usize).ok_or(Errno::E2BIG)?;
        let _only = slot.reader.lock();
        let ring = match slot.ring.get() {
            Some(ring) => ring,
            None => {
                let ring = Ring::new(bytes.max(PAGE_BYTES).next_power_of_two())?;
                slot.ring.get_or_init(|| ring)
            }
        };
        ring.skip_all();
        slot.lost.store(0, Ordering::Relaxed);
        slot.is_open.store(true, Ordering::Release);
        Ok(())
    }

    /// Opens the slot of every CPU; without memory for a ring, a slot stays closed.
    pub fn open_all(&self, bytes: usize) {
        for index in 0..self.slots.len() as u32 {
            let _no_memory = self.open(index, bytes);
        }
    }

    /// Closes a slot whose listener is gone.
    pub fn close(&self, index: u32) {
        if let Some(slot) = self.slots.get(index as usize) {
            slot.is_open.store(false, Ordering::Release);
        }
    }

    /// `bpf_perf_event_output` from a program on `worker`, up to where bytes are copied: room for
    /// a sample. `index` is a slot or [`BPF_F_CURRENT_CPU`]. `E2BIG` past the last slot, `ENOENT`
    /// when it isn't open, `EOPNOTSUPP` when it belongs to another CPU, `ENOSPC` when its ring is
    /// full.
    #[inline]
    pub fn reserve(&self, worker: usize, index: u64, bytes: usize) -> Result<Sample<'_>, Errno> {
        let index = if index == BPF_F_CURRENT_CPU { worker } else { index as usize };
        if index >= self.entries as usize {
            return Err(Errno::E2BIG);
        }
        let slot = self.slots.get(index).ok_or(Errno::ENOENT)?;
        if !slot.is_open.load(Ordering::Acquire) {
            return Err(Errno::ENOENT);
        }
        if index != worker {
            return Err(Errno::EOPNOTSUPP);
        }
        let ring = slot.ring.get().ok_or(Errno::ENOENT)?;
        match ring.reserve(bytes as u64) {
            Some(position) => Ok(Sample { ring, position, written: 0 }),
            None => {
                slot.lost.fetch_add(1, Ordering::Relaxed);
                Err(Errno::ENOSPC)
            }
        }
    }

    /// The oldest sample of a slot.
    pub fn read(&self, index: u32) -> Option<Vec<u8>> {
        let slot = self.slots.get(index as usize)?;
        let _only = slot.reader.lock();
        slot.ring.get()?.take_oldest()
    }

    /// Samples that a full ring dropped since the slot was opened.
    pub fn lost(&self, index: u32) -> u64 {
        self.slots.get(index as usize).map_or(0, |slot| slot.lost.load(Ordering::Relaxed))
    }

    /// Number of slots that can be opened.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }
}

impl Store for PerfEventArray {
    fn update(&self, _worker: usize, key: &[u8], _value: &[u8], flags: u64) -> Result<(), Errno> {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        // The value would be a perf event's descriptor, which this crate does not have: see `open`.
        Err(if number(key) < self.entries { Errno::EBADF } else { Errno::E2BIG })
    }

    fn delete(&self, _worker: usize, key: &[u8]) -> Result<(), Errno> {
        if number(key) >= self.entries {
            return Err(Errno::E2BIG);
        }
        let slot = self.slots.get(number(key) as usize).ok_or(Errno::ENOENT)?;
        let was_open = slot.is_open.swap(false, Ordering::AcqRel);
        if was_open { Ok(()) } else { Err(Errno::ENOENT) }
    }

    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        next_index(key, self.entries)
    }
}

#[cfg(test)]
mod tests {
    use towpath_bpf::program::MapType;

    use crate::testing::def;

    use super::*;

    #[test]
    fn a_slot_works_once_open_and_for_its_own_cpu() {
        let perf = PerfEventArray::new(&def(MapType::PerfEventArray, 4, 4, 2, 0), 4);
        let out = |worker, index, bytes: &[u8]| {
            let mut sample = perf.reserve(worker, index, bytes.len())?;
            sample.push(bytes);
            sample.commit();
            Ok(())
        };
        let (small, half) = ([1; 8], [2; PAGE_BYTES / 2]);
        assert_eq!(out(0, BPF_F_CURRENT_CPU, &small), Err(Errno::ENOENT));
        assert_eq!(out(0, 2, &small), Err(Errno::E2BIG));
        perf.open_all(48);
        assert_eq!(out(0, 1, &small), Err(Errno::EOPNOTSUPP));
        assert_eq!(out(1, 1, &half), Ok(()));
        assert_eq!(out(1, BPF_F_CURRENT_CPU, &small), Ok(()));
        assert_eq!(out(1, 1, &half), Err(Errno::ENOSPC), "full");
        assert_eq!((perf.lost(0), perf.lost(1)), (0, 1));
        assert_eq!(perf.read(1), Some(half.to_vec()));
        assert_eq!(out(1, 1, &half), Ok(()), "reading makes room");
        assert_eq!(perf.read(1), Some(small.to_vec()));
        perf.delete(0, &1u32.to_ne_bytes()).unwrap();
        assert_eq!(out(1, 1, &small), Err(Errno::ENOENT), "closed");
        assert_eq!(perf.delete(0, &1u32.to_ne_bytes()), Err(Errno::ENOENT));
        perf.open(1, 48).unwrap();
        assert_eq!((perf.read(1), perf.lost(1)), (None, 0), "opening empties it");
    }

    #[test]
    fn parts_of_a_sample_lie_side_by_side() {
        let perf = PerfEventArray::new(&def(MapType::PerfEventArray, 4, 4, 1, 0), 1);
        perf.open_all(0);
        let mut sample = perf.reserve(0, 0, 12).unwrap();
        assert_eq!(perf.read(0), None, "not committed yet");
        sample.push(b"hello");
        sample.push(b", world");
        sample.commit();
        assert_eq!(perf.read(0), Some(b"hello, world".to_vec()));
    }
}
