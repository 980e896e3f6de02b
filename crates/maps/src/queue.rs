//! QUEUE and STACK: values without keys.
//!
//! Kernel counterpart: `kernel/bpf/queue_stack_maps.c`.

use parking_lot::Mutex;
use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};

use crate::flags::BPF_EXIST;
use crate::memory::Region;
use crate::store::Store;
use crate::user::Value;

/// A queue (first in, first out) or a stack (last in, first out).
#[derive(Debug)]
#[doc(alias = "BPF_MAP_TYPE_QUEUE")]
#[doc(alias = "BPF_MAP_TYPE_STACK")]
pub(crate) struct Queue {
    is_stack: bool,
    region: Region,
    entries: u64,
    value_size: usize,
    stride: usize,
    held: Mutex<Held>,
}

/// Numbers of the oldest value and of the one to come, counted from the first ever pushed.
#[derive(Debug, Default)]
struct Held {
    oldest: u64,
    next: u64,
}

impl Queue {
    pub(crate) fn new(def: &MapDef) -> Result<Self, Errno> {
        let value_size = def.value_size as usize;
        let stride = value_size.next_multiple_of(8);
        let entries = u64::from(def.max_entries);
        Ok(Queue {
            is_stack: def.kind == MapType::Stack,
            region: Region::new(entries * stride as u64)?,
            entries,
            value_size,
            stride,
            held: Mutex::default(),
        })
    }

    fn offset(&self, number: u64) -> usize {
        (number % self.entries) as usize * self.stride
    }

    fn first(&self, out: &mut [u8], remove: bool) -> Result<(), Errno> {
        let mut held = self.held.lock();
        if held.oldest == held.next {
            out.fill(0);
            return Err(Errno::ENOENT);
        }
        debug_assert!(held.oldest < held.next, "the oldest value is not past the newest");
        let number = if self.is_stack { held.next - 1 } else { held.oldest };
        self.region.read(self.offset(number), out);
        match (remove, self.is_stack) {
            (false, _) => {}
            (true, true) => held.next -= 1,
            (true, false) => held.oldest += 1,
        }
        Ok(())
    }

    fn value(&self, remove: bool) -> Result<Value, Errno> {
        let mut out = vec![0; self.value_size];
        self.first(&mut out, remove)?;
        Ok(Value::One(out))
    }
}

impl Store for Queue {
    fn push(&self, value: &[u8], flags: u64) -> Result<(), Errno> {
        let replace = flags & BPF_EXIST != 0;
        // BPF_NOEXIST makes no sense here, and other flags are unknown.
        if flags & 1 != 0 || flags > BPF_EXIST {
            return Err(Errno::EINVAL);
        }
        let mut held = self.held.lock();
        if held.next - held.oldest == self.entries {
            if !replace {
                return Err(Errno::E2BIG);
            }
            held.oldest += 1;
        }
        self.region.write(self.offset(held.next), value);
        held.next += 1;
        debug_assert!(held.next - held.oldest <= self.entries, "no more values than slots");
        Ok(())
    }

    fn pop(&self, out: &mut [u8]) -> Result<(), Errno> {
        self.first(out, true)
    }

    fn peek(&self, out: &mut [u8]) -> Result<(), Errno> {
        self.first(out, false)
    }

    fn read(&self, _key: &[u8], _locked: bool) -> Result<Value, Errno> {
        self.value(false)
    }

    fn write(&self, _key: &[u8], value: &Value, flags: u64) -> Result<(), Errno> {
        self.push(value.bytes(), flags)
    }

    fn take(&self, _key: &[u8], _locked: bool) -> Result<Value, Errno> {
        self.value(true)
    }

    fn queued(&self) -> Vec<Value> {
        let held = self.held.lock();
        let read = |number: u64| {
            let mut out = vec![0; self.value_size];
            self.region.read(self.offset(number), &mut out);
            Value::One(out)
        };
        (held.oldest..held.next).map(read).collect()
    }

    fn count(&self) -> Option<u64> {
        let held = self.held.lock();
        Some(held.next - held.oldest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use fastrand::Rng;

    use crate::flags::BPF_ANY;
    use crate::testing::def;

    use super::*;

    #[test]
    fn random_operations_agree_with_a_deque() {
        for kind in [MapType::Queue, MapType::Stack] {
            let queue = Queue::new(&def(kind, 0, 4, 5, 0)).unwrap();
            let mut model = VecDeque::new();
            let mut random = Rng::with_seed(3);
            for step in 0u32..5000 {
                let mut out = [1; 4];
                let top = if kind == MapType::Stack { model.back() } else { model.front() };
                let top = top.copied().ok_or(Errno::ENOENT);
                match random.u64(..5) {
                    0 | 1 => {
                        let full = model.len() == 5;
                        let expected = if full { Err(Errno::E2BIG) } else { Ok(()) };
                        assert_eq!(queue.push(&step.to_ne_bytes(), BPF_ANY), expected);
                        if !full {
                            model.push_back(step);
                        }
                    }
                    2 => {
                        assert_eq!(queue.push(&step.to_ne_bytes(), BPF_EXIST), Ok(()));
                        if model.len() == 5 {
                            model.pop_front();
                        }
                        model.push_back(step);
                    }
                    3 => {
                        assert_eq!(queue.peek(&mut out).map(|()| u32::from_ne_bytes(out)), top);
                    }
                    _ => {
                        assert_eq!(queue.pop(&mut out).map(|()| u32::from_ne_bytes(out)), top);
                        match kind {
                            MapType::Stack => model.pop_back(),
                            _ => model.pop_front(),
                        };
                    }
                }
            }
            assert_eq!(queue.push(&[0; 4], 1), Err(Errno::EINVAL));
            assert_eq!(queue.push(&[0; 4], 4), Err(Errno::EINVAL));
        }
    }
}
