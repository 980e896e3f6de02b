//! Quiescent-state reclamation: decides when memory that readers could still hold may be reused.
//!
//! A worker announces once per packet batch that it holds no address from any map
//! ([`Domain::quiesce`]); a user thread holds a short [`Guard`]. Something that was unlinked at
//! *tag* T may be reused once every reader has announced an epoch later than T. A look-up costs
//! nothing this way, where a pin for each look-up costs a third of it.
//!
//! For the elements of a map this protects meaning, not memory: their memory belongs to the map
//! as long as it lives. For whole maps inside maps it decides when they are freed.

use std::fmt;
use std::sync::Arc;

use crate::shared::Shared;
use crate::sync::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};

/// Announced by a reader that holds nothing until its next announcement.
const OFFLINE: u64 = u64::MAX;

/// Threads that may hold a [`Guard`] at the same moment; more of them wait.
const GUESTS_MAX: usize = if cfg!(loom) { 1 } else { 16 };

/// Readers of a group of maps.
pub struct Domain {
    /// Counts up when a reclaimer needs readers to show that they moved on.
    epoch: Shared<AtomicU64>,
    /// Each worker's last announcement.
    workers: Box<[Reader]>,
    /// As `workers`, claimed by guards.
    guests: Box<[Reader]>,
}

/// One reader's announcement, on a cache line of its own.
#[repr(align(128))]
struct Reader(AtomicU64);

impl Domain {
    /// A domain of `workers` workers (at least one). Each counts as a reader until it announces
    /// something, so a worker that never does only keeps things from being reused.
    pub fn new(workers: usize) -> Arc<Self> {
        let readers = |count: usize, state| {
            (0..count).map(|_| Reader(AtomicU64::new(state))).collect::<Box<[_]>>()
        };
        Arc::new(Domain {
            epoch: Shared::new(AtomicU64::new(1)),
            workers: readers(workers.max(1), 0),
            guests: readers(GUESTS_MAX, OFFLINE),
        })
    }

    /// Number of workers: the CPUs that per-CPU maps have.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Worker `worker` holds no address from a map at this moment. Call it between batches.
    pub fn quiesce(&self, worker: usize) {
        let (now, Reader(announced)) = (self.epoch.read().load(SeqCst), &self.workers[worker]);
        // Announcing the same epoch again changes nothing: elements unlinked in this epoch wait for
        // a later one.
        if announced.load(Relaxed) == now {
            return;
        }
        announced.store(now, SeqCst);
        fence(SeqCst);
    }

    /// Worker `worker` stops reading maps until its next [`Domain::quiesce`]: it sleeps or ends.
    pub fn offline(&self, worker: usize) {
        self.workers[worker].0.store(OFFLINE, SeqCst);
    }

    /// Makes the calling thread a reader as long as the guard lives. Keep it short.
    pub fn guard(&self) -> Guard<'_> {
        loop {
            let now = self.epoch.read().load(SeqCst);
            for Reader(slot) in &self.guests {
                if slot.compare_exchange(OFFLINE, now, SeqCst, SeqCst).is_ok() {
                    fence(SeqCst);
                    return Guard { slot };
                }
            }
            std::thread::yield_now();
        }
    }

    /// The tag of something that has just been unlinked.
    pub fn tag(&self) -> u64 {
        fence(SeqCst);
        self.epoch.read().load(SeqCst)
    }

    /// Whether every reader has moved on since `tag`.
    pub fn passed(&self, tag: u64) -> bool {
        fence(SeqCst);
        let passed = |reader: &Reader| reader.0.load(SeqCst) > tag;
        self.workers.iter().all(passed) && self.guests.iter().all(passed)
    }

    /// Whether a worker, whose thread asks, has moved on since `tag`; true for a number that is no
    /// worker's. Where not, nothing has [passed](Domain::passed).
    pub fn has_moved_on(&self, worker: usize, tag: u64) -> bool {
        self.workers.get(worker).is_none_or(|reader| reader.0.load(Relaxed) > tag)
    }

    /// The last announcement of a worker, for its own thread; `None` if there is no worker of this
    /// number.
    pub(crate) fn announced(&self, worker: usize) -> Option<u64> {
        self.workers.get(worker).map(|reader| reader.0.load(Relaxed))
    }

    /// Starts a new epoch, so that readers' next announcements are later than all tags so far.
    pub fn advance(&self) {
        self.epoch.write().fetch_add(1, SeqCst);
    }

    /// Makes readers' next announcements later than a tag; one call is enough for all elements with
    /// this tag.
    pub(crate) fn advance_from(&self, tag: u64) {
        if self.epoch.read().load(SeqCst) == tag {
            let _done_by_another =
                self.epoch.write().compare_exchange(tag, tag + 1, SeqCst, SeqCst);
        }
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

/// Makes the thread a reader of its domain while it lives.
#[derive(Debug)]
pub struct Guard<'a> {
    slot: &'a AtomicU64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.slot.store(OFFLINE, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_passes_when_every_reader_moved_on() {
        let domain = Domain::new(2);
        domain.quiesce(0);
        domain.quiesce(1);
        let tag = domain.tag();
        assert!(!domain.passed(tag));
        domain.advance();
        domain.quiesce(0);
        assert!(!domain.passed(tag), "worker 1 may still hold it");
        domain.offline(1);
        assert!(domain.passed(tag));
    }

    #[test]
    fn a_guard_is_a_reader() {
        let domain = Domain::new(1);
        domain.offline(0);
        let guard = domain.guard();
        let tag = domain.tag();
        domain.advance();
        assert!(!domain.passed(tag));
        drop(guard);
        assert!(domain.passed(tag));
    }
}
