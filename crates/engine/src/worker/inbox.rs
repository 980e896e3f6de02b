//! A worker's inbox: lanes from other workers, packets to send, and a word of tasks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::counters::DropReason;
use crate::dequeue::Reclaimer;
use crate::lane::{Lane, Mark};
use crate::numbers::PortId;
use crate::options::BURST;

/// What a worker is given by others.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// The lanes that lead here.
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// Packets that control code wants to be sent.
    injected: Mutex<VecDeque<(PortId, Box<[u8]>)>>,
    /// Packets, tasks ([`Inbox::announce`]), and changes of the lanes that the worker has not seen.
    waiting: AtomicUsize,
    /// The same of lanes alone.
    changes: AtomicUsize,
    /// Nobody works on anything any more; read under the lock of what is added.
    is_closed: AtomicBool,
}

impl Inbox {
    /// Adds a lane, made in view of those there are.
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

    /// Brings what the worker knows of lanes up to date.
    pub(super) fn see_lanes(&self, known: &mut Vec<Arc<Lane>>) {
        let lanes = self.lanes.lock();
        let changes = self.changes.swap(0, Ordering::Relaxed);
        self.waiting.fetch_sub(changes, Ordering::Release);
        if changes > 0 {
            known.clone_from(&lanes);
        }
    }

    /// Whether frames were ever handed over.
    pub(crate) fn is_used(&self) -> bool {
        !self.lanes.lock().is_empty()
    }

    /// What was handed over so far and has not been worked on.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        let marks: Vec<Mark> = self.lanes.lock().iter().map(Lane::mark).collect();
        marks.into_iter().filter(|mark| !mark.is_passed()).collect()
    }

    /// Drops what was handed over to a worker that is gone.
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

    /// Has a packet sent, unless too many wait for that.
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

    /// A task is about to be there.
    pub(crate) fn announce(&self) {
        self.waiting.fetch_add(1, Ordering::Release);
    }

    /// So many of the tasks that were announced are there.
    pub(super) fn take_announced(&self, count: usize) {
        self.waiting.fetch_sub(count, Ordering::Release);
    }

    /// Nothing will be done any more that is not here yet.
    pub(crate) fn close(&self) {
        // Who adds something now does it before, or sees it.
        let lanes = self.lanes.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        lanes.iter().for_each(|lane| lane.close());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }
}

/// Packets of control code that wait for a worker.
const INJECTED_MAX: usize = 1024;
const _: () = assert!(INJECTED_MAX >= BURST, "a burst finds room");
