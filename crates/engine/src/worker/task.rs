//! Tasks: what control code has a worker do between two bursts, a piece at a time, as itself:
//! nobody else may run programs under its number.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use towpath_maps::Domain;

use super::hook::HookRunner;
use super::nodes::Nodes;
use super::shared::WorkerShared;
use crate::snapshot::Snapshot;

/// Something to be done by a worker.
pub trait ControlTask: Send + 'static {
    /// The readers' group of the maps that it looks at.
    fn domain(&self) -> &Arc<Domain>;

    /// Does a piece of it. Traffic waits for that: it should take microseconds. Gives whether
    /// nothing is left to do.
    fn step(&mut self, context: &mut TaskContext<'_>) -> bool;
}

/// Worker state exposed to tasks.
pub struct TaskContext<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) runner: &'a mut HookRunner,
    pub(super) nodes: &'a mut Nodes,
}

impl TaskContext<'_> {
    /// What programs are run with.
    pub fn worker(&mut self) -> &mut towpath_xdp::Worker {
        &mut self.runner.xdp
    }
}

impl fmt::Debug for TaskContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").finish_non_exhaustive()
    }
}

/// A task of any kind, and who waits for its end.
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
            // Whoever does not wait any more does not want it.
            let _unwanted = self.reply.send(task);
        }
        true
    }
}

/// Where control code submits tasks of one worker.
#[derive(Debug)]
pub(crate) struct TaskSender(Sender<Box<dyn Task>>);

/// The tasks of one worker.
pub(crate) struct Tasks {
    submitted: Receiver<Box<dyn Task>>,
    /// Those that it is at.
    open: Vec<Box<dyn Task>>,
}

/// Both ends of a worker's tasks.
pub(crate) fn tasks() -> (TaskSender, Tasks) {
    let (sender, submitted) = channel();
    (TaskSender(sender), Tasks { submitted, open: Vec::new() })
}

impl TaskSender {
    /// Has the worker do something; what it made of it comes out of the receiver, or nothing does
    /// when the worker stops before.
    pub(crate) fn submit<T: ControlTask>(&self, worker: &WorkerShared, task: T) -> Receiver<T> {
        let (reply, receiver) = sync_channel(1);
        worker.inbox.announce();
        // A worker that is gone takes nothing: then the reply's end goes with the task.
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

    /// Takes up what was submitted; gives how many tasks that are.
    pub(super) fn take_up(&mut self) -> usize {
        let before = self.open.len();
        self.open.extend(self.submitted.try_iter());
        self.open.len() - before
    }

    /// Forgets all of them; whoever waits for one learns that.
    pub(super) fn clear(&mut self) {
        self.take_up();
        self.open.clear();
    }

    /// Does a piece of each task; gives their number. The worker of that number is online in these
    /// domains.
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
