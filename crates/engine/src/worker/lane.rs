//! Lanes: rings by which one worker hands frames to another, or to itself.
//!
//! Each is one worker's way to an entry of a cpumap, or to another worker that runs programs for a
//! port that spreads ([`super::spread`]). One worker gives, one takes, in bursts, and neither waits
//! for the other; a burst costs the giver one store and a look at whether the taker sleeps. A lane
//! is known to its taker's [`Inbox`](super::Inbox) too, so that the engine sees how far it is
//! ([`Mark`]), and gets what is left when its taker is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use towpath_ring::{Giver, Progress, Taker, handoff};
use towpath_xdp::Frame;

use super::cpu::CpuEntry;
use super::{Mode, WorkerShared};

/// What is to be done to the frames of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    /// What an entry of a cpumap says.
    Entry(CpuEntry),
    /// What a port does to everything that arrives; frames know where they did.
    Arrive,
}

/// A lane, as all but its giver see it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) errand: Errand,
    taker: Mutex<Taker<Frame>>,
    progress: Progress<Frame>,
    /// Frames that were taken and worked on: all that came of them is on its way.
    done: Apart<AtomicUsize>,
    /// Where others lead to the same entry.
    room: Option<Arc<Room>>,
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
struct Room {
    limit: usize,
    used: AtomicUsize,
}

/// The giver's end of a lane.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) lane: Arc<Lane>,
    giver: Giver<Frame>,
    to: Arc<WorkerShared>,
    /// Frames went by it since the last configuration.
    pub(super) is_used: bool,
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
    /// Whether something waits in it.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.progress.given() != self.progress.taken()
    }

    /// Takes up to `most` frames. Say [`Lane::finish`] when all went on.
    pub(super) fn take(&self, frames: &mut Vec<Frame>, most: usize) -> usize {
        let count = self.taker.lock().take(frames, most);
        if let Some(room) = &self.room {
            // Whoever sees that there is room sees that there is in the ring.
            room.used.fetch_sub(count, Ordering::Release);
        }
        count
    }

    /// All frames that were taken have been worked on.
    pub(super) fn finish(&self) {
        self.done.0.store(self.progress.taken(), Ordering::Release);
    }

    /// Takes no more of what is given from now on, but for what is just being given.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Whether it is of no more use to anybody.
    pub(super) fn is_over(&self) -> bool {
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

    /// Whether it has been done.
    pub(crate) fn is_passed(&mut self, workers: &[Arc<WorkerShared>]) -> bool {
        if self.marks.is_empty() {
            return true;
        }
        loop {
            self.marks.retain(|mark| !mark.is_passed());
            if !self.marks.is_empty() || self.hops == 0 {
                return self.marks.is_empty();
            }
            self.hops -= 1;
            self.marks = workers.iter().flat_map(|worker| worker.inbox.marks()).collect();
            if self.marks.is_empty() {
                return true;
            }
        }
    }
}

impl Room {
    /// Takes as much of the room as there is, up to `wanted`.
    fn reserve(&self, wanted: usize) -> usize {
        let used = self.used.fetch_add(wanted, Ordering::Acquire);
        let fits = self.limit.saturating_sub(used).min(wanted);
        if fits < wanted {
            self.used.fetch_sub(wanted - fits, Ordering::Relaxed);
        }
        fits
    }
}

impl Way {
    /// Opens a lane to a worker for an errand; no more than `limit` frames wait for it, whoever
    /// gave them.
    pub(super) fn open(to: &Arc<WorkerShared>, errand: Errand, limit: usize) -> Way {
        let (giver, taker) = handoff(limit);
        let progress = giver.progress();
        let lane = to.inbox.add_lane(|lanes| {
            let same = lanes.iter().find(|lane| lane.errand == errand);
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
        });
        Way { lane, giver, to: Arc::clone(to), is_used: true }
    }

    /// Whether it leads to that worker.
    pub(super) fn leads_to(&self, worker: &Arc<WorkerShared>) -> bool {
        Arc::ptr_eq(&self.to, worker)
    }

    /// Gives the worker what there is room for, and wakes it unless that is `from`; the rest
    /// stays. Gives how many went.
    #[inline]
    pub(super) fn give(&mut self, from: usize, frames: &mut Vec<Frame>) -> usize {
        if self.lane.is_closed.load(Ordering::Relaxed) {
            return 0;
        }
        let room = self.lane.room.as_ref();
        let credit = room.map_or(frames.len(), |room| room.reserve(frames.len()));
        let count = self.giver.give(frames, credit);
        debug_assert!(room.is_none() || count == credit, "the ring has the room that it says");
        // A worker that never sleeps need not be woken.
        if count > 0 && self.to.number != from && self.to.mode == Mode::Adaptive {
            self.to.waker.wake();
        }
        count
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.lane.is_left.store(true, Ordering::Release);
    }
}

/// A program of a cpumap's entry may hand a frame on to another entry, and so on. A fence waits for
/// no more than so many hand-overs in a row.
const HOPS_MAX: usize = 4;
