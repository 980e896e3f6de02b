//! Dequeue hooks: programs that choose which packet of a queue leaves a port next, and their
//! scheduling.
//!
//! One worker runs a port's program, while a run is requested and the port has room. A run is
//! requested when a packet enters a queue that the program uses, when a program or timer requests
//! it (`bpf_schedule_iface_dequeue`), and until the program has nothing to send.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::time::ClockId;
use towpath_maps::Map;
use towpath_xdp::queue::Reclaim;
use towpath_xdp::{Arena, Frame, Pool, now_ns};

use crate::chain::{Chain, Link};
use crate::counters::{DropReason, FrameCounters};

/// A port's dequeue program.
#[derive(Debug, Clone)]
pub struct DequeueHook {
    /// The program, as a chain of one.
    pub(crate) chain: Arc<Chain>,
    /// The program's schedule.
    pub schedule: Arc<Schedule>,
    /// Number of the worker that runs it.
    pub worker: usize,
}

impl DequeueHook {
    /// The program with its counters of runs and faults.
    pub fn link(&self) -> &Link {
        &self.chain.links()[0]
    }

    /// Whether the program uses `map`, and so can take packets out of it.
    pub fn knows(&self, map: &Map) -> bool {
        self.link().program.maps().maps().iter().any(|known| std::ptr::eq(&**known, map))
    }
}

/// Schedule and statistics of a port's dequeue program.
#[derive(Debug, Default)]
pub struct Schedule {
    is_wanted: AtomicBool,
    /// Most bytes in flight at the port; 0 if the port does not report its room.
    pub(crate) limit_bytes: AtomicU64,
    /// Bytes in flight at the port.
    pub(crate) in_flight_bytes: AtomicU64,
    /// Packets that wait for room at the port.
    pub(crate) kept: AtomicU64,
}

impl Schedule {
    /// Most bytes in flight at the port at once, which is what keeps it busy; 0 if the port does
    /// not report its room.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Bytes in flight at the port.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes.load(Ordering::Relaxed)
    }

    /// Number of packets taken out of queues that wait for room at the port.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Requests a run of the program.
    #[inline]
    pub(crate) fn want(&self) {
        self.is_wanted.store(true, Ordering::Release);
    }

    /// Starts a run: requests from now on ask for another one.
    pub(crate) fn begin(&self) {
        self.is_wanted.store(false, Ordering::Relaxed);
        // Packets queued before a request that this clears are seen by the run.
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// Takes back frames that no worker will take, for example those of queues whose maps are deleted,
/// and counts them as dropped.
#[derive(Debug)]
pub(crate) struct Reclaimer {
    arena: Arc<Arena>,
    counters: FrameCounters,
    /// Serialises additions to the counters.
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

impl Reclaim for Reclaimer {
    fn take_over(&self, frames: &mut Vec<Frame>) {
        self.drop_all(frames, DropReason::QueueGone);
    }
}

/// Nanoseconds of the monotonic clock, as `bpf_ktime_get_ns` returns them.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}
