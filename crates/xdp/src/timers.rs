//! Timers and work queues: functions of programs that run later, between frames.
//!
//! The kernel runs them in interrupt or workqueue context. Here they run on the worker that next
//! asks for due ones (before it runs a program), in the interpreter; a work item is a timer that is
//! due at once.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use towpath_bpf::Errno;
use towpath_bpf::interp::Code;
use towpath_maps::{Map, MapSet};

use crate::memory::Block;

/// All timers of the programs of one object file, by the address of their `struct bpf_timer`.
#[derive(Debug)]
pub(crate) struct Timers {
    by_place: Mutex<HashMap<u64, Timer>>,
    /// When the first is due, in monotonic nanoseconds: what a worker looks at before each frame.
    next_ns: AtomicU64,
}

impl Default for Timers {
    fn default() -> Self {
        Timers { by_place: Mutex::default(), next_ns: AtomicU64::new(u64::MAX) }
    }
}

#[derive(Debug, Clone)]
struct Timer {
    map: Arc<Map>,
    /// Added to the timer's clock gives monotonic time.
    to_monotonic_ns: i64,
    callback: Option<Callback>,
    due_ns: Option<u64>,
}

/// A function of a program: what it is to run with does not go before it.
#[derive(Debug, Clone)]
pub(crate) struct Callback {
    pub(crate) code: Arc<Code>,
    pub(crate) maps: Arc<MapSet>,
    /// As programs refer to it.
    pub(crate) function: u64,
}

/// A callback whose time has come.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    /// Address of the timer: it lies in the value the callback gets.
    pub(crate) place: u64,
    pub(crate) map: Arc<Map>,
    pub(crate) callback: Callback,
}

impl Due {
    /// The element whose value the timer lies in: a copy of its key, and the value's address.
    pub(crate) fn element(&self, worker: usize) -> Option<(Block, u64)> {
        let mut found = None;
        let value_size = u64::from(self.map.value_size());
        let walked = self.map.for_each(worker, |element| {
            let value = element.value.as_ptr() as u64;
            if self.place.wrapping_sub(value) >= value_size {
                return ControlFlow::Continue(());
            }
            let mut key = Block::new(element.key.len());
            key.bytes_mut().copy_from_slice(element.key);
            found = Some((key, value));
            ControlFlow::Break(())
        });
        walked.ok().and(found)
    }
}

impl Timers {
    /// `bpf_timer_init`: `EBUSY` when it is one already.
    pub(crate) fn init(
        &self,
        place: u64,
        map: Arc<Map>,
        to_monotonic_ns: i64,
    ) -> Result<(), Errno> {
        let mut timers = self.by_place.lock();
        if timers.contains_key(&place) {
            return Err(Errno::EBUSY);
        }
        timers.insert(place, Timer { map, to_monotonic_ns, callback: None, due_ns: None });
        Ok(())
    }

    /// `bpf_timer_set_callback`
    pub(crate) fn set_callback(&self, place: u64, callback: Callback) -> Result<(), Errno> {
        let mut timers = self.by_place.lock();
        timers.get_mut(&place).ok_or(Errno::EINVAL)?.callback = Some(callback);
        Ok(())
    }

    /// `bpf_timer_start`: at `when_ns` of its own clock, or so long after `now_ns` (monotonic).
    pub(crate) fn start(
        &self,
        place: u64,
        when_ns: u64,
        absolute: bool,
        now_ns: u64,
    ) -> Result<(), Errno> {
        let mut timers = self.by_place.lock();
        let timer = timers.get_mut(&place).ok_or(Errno::EINVAL)?;
        if timer.callback.is_none() {
            return Err(Errno::EINVAL);
        }
        let due = if absolute {
            when_ns.saturating_add_signed(timer.to_monotonic_ns)
        } else {
            now_ns.saturating_add(when_ns)
        };
        timer.due_ns = Some(due);
        self.next_ns.fetch_min(due, Relaxed);
        Ok(())
    }

    /// `bpf_timer_cancel`: whether it was waiting.
    pub(crate) fn cancel(&self, place: u64) -> Result<bool, Errno> {
        let mut timers = self.by_place.lock();
        let timer = timers.get_mut(&place).ok_or(Errno::EINVAL)?;
        timer.callback = None;
        Ok(timer.due_ns.take().is_some())
    }

    /// The value around the timer is gone.
    pub(crate) fn forget(&self, place: u64) {
        self.by_place.lock().remove(&place);
    }

    /// When the first is due: one load.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        Some(self.next_ns.load(Relaxed)).filter(|&next| next != u64::MAX)
    }

    /// Whether some timer may be due.
    pub(crate) fn may_be_due(&self) -> bool {
        self.next_ns().is_some()
    }

    /// Takes out the callbacks that are due.
    pub(crate) fn take_due(&self, now_ns: u64) -> Vec<Due> {
        if now_ns < self.next_ns.load(Relaxed) {
            return Vec::new();
        }
        let mut timers = self.by_place.lock();
        let mut due = Vec::new();
        let mut next = u64::MAX;
        for (&place, timer) in timers.iter_mut() {
            match (timer.due_ns, &timer.callback) {
                (Some(at), Some(callback)) if at <= now_ns => {
                    let (map, callback) = (Arc::clone(&timer.map), callback.clone());
                    due.push((at, Due { place, map, callback }));
                    timer.due_ns = None;
                }
                (Some(at), _) => next = next.min(at),
                (None, _) => {}
            }
        }
        self.next_ns.store(next, Relaxed);
        due.sort_by_key(|(at, due)| (*at, due.place));
        due.into_iter().map(|(_, due)| due).collect()
    }
}
