//! State of a worker that it shares with control code and other workers.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use towpath_xdp::Brake;

use super::inbox::Inbox;
use crate::counters::FrameCounters;
use crate::flow::FlowCounts;
use crate::lane::Mark;
use crate::load::Load;
use crate::options::{Mode, WorkerOptions};
use crate::snapshot::Snapshot;
use crate::waker::Waker;

/// State of a worker that it shares with control code and other workers.
#[derive(Debug)]
pub(crate) struct WorkerShared {
    pub(crate) number: usize,
    pub(crate) mode: Mode,
    /// Time without work after which an adaptive worker sleeps.
    pub(crate) spin: Duration,
    /// The CPU that the worker is configured to stay on.
    pub(crate) cpu: Option<usize>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) counters: FrameCounters,
    pub(crate) load: Load,
    pub(crate) flows: FlowCounts,
    pub(crate) inbox: Inbox,
    /// The configuration to adopt.
    snapshot: Mutex<Arc<Snapshot>>,
    /// Generation of that configuration.
    offered: AtomicU64,
    /// The generation that the worker has adopted; `adopts` signals a change.
    adopted: Mutex<u64>,
    adopts: Condvar,
    stop: AtomicBool,
    /// The program in progress, and the means to stop it.
    pub(crate) brake: Arc<Brake>,
    /// Thread id (TID) of the worker, once its thread runs.
    pub(crate) thread: OnceLock<rustix::thread::Pid>,
    /// The panic message, if the worker panicked.
    pub(crate) panic: OnceLock<String>,
}

impl WorkerShared {
    pub(crate) fn new(number: usize, options: WorkerOptions) -> std::io::Result<WorkerShared> {
        Ok(WorkerShared {
            number,
            mode: options.mode,
            spin: options.spin,
            cpu: options.cpu,
            waker: Arc::new(Waker::new()?),
            counters: FrameCounters::default(),
            load: Load::new(),
            flows: FlowCounts::default(),
            inbox: Inbox::default(),
            snapshot: Mutex::default(),
            offered: AtomicU64::new(0),
            adopted: Mutex::new(0),
            adopts: Condvar::new(),
            stop: AtomicBool::new(false),
            brake: Arc::default(),
            thread: OnceLock::new(),
            panic: OnceLock::new(),
        })
    }

    /// Keeps the message of a panic.
    pub(crate) fn note_panic(&self, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        self.panic.get_or_init(|| text.unwrap_or("it did not say why").to_owned());
    }

    /// Offers a configuration, which the worker adopts before its next round. Returns the previous
    /// one, for the caller to keep until the worker has released it.
    pub(crate) fn offer(&self, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
        let mut current = self.snapshot.lock();
        let before = std::mem::replace(&mut *current, Arc::clone(snapshot));
        self.offered.store(snapshot.generation, Ordering::Release);
        drop(current);
        self.waker.wake();
        before
    }

    /// Waits until the worker has adopted this generation or a later one.
    pub(crate) fn wait_adopted(&self, generation: u64) {
        let mut adopted = self.adopted.lock();
        self.adopts.wait_while(&mut adopted, |adopted| *adopted < generation);
    }

    pub(crate) fn note_adopted(&self, generation: u64) {
        *self.adopted.lock() = generation;
        self.adopts.notify_all();
    }

    /// The generation of the offered configuration.
    #[inline]
    pub(crate) fn offered(&self) -> u64 {
        self.offered.load(Ordering::Acquire)
    }

    /// Asks the worker to stop.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether the worker was asked to stop.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.lock())
    }
}

/// Marks behind all frames handed over to these workers and not yet processed.
pub(crate) fn marks(workers: &[Arc<WorkerShared>]) -> Vec<Mark> {
    workers.iter().flat_map(|worker| worker.inbox.marks()).collect()
}
