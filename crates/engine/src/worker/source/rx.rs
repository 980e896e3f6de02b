//! Receive queues as sources.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use towpath_xdp::{Frame, Pool};

use super::ready::{Source, Watch};
use super::spread::FlowSpread;
use super::zero_copy::UmemPool;
use crate::numbers::PortId;
use crate::opened::{Opened, ParkedRx};
use crate::options::BURST;
use crate::port::Rx;
use crate::snapshot::Snapshot;

/// A port's receive queue that the worker polls.
pub(crate) struct RxQueue {
    pub(crate) port: PortId,
    pub(crate) queue: u32,
    pub(crate) rx: Box<dyn Rx>,
    /// The slot for `rx` when the worker releases the queue.
    pub(crate) parked: Arc<ParkedRx>,
    pub(crate) opened: Arc<Opened>,
    pub(crate) is_finished: bool,
    pub(crate) watch: Watch,
    /// The application memory it receives into, if any.
    pub(crate) umem: Option<UmemPool>,
    /// Distribution of its frames to other workers, if the port spreads its flows.
    pub(crate) spread: Option<Box<FlowSpread>>,
}

impl Source for RxQueue {
    fn key(&self) -> u64 {
        u64::from(self.port.0) << 32 | u64::from(self.queue)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.rx.descriptor()
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn watch(&mut self) -> &mut Watch {
        &mut self.watch
    }
}

impl RxQueue {
    /// Receives a burst; returns its size.
    #[inline]
    pub(crate) fn receive(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        if self.is_finished || self.watch.is_quiet() {
            return 0;
        }
        debug_assert!(frames.is_empty(), "the burst before is gone");
        if let Some(umem) = &mut self.umem {
            umem.enter(pool);
        }
        let received = self.rx.receive(pool, frames, BURST);
        if let Some(umem) = &mut self.umem {
            umem.leave(pool);
        }
        let count = received.unwrap_or_else(|error| {
            self.fail(&error);
            frames.len()
        });
        debug_assert_eq!(count, frames.len(), "a queue counts right");
        self.watch.note(count);
        if count == 0 {
            self.note_end();
        }
        count
    }

    /// Marks the queue as failed, and records the reason at its port.
    #[cold]
    fn fail(&mut self, error: &std::io::Error) {
        self.is_finished = true;
        let mut failure = self.opened.failure.lock();
        failure.get_or_insert_with(|| format!("queue {}: {error}", self.queue));
        self.opened.failed.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn note_end(&mut self) {
        if self.rx.is_finished() {
            self.is_finished = true;
            self.parked.has_ended.store(true, Ordering::Relaxed);
        }
    }

    /// Counts frames that the queue lost before they could be received.
    pub(crate) fn count_missed(&mut self, worker: usize) {
        let missed = self.rx.take_missed();
        if missed > 0 {
            self.opened.counters[worker].rx_missed.add(missed);
        }
    }

    /// Adopts the application memory that a configuration assigns to the queue, if any.
    pub(crate) fn adopt_umem(&mut self, snapshot: &Snapshot) {
        let port = snapshot.port(self.port);
        let next = port.and_then(|port| UmemPool::of(port, self.queue));
        let stays = match (&self.umem, &next) {
            (Some(umem), Some(next)) => umem.is_same(next),
            (None, None) => true,
            _ => false,
        };
        if !stays {
            self.umem = next;
        }
    }
}
