//! Tasks: work of control code that a worker does between two bursts, step by step. Only the
//! worker's own thread may run programs under its number.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use towpath_maps::Domain;

use super::hook::HookRunner;
use super::nodes::Nodes;
use super::shared::WorkerShared;
use crate::snapshot::Snapshot;

/// A task to be run by a worker.
pub trait ControlTask: Send + 'static {
    /// The reader group of the maps that the task accesses.
    fn domain(&self) -> &Arc<Domain>;

    /// Runs one step. Traffic waits meanwhile, so a step should take microseconds. Returns whether
    /// the task is complete.
    fn step(&mut self, context: &mut TaskContext<'_>) -> bool;
}

/// Worker state exposed to tasks.
pub struct TaskContext<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) runner: &'a mut HookRunner,
    pub(super) nodes: &'a mut Nodes,
}

impl TaskContext<'_> {
    /// The context that programs run in.
    pub fn worker(&mut self) -> &mut towpath_xdp::Worker {
        &mut self.runner.xdp
    }
}

impl fmt::Debug for TaskContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").finish_non_exhaustive()
    }
}

/// A task of any type, with the caller that waits for it.
trait Task: Send {
    fn domain(&self) -> Option<Arc<Domain>>;

    fn step(&mut self, context: &mut TaskContext<'_>) -> bool;
}

struct Awaited<T> {
    task: Option<T>,
    reply: SyncSender<T>,
}

impl<T: ControlTask> Task for Awaited<T> {
    fn domain(&self) -> Option<Arc<Domain>> {
        self.task.as_ref().map(|task| Arc::clone(task.domain()))
    }

    fn step(&mut self, context: &mut TaskContext<'_>) -> bool {
        if !self.task.as_mut().is_none_or(|task| task.step(context)) {
            return false;
        }
        if let Some(task) = self.task.take() {
            // The send fails if the caller no longer waits.
            let _unwanted = self.reply.send(task);
        }
        true
    }
}

/// Control code's end of a worker's task channel.
#[derive(Debug)]
pub(crate) struct TaskSender(Sender<Box<dyn Task>>);

/// The worker's end of its task channel.
pub(crate) struct Tasks {
    submitted: Receiver<Box<dyn Task>>,
    /// Tasks in progress.
    open: Vec<Box<dyn Task>>,
}

/// Makes both ends of a worker's task channel.
pub(crate) fn tasks() -> (TaskSender, Tasks) {
    let (sender, submitted) = channel();
    (TaskSender(sender), Tasks { submitted, open: Vec::new() })
}

impl TaskSender {
    /// Submits a task. The receiver yields the completed task, or fails if the worker stops first.
    pub(crate) fn submit<T: ControlTask>(&self, worker: &WorkerShared, task: T) -> Receiver<T> {
        let (reply, receiver) = sync_channel(1);
        worker.inbox.announce();
        // If the worker is gone, the task is dropped with its reply channel.
        let _gone = self.0.send(Box::new(Awaited { task: Some(task), reply }));
        worker.waker.wake();
        receiver
    }
}

impl Tasks {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes up submitted tasks; returns their number.
    pub(super) fn take_up(&mut self) -> usize {
        let before = self.open.len();
        self.open.extend(self.submitted.try_iter());
        self.open.len() - before
    }

    /// Drops all tasks; callers that wait for one are told.
    pub(super) fn clear(&mut self) {
        self.take_up();
        self.open.clear();
    }

    /// Runs one step of each task; returns their number. Worker `worker` is online in `domains`.
    #[cold]
    pub(super) fn run(
        &mut self,
        context: &mut TaskContext<'_>,
        worker: usize,
        domains: &[Arc<Domain>],
    ) -> usize {
        let count = self.open.len();
        self.open.retain_mut(|task| {
            let is_known = |domain: &Arc<Domain>| domains.iter().any(|it| Arc::ptr_eq(it, domain));
            let visited = task.domain().filter(|domain| !is_known(domain));
            if let Some(domain) = &visited {
                domain.quiesce(worker);
            }
            let is_done = task.step(context);
            if let Some(domain) = &visited {
                domain.offline(worker);
            }
            !is_done
        });
        count
    }
}
