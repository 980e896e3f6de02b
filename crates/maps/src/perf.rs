//! PERF_EVENT_ARRAY: samples from programs to user space, a ring for each CPU.
//!
//! Kernel counterpart: `bpf_perf_event_output` in `kernel/trace/bpf_trace.c`. A slot works once
//! user space has opened it, for programs on the CPU of that number. A full ring drops samples and
//! counts them, like a perf ring that nobody reads.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_bpf::{Errno, MapDef};

use crate::array::next_index;
use crate::prog_array::number;
use crate::store::Store;
use crate::user::Value;

/// In place of an index: the CPU the program runs on (`BPF_F_CURRENT_CPU`).
pub const BPF_F_CURRENT_CPU: u64 = 0xffff_ffff;

/// Bytes of a sample that the ring holds beside its data, as a perf record has a header.
const SAMPLE_HEADER_BYTES: usize = 16;

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
struct Slot(Mutex<Option<Events>>);

/// An opened ring.
#[derive(Debug)]
struct Events {
    samples: VecDeque<Vec<u8>>,
    /// Bytes held, headers included, and the most that may be.
    bytes: usize,
    bytes_max: usize,
    lost: u64,
}

impl PerfEventArray {
    pub(crate) fn new(def: &MapDef, cpus: usize) -> Self {
        let slots = (def.max_entries as usize).min(cpus);
        PerfEventArray {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            entries: def.max_entries,
        }
    }

    /// Opens a slot with a ring of so many bytes. Opening it again empties it.
    pub fn open(&self, index: u32, bytes_max: usize) -> Result<(), Errno> {
        let slot = self.slots.get(index as usize).ok_or(Errno::E2BIG)?;
        let events = Events { samples: VecDeque::new(), bytes: 0, bytes_max, lost: 0 };
        *lock(slot) = Some(events);
        Ok(())
    }

    /// Opens the slot of every CPU.
    pub fn open_all(&self, bytes_max: usize) {
        for index in 0..self.slots.len() as u32 {
            let opened = self.open(index, bytes_max);
            debug_assert!(opened.is_ok());
        }
    }

    /// `bpf_perf_event_output` from a program on `worker`: `index` is a slot or
    /// [`BPF_F_CURRENT_CPU`]. `E2BIG` past the last slot, `ENOENT` when it isn't open, `EOPNOTSUPP`
    /// when it belongs to another CPU, `ENOSPC` when its ring is full.
    pub fn output(&self, worker: usize, index: u64, sample: Vec<u8>) -> Result<(), Errno> {
        let index = if index == BPF_F_CURRENT_CPU { worker } else { index as usize };
        if index >= self.entries as usize {
            return Err(Errno::E2BIG);
        }
        let mut slot = lock(self.slots.get(index).ok_or(Errno::ENOENT)?);
        let events = slot.as_mut().ok_or(Errno::ENOENT)?;
        if index != worker {
            return Err(Errno::EOPNOTSUPP);
        }
        let bytes = sample.len() + SAMPLE_HEADER_BYTES;
        if bytes > events.bytes_max - events.bytes {
            events.lost += 1;
            return Err(Errno::ENOSPC);
        }
        events.bytes += bytes;
        events.samples.push_back(sample);
        Ok(())
    }

    /// The oldest sample of a slot.
    pub fn read(&self, index: u32) -> Option<Vec<u8>> {
        let mut slot = lock(self.slots.get(index as usize)?);
        let events = slot.as_mut()?;
        let sample = events.samples.pop_front()?;
        events.bytes -= sample.len() + SAMPLE_HEADER_BYTES;
        Some(sample)
    }

    /// Samples that a full ring dropped.
    pub fn lost(&self, index: u32) -> u64 {
        let slot = self.slots.get(index as usize);
        slot.and_then(|slot| lock(slot).as_ref().map(|events| events.lost)).unwrap_or(0)
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
        // The value is a perf event's descriptor, and there are none here: see `open`.
        Err(if number(key) < self.entries { Errno::EBADF } else { Errno::E2BIG })
    }

    fn delete(&self, _worker: usize, key: &[u8]) -> Result<(), Errno> {
        if number(key) >= self.entries {
            return Err(Errno::E2BIG);
        }
        let slot = self.slots.get(number(key) as usize).ok_or(Errno::ENOENT)?;
        lock(slot).take().map(|_closed| ()).ok_or(Errno::ENOENT)
    }

    fn read(&self, _key: &[u8], _locked: bool) -> Result<Value, Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        next_index(key, self.entries)
    }
}

fn lock(slot: &Slot) -> MutexGuard<'_, Option<Events>> {
    slot.0.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use towpath_bpf::program::MapType;

    use crate::testing::def;

    use super::*;

    #[test]
    fn a_slot_works_once_open_and_for_its_own_cpu() {
        let perf = PerfEventArray::new(&def(MapType::PerfEventArray, 4, 4, 2, 0), 4);
        let out = |worker, index| perf.output(worker, index, vec![1; 8]);
        assert_eq!(out(0, BPF_F_CURRENT_CPU), Err(Errno::ENOENT));
        assert_eq!(out(0, 2), Err(Errno::E2BIG));
        perf.open_all(48);
        assert_eq!(out(0, 1), Err(Errno::EOPNOTSUPP));
        assert_eq!(out(1, 1), Ok(()));
        assert_eq!(out(1, BPF_F_CURRENT_CPU), Ok(()));
        assert_eq!(out(1, 1), Err(Errno::ENOSPC), "full");
        assert_eq!((perf.lost(0), perf.lost(1)), (0, 1));
        assert_eq!(perf.read(1), Some(vec![1; 8]));
        assert_eq!(out(1, 1), Ok(()), "reading makes room");
    }
}
