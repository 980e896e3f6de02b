//! Lanes: single-producer rings by which a worker hands frames to another worker or to itself.
//!
//! Each lane leads from one worker to an entry of a cpumap, or to another worker that runs programs
//! for a port that spreads its flows ([`Spread`](crate::Spread)). One worker gives and one takes,
//! in bursts, and neither waits for the other; a burst costs the giver one store and one check
//! whether the taker sleeps. The taker's inbox also refers to the lane, so that the engine can
//! observe its progress ([`Mark`]) and reclaim its frames when the taker is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use towpath_maps::{Map, TargetEntry};
use towpath_ring::{Progress, Taker};
use towpath_xdp::Frame;

/// The processing of a lane's frames by its taker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    /// The program of a cpumap entry.
    Entry(CpuEntry),
    /// The `rx` processing of the port where each frame arrived.
    Arrive,
}

/// An entry of a cpumap. Each has its own queue at the worker it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuEntry {
    map: usize,
    /// Number of the worker.
    pub(crate) key: u32,
    /// Most frames that wait in its queue (`cpumap_val::qsize`).
    pub(crate) limit: usize,
    /// Id of the program to run there; 0 for none.
    pub(crate) program: u32,
}

impl CpuEntry {
    pub(crate) fn new(map: &Map, key: u32, value: TargetEntry) -> CpuEntry {
        let map = std::ptr::from_ref(map).addr();
        CpuEntry { map, key, limit: value.number as usize, program: value.id }
    }
}

/// A lane, without its giver's end.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) errand: Errand,
    taker: Mutex<Taker<Frame>>,
    progress: Progress<Frame>,
    /// Number of frames taken and fully processed: all resulting frames have been passed on.
    done: Apart<AtomicUsize>,
    /// Capacity shared by all lanes to the same cpumap entry.
    pub(crate) room: Option<Arc<Room>>,
    /// The giver has left.
    is_left: AtomicBool,
    /// The taker has left.
    is_closed: AtomicBool,
}

/// Keeps values written by the taker on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

/// Queue capacity shared by all lanes to the same cpumap entry.
#[derive(Debug)]
pub(crate) struct Room {
    limit: usize,
    used: AtomicUsize,
}

/// A position in a lane: all frames given before it.
#[derive(Debug)]
pub(crate) struct Mark {
    lane: Arc<Lane>,
    given: usize,
}

/// A set of frames, and all frames resulting from them, that must be processed before an action.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    marks: Vec<Mark>,
    /// Number of further hand-overs that the fence still follows.
    hops: usize,
}

impl Lane {
    /// Makes a lane from its ring's taker and progress. `others` are the taker's other lanes; those
    /// to the same cpumap entry share their room with this one.
    pub(crate) fn new(
        errand: Errand,
        (taker, progress): (Taker<Frame>, Progress<Frame>),
        limit: usize,
        others: &[Arc<Lane>],
    ) -> Lane {
        let same = others.iter().find(|lane| lane.errand == errand);
        let room = || Arc::new(Room { limit, used: AtomicUsize::new(0) });
        let shared = || same.and_then(|lane| lane.room.clone()).unwrap_or_else(room);
        let room = (errand != Errand::Arrive).then(shared);
        Lane {
            errand,
            taker: Mutex::new(taker),
            progress,
            done: Apart(AtomicUsize::new(0)),
            room,
            is_left: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }

    /// The giver has left.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Whether the taker has left.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Whether frames wait in the lane.
    #[inline]
    pub(crate) fn has_frames(&self) -> bool {
        self.progress.given() != self.progress.taken()
    }

    /// Takes up to `most` frames. Call [`Lane::finish`] when all are processed.
    pub(crate) fn take(&self, frames: &mut Vec<Frame>, most: usize) -> usize {
        let count = self.taker.lock().take(frames, most);
        if let Some(room) = &self.room {
            // A giver that sees this room also sees the space in the ring.
            room.used.fetch_sub(count, Ordering::Release);
        }
        count
    }

    /// Marks all frames taken so far as processed.
    pub(crate) fn finish(&self) {
        self.done.0.store(self.progress.taken(), Ordering::Release);
    }

    /// Marks the taker as gone: givers stop, except for a burst already being given.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Whether the lane can be freed: its giver has left and all its frames are processed.
    pub(crate) fn is_over(&self) -> bool {
        // Read first, so that all frames given before are seen below.
        let is_left = self.is_left.load(Ordering::Acquire);
        is_left && self.done.0.load(Ordering::Acquire) == self.progress.given()
    }

    /// A mark behind all frames given so far.
    pub(crate) fn mark(self: &Arc<Lane>) -> Mark {
        Mark { lane: Arc::clone(self), given: self.progress.given() }
    }
}

impl Mark {
    /// Whether all frames before the mark have been processed, or never will be.
    pub(crate) fn is_passed(&self) -> bool {
        let done = self.lane.done.0.load(Ordering::Acquire);
        // Both counters wrap around, and a lane is shorter than half of their range.
        let is_done = self.given.wrapping_sub(done).cast_signed() <= 0;
        is_done || self.lane.is_closed.load(Ordering::Relaxed)
    }
}

impl Fence {
    /// A fence behind `marks`.
    pub(crate) fn new(marks: impl IntoIterator<Item = Mark>) -> Fence {
        Fence { marks: marks.into_iter().collect(), hops: HOPS_MAX }
    }

    /// Whether the frames have been processed; `marks` returns the present marks of all workers.
    pub(crate) fn is_passed(&mut self, marks: impl Fn() -> Vec<Mark>) -> bool {
        if self.marks.is_empty() {
            return true;
        }
        loop {
            self.marks.retain(|mark| !mark.is_passed());
            if !self.marks.is_empty() || self.hops == 0 {
                return self.marks.is_empty();
            }
            self.hops -= 1;
            self.marks = marks();
            if self.marks.is_empty() {
                return true;
            }
        }
    }
}

impl Room {
    /// Reserves room for up to `wanted` frames; returns the number granted.
    pub(crate) fn reserve(&self, wanted: usize) -> usize {
        let used = self.used.fetch_add(wanted, Ordering::Acquire);
        let fits = self.limit.saturating_sub(used).min(wanted);
        if fits < wanted {
            self.used.fetch_sub(wanted - fits, Ordering::Relaxed);
        }
        fits
    }
}

/// Most hand-overs in a row that a fence follows: the program of a cpumap entry may redirect a
/// frame to another entry, and so on.
const HOPS_MAX: usize = 4;
