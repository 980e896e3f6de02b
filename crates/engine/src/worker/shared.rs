//! What control code and other workers know of a worker.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

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

/// What control code and other workers know of a worker.
#[derive(Debug)]
pub(crate) struct WorkerShared {
    pub(crate) number: usize,
    pub(crate) mode: Mode,
    /// The CPU it is to stay on.
    pub(crate) cpu: Option<usize>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) counters: FrameCounters,
    pub(crate) load: Load,
    pub(crate) flows: FlowCounts,
    pub(crate) inbox: Inbox,
    /// The configuration to adopt.
    snapshot: Mutex<Arc<Snapshot>>,
    /// Its generation.
    offered: AtomicU64,
    /// The generation the worker lives by, and who waits for it to change.
    adopted: Mutex<u64>,
    adopts: Condvar,
    stop: AtomicBool,
    /// What it runs.
    pub(crate) brake: Arc<Brake>,
    /// The system's number of its thread, from when that runs.
    pub(crate) thread: OnceLock<rustix::thread::Pid>,
    /// What it said when it panicked.
    pub(crate) panic: OnceLock<String>,
}

impl WorkerShared {
    pub(crate) fn new(number: usize, options: WorkerOptions) -> std::io::Result<WorkerShared> {
        Ok(WorkerShared {
            number,
            mode: options.mode,
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

    /// Keeps what a panic says: text, usually.
    pub(crate) fn note_panic(&self, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        self.panic.get_or_init(|| text.unwrap_or("it did not say why").to_owned());
    }

    /// Lets the worker adopt a configuration at its next pause. Gives the one before, for the
    /// caller to keep until the worker has let go of it.
    pub(crate) fn offer(&self, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
        let mut current = self.snapshot.lock();
        let before = std::mem::replace(&mut *current, Arc::clone(snapshot));
        self.offered.store(snapshot.generation, Ordering::Release);
        drop(current);
        self.waker.wake();
        before
    }

    /// Waits until the worker lives by this generation or a later one.
    pub(crate) fn wait_adopted(&self, generation: u64) {
        let mut adopted = self.adopted.lock();
        self.adopts.wait_while(&mut adopted, |adopted| *adopted < generation);
    }

    pub(crate) fn note_adopted(&self, generation: u64) {
        *self.adopted.lock() = generation;
        self.adopts.notify_all();
    }

    /// The generation that is offered.
    #[inline]
    pub(crate) fn offered(&self) -> u64 {
        self.offered.load(Ordering::Acquire)
    }

    /// Has it end its work.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether it is to end its work.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.lock())
    }
}

/// What all these workers were given and have not worked on.
pub(crate) fn marks(workers: &[Arc<WorkerShared>]) -> Vec<Mark> {
    workers.iter().flat_map(|worker| worker.inbox.marks()).collect()
}
