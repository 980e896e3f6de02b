//! Dequeue hooks: programs that say which packet of a queue leaves a port next, and who has them
//! run.
//!
//! One worker runs a port's program, as long as it is wanted and the port has room. It is wanted
//! when something went into a queue that the program knows, when a program or timer says so
//! (`bpf_schedule_iface_dequeue`), and until it has nothing to send.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::time::ClockId;
use towpath_maps::Map;
use towpath_xdp::queue::Keeper;
use towpath_xdp::{Arena, Frame, Pool, now_ns};

use crate::chain::{Chain, Link};
use crate::counters::{DropReason, FrameCounters};

/// A port's dequeue program.
#[derive(Debug, Clone)]
pub struct DequeueHook {
    /// The program, alone.
    pub(crate) chain: Arc<Chain>,
    /// When it runs.
    pub schedule: Arc<Schedule>,
    /// The worker that runs it.
    pub worker: usize,
}

impl DequeueHook {
    /// The program with its counters: runs, and faults.
    pub fn link(&self) -> &Link {
        &self.chain.links()[0]
    }

    /// Whether the program can take packets out of that map.
    pub fn knows(&self, map: &Map) -> bool {
        self.link().program.maps().maps().iter().any(|known| std::ptr::eq(&**known, map))
    }
}

/// When a port's dequeue program is run, and what came of it.
#[derive(Debug, Default)]
pub struct Schedule {
    is_wanted: AtomicBool,
    /// Bytes that may be on their way at the port; 0 when it doesn't say how much room it has.
    pub(crate) limit_bytes: AtomicU64,
    /// Bytes that are.
    pub(crate) in_flight_bytes: AtomicU64,
    /// Packets that the port had no room for yet.
    pub(crate) kept: AtomicU64,
}

impl Schedule {
    /// Bytes that may be on their way at the port at once: what it takes to keep it busy; 0 when it
    /// doesn't say how much room it has.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that are on their way.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes.load(Ordering::Relaxed)
    }

    /// Packets that came out of queues and that the port had no room for yet.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Has the program run.
    #[inline]
    pub(crate) fn want(&self) {
        self.is_wanted.store(true, Ordering::Release);
    }

    /// It is about to run: what comes from now on is a wish of its own.
    pub(crate) fn begin(&self) {
        self.is_wanted.store(false, Ordering::Relaxed);
        // What was put into a queue before a wish that this ended is seen.
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// Takes back frames that no worker takes any more, for example those of queues whose maps are
/// deleted, and counts them as dropped.
#[derive(Debug)]
pub(crate) struct Reclaimer {
    arena: Arc<Arena>,
    counters: FrameCounters,
    /// Who adds to them.
    adds: Mutex<()>,
}

impl Reclaimer {
    pub(crate) fn new(arena: &Arc<Arena>) -> Reclaimer {
        let (counters, adds) = (FrameCounters::default(), Mutex::default());
        Reclaimer { arena: Arc::clone(arena), counters, adds }
    }

    pub(crate) fn counters(&self) -> &FrameCounters {
        &self.counters
    }

    /// Takes frames over and drops them.
    pub(crate) fn drop_all(&self, frames: &mut Vec<Frame>, why: DropReason) {
        let count = frames.len() as u64;
        Pool::new(&self.arena).give_all(frames);
        let alone = self.adds.lock();
        self.counters.begin_round();
        self.counters.taken_over.add(count);
        self.counters.dropped[why as usize].add(count);
        self.counters.rest();
        drop(alone);
    }
}

impl Keeper for Reclaimer {
    fn take_over(&self, frames: &mut Vec<Frame>) {
        self.drop_all(frames, DropReason::QueueGone);
    }
}

/// Nanoseconds of the monotonic clock, as `bpf_ktime_get_ns` shows them.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}
