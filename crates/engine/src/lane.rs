//! Lanes: rings by which one worker hands frames to another, or to itself.
//!
//! Each is one worker's way to an entry of a cpumap, or to another worker that runs programs for a
//! port that spreads ([`Spread`](crate::Spread)). One worker gives, one takes, in bursts, and
//! neither waits for the other; a burst costs the giver one store and a look at whether the taker
//! sleeps. A lane is known to its taker's inbox too, so that the engine sees how far it is
//! ([`Mark`]), and gets what is left when its taker is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use towpath_maps::{Map, TargetEntry};
use towpath_ring::{Progress, Taker};
use towpath_xdp::Frame;

/// What is to be done to the frames of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    /// What an entry of a cpumap says.
    Entry(CpuEntry),
    /// What a port does to everything that arrives; frames know where they did.
    Arrive,
}

/// An entry of a cpumap: what has a queue of its own at the worker it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuEntry {
    map: usize,
    /// The worker.
    pub(crate) key: u32,
    /// Most frames that wait in its queue (`cpumap_val::qsize`).
    pub(crate) limit: usize,
    /// The program to run there; 0 for none.
    pub(crate) program: u32,
}

impl CpuEntry {
    pub(crate) fn new(map: &Map, key: u32, value: TargetEntry) -> CpuEntry {
        let map = std::ptr::from_ref(map).addr();
        CpuEntry { map, key, limit: value.number as usize, program: value.id }
    }
}

/// A lane, as all but its giver see it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) errand: Errand,
    taker: Mutex<Taker<Frame>>,
    progress: Progress<Frame>,
    /// Frames that were taken and worked on: all that came of them is on its way.
    done: Apart<AtomicUsize>,
    /// Where others lead to the same entry.
    pub(crate) room: Option<Arc<Room>>,
    /// Nobody gives any more.
    is_left: AtomicBool,
    /// Nobody takes any more.
    is_closed: AtomicBool,
}

/// What the taker writes has cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

/// Room that lanes share which lead to the same entry.
#[derive(Debug)]
pub(crate) struct Room {
    limit: usize,
    used: AtomicUsize,
}

/// A place in a lane: what was given before.
#[derive(Debug)]
pub(crate) struct Mark {
    lane: Arc<Lane>,
    given: usize,
}

/// What is to be worked on before something else is done, with all that comes of it.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    marks: Vec<Mark>,
    /// How often what comes of it may still be handed on.
    hops: usize,
}

impl Lane {
    /// A lane whose taker and progress these are. Those that lead to the same entry of a cpumap
    /// share its room: there are `others` to the same taker.
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

    /// Nobody gives any more.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Whether nobody takes any more.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Whether something waits in it.
    #[inline]
    pub(crate) fn has_frames(&self) -> bool {
        self.progress.given() != self.progress.taken()
    }

    /// Takes up to `most` frames. Say [`Lane::finish`] when all went on.
    pub(crate) fn take(&self, frames: &mut Vec<Frame>, most: usize) -> usize {
        let count = self.taker.lock().take(frames, most);
        if let Some(room) = &self.room {
            // Whoever sees that there is room sees that there is in the ring.
            room.used.fetch_sub(count, Ordering::Release);
        }
        count
    }

    /// All frames that were taken have been worked on.
    pub(crate) fn finish(&self) {
        self.done.0.store(self.progress.taken(), Ordering::Release);
    }

    /// Takes no more of what is given from now on, but for what is just being given.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Whether it is of no more use to anybody.
    pub(crate) fn is_over(&self) -> bool {
        // First: what was given before is seen then.
        let is_left = self.is_left.load(Ordering::Acquire);
        is_left && self.done.0.load(Ordering::Acquire) == self.progress.given()
    }

    /// What was given so far.
    pub(crate) fn mark(self: &Arc<Lane>) -> Mark {
        Mark { lane: Arc::clone(self), given: self.progress.given() }
    }
}

impl Mark {
    /// Whether everything in front of it has been worked on, or never will be.
    pub(crate) fn is_passed(&self) -> bool {
        let done = self.lane.done.0.load(Ordering::Acquire);
        // Both run freely, and a lane is shorter than half of all numbers.
        let is_done = self.given.wrapping_sub(done).cast_signed() <= 0;
        is_done || self.lane.is_closed.load(Ordering::Relaxed)
    }
}

impl Fence {
    /// Behind these places.
    pub(crate) fn new(marks: impl IntoIterator<Item = Mark>) -> Fence {
        Fence { marks: marks.into_iter().collect(), hops: HOPS_MAX }
    }

    /// Whether it has been done; `marks` says what all workers are given now.
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
    /// Takes as much of the room as there is, up to `wanted`.
    pub(crate) fn reserve(&self, wanted: usize) -> usize {
        let used = self.used.fetch_add(wanted, Ordering::Acquire);
        let fits = self.limit.saturating_sub(used).min(wanted);
        if fits < wanted {
            self.used.fetch_sub(wanted - fits, Ordering::Relaxed);
        }
        fits
    }
}

/// A program of a cpumap's entry may hand a frame on to another entry, and so on. A fence waits for
/// no more than so many hand-overs in a row.
const HOPS_MAX: usize = 4;
