//! Frames of PIFO_XDP maps, which wait there until a dequeue program takes them out.
//!
//! A queue owns its frames. The engine sets, once, the receiver of frames that are left when the
//! map is freed ([`Reclaim`]).

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use towpath_bpf::Errno;
use towpath_maps::Map;
use towpath_maps::pifo::Packets;
use towpath_maps::ranks::Ranks;

use crate::frame::Frame;

mod waits;

pub use waits::Waits;

/// A queue of frames by rank, the lowest first, frames of one rank in the order of arrival.
pub struct FrameQueue {
    held: Mutex<Held>,
    reclaimer: OnceLock<Arc<dyn Reclaim>>,
}

/// Receiver of the frames of a queue whose map is freed.
pub trait Reclaim: Send + Sync {
    /// Takes all frames, and leaves `frames` empty.
    fn take_over(&self, frames: &mut Vec<Frame>);
}

struct Held {
    ranks: Ranks,
    /// Frames by element number.
    places: Vec<QueuedFrame>,
    counts: QueueCounts,
    waits: Waits,
}

/// A waiting frame, and since when it waits.
#[derive(Default)]
struct QueuedFrame {
    frame: Option<Frame>,
    since_ns: u64,
}

/// Counters of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Number of frames in it now.
    pub depth: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Frames that came in since the map was made.
    pub enqueued: u64,
    /// Frames that were taken out.
    pub dequeued: u64,
    /// Frames it had no room for (`-EOVERFLOW`).
    pub drops_full: u64,
    /// Frames whose rank was below the window (`-ERANGE`).
    pub drops_rank: u64,
    /// Frames that the dequeue program dropped.
    pub drops_program: u64,
}

/// Status of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Its counters.
    pub counts: QueueCounts,
    /// Median waiting time of frames that left recently, in nanoseconds; 0 if none did.
    pub wait_p50_ns: u64,
    /// 99th percentile of the waiting time, in nanoseconds.
    pub wait_p99_ns: u64,
}

impl FrameQueue {
    /// The queue of a PIFO_XDP map; `None` for other maps.
    #[inline]
    pub fn of(map: &Map) -> Option<&FrameQueue> {
        map.pifo()?.packets(FrameQueue::new)
    }

    /// The same queue as an [`Arc`], which may outlive the map.
    pub fn shared(map: &Map) -> Option<Arc<FrameQueue>> {
        map.pifo()?.shared_packets(FrameQueue::new)
    }

    fn new(ranks: Ranks) -> FrameQueue {
        let (counts, waits) = (QueueCounts::default(), Waits::default());
        let held = Held { ranks, places: Vec::new(), counts, waits };
        FrameQueue { held: Mutex::new(held), reclaimer: OnceLock::new() }
    }

    /// Sets the receiver of frames that are left; only the first call has an effect.
    #[inline]
    pub fn set_reclaimer(&self, reclaimer: &Arc<dyn Reclaim>) {
        if self.reclaimer.get().is_none() {
            self.reclaimer.get_or_init(|| Arc::clone(reclaimer));
        }
    }

    /// Adds frames by their ranks; `frames` is empty afterwards. Refused frames are added to
    /// `refused`: `EOVERFLOW` if the queue is full, `ERANGE` if the rank is below the window.
    pub fn push_all(
        &self,
        frames: &mut Vec<Frame>,
        now_ns: u64,
        refused: &mut Vec<(Frame, Errno)>,
    ) {
        let held = &mut *self.held.lock();
        for mut frame in frames.drain(..) {
            let rank = u64::from(frame.take_rank());
            match held.ranks.push(rank) {
                Ok(element) => held.put(element as usize, frame, now_ns),
                Err(errno) => {
                    let is_full = errno == Errno::EOVERFLOW;
                    let counts = &mut held.counts;
                    let drops =
                        if is_full { &mut counts.drops_full } else { &mut counts.drops_rank };
                    *drops += 1;
                    refused.push((frame, errno));
                }
            }
        }
    }

    /// Takes out the next frame, with its rank.
    #[inline]
    pub fn pop(&self, now_ns: u64) -> Option<(Frame, u64)> {
        let held = &mut *self.held.lock();
        let next = held.ranks.pop()?;
        let place = &mut held.places[next.element as usize];
        let frame = place.frame.take();
        debug_assert!(frame.is_some(), "an element that counts is a frame");
        let frame = frame?;
        held.counts.depth -= 1;
        held.counts.bytes -= frame.len() as u64;
        held.counts.dequeued += 1;
        held.waits.add(now_ns.saturating_sub(place.since_ns));
        Some((frame, next.rank))
    }

    /// Notes that a frame that was taken out was dropped.
    pub(crate) fn note_drop(&self) {
        self.held.lock().counts.drops_program += 1;
    }

    /// Its status.
    pub fn status(&self) -> QueueStatus {
        let held = self.held.lock();
        let (wait_p50_ns, wait_p99_ns) = (held.waits.quantile(0.5), held.waits.quantile(0.99));
        QueueStatus { counts: held.counts, wait_p50_ns, wait_p99_ns }
    }
}

impl Held {
    #[inline]
    fn put(&mut self, element: usize, frame: Frame, since_ns: u64) {
        self.counts.depth += 1;
        self.counts.bytes += frame.len() as u64;
        self.counts.enqueued += 1;
        let place = QueuedFrame { frame: Some(frame), since_ns };
        match self.places.get_mut(element) {
            Some(unused) => {
                debug_assert!(unused.frame.is_none(), "the element is new");
                *unused = place;
            }
            // Element numbers count up before they are reused.
            None => self.places.push(place),
        }
        debug_assert!(element < self.places.len(), "elements are dense");
    }
}

impl Packets for FrameQueue {
    fn count(&self) -> u64 {
        self.held.lock().counts.depth
    }
}

impl Drop for FrameQueue {
    fn drop(&mut self) {
        let held = self.held.get_mut();
        let mut frames: Vec<Frame> = std::iter::from_fn(|| {
            let next = held.ranks.pop()?;
            held.places[next.element as usize].frame.take()
        })
        .collect();
        if let Some(reclaimer) = self.reclaimer.get().filter(|_| !frames.is_empty()) {
            reclaimer.take_over(&mut frames);
        }
    }
}

impl fmt::Debug for FrameQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameQueue").field("status", &self.status()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
