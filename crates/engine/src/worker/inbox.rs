//! A worker's inbox: lanes from other workers, packets to send, and announced tasks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::counters::DropReason;
use crate::dequeue::Reclaimer;
use crate::lane::{Lane, Mark};
use crate::numbers::PortId;
use crate::options::BURST;

/// Work for a worker from other threads.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// The lanes to this worker.
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// Packets to send for control code.
    injected: Mutex<VecDeque<(PortId, Box<[u8]>)>>,
    /// Number of packets, tasks ([`Inbox::announce`]) and changes of the lanes that the worker has
    /// not seen.
    waiting: AtomicUsize,
    /// Number of changes of the lanes that the worker has not seen.
    changes: AtomicUsize,
    /// The worker is gone; read under the lock of the list that is changed.
    is_closed: AtomicBool,
}

impl Inbox {
    /// Adds a lane; `make` gets the existing lanes.
    pub(super) fn add_lane(&self, make: impl FnOnce(&[Arc<Lane>]) -> Lane) -> Arc<Lane> {
        let mut lanes = self.lanes.lock();
        lanes.retain(|lane| !lane.is_over());
        let lane = Arc::new(make(&lanes));
        if self.is_closed() {
            lane.close();
        }
        lanes.push(Arc::clone(&lane));
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Release);
        lane
    }

    /// Updates the worker's list of lanes.
    pub(super) fn see_lanes(&self, known: &mut Vec<Arc<Lane>>) {
        let lanes = self.lanes.lock();
        let changes = self.changes.swap(0, Ordering::Relaxed);
        self.waiting.fetch_sub(changes, Ordering::Release);
        if changes > 0 {
            known.clone_from(&lanes);
        }
    }

    /// Whether there are lanes to this worker.
    pub(crate) fn is_used(&self) -> bool {
        !self.lanes.lock().is_empty()
    }

    /// Marks behind all frames handed over so far, of lanes with unprocessed frames.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        let marks: Vec<Mark> = self.lanes.lock().iter().map(Lane::mark).collect();
        marks.into_iter().filter(|mark| !mark.is_passed()).collect()
    }

    /// Drops frames handed over to a worker that is gone.
    pub(crate) fn sweep(&self, reclaimer: &Reclaimer) {
        let mut frames = Vec::new();
        for lane in self.lanes.lock().iter() {
            while lane.take(&mut frames, BURST) > 0 {}
            lane.finish();
        }
        if !frames.is_empty() {
            reclaimer.drop_all(&mut frames, DropReason::Removed);
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Queues a packet to send; returns `false` if too many wait.
    pub(crate) fn inject(&self, port: PortId, packet: &[u8]) -> bool {
        let mut injected = self.injected.lock();
        let fits = injected.len() < INJECTED_MAX;
        if fits {
            injected.push_back((port, packet.into()));
            self.waiting.fetch_add(1, Ordering::Release);
        }
        fits
    }

    pub(super) fn take_injected(&self) -> VecDeque<(PortId, Box<[u8]>)> {
        let mut injected = self.injected.lock();
        self.waiting.fetch_sub(injected.len(), Ordering::Release);
        std::mem::take(&mut injected)
    }

    /// Announces a task that is about to be submitted.
    pub(crate) fn announce(&self) {
        self.waiting.fetch_add(1, Ordering::Release);
    }

    /// Notes that `count` announced tasks were taken up.
    pub(super) fn take_announced(&self, count: usize) {
        self.waiting.fetch_sub(count, Ordering::Release);
    }

    /// Closes the inbox: later work will not be done.
    pub(crate) fn close(&self) {
        // The lock ensures that a concurrent addition is either complete or sees the closure.
        let lanes = self.lanes.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        lanes.iter().for_each(|lane| lane.close());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }
}

/// Most packets of control code that wait for a worker.
const INJECTED_MAX: usize = 1024;
const _: () = assert!(INJECTED_MAX >= BURST, "a burst finds room");
