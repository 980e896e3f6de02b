//! Tasks: what control code has a worker do between two bursts, a piece at a time, as itself:
//! nobody else may run programs under its number.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use towpath_maps::Domain;

use super::graph::Graph;
use super::hook::HookRunner;
use super::{Worker, WorkerShared};
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
    pub(super) graph: &'a mut Graph,
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
pub(crate) trait Task: Send {
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

impl fmt::Debug for dyn Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}

impl WorkerShared {
    /// Has the worker do something; what it made of it comes out of the receiver, or nothing does
    /// when the worker stops before.
    pub(crate) fn submit<T: ControlTask>(&self, task: T) -> Receiver<T> {
        let (reply, receiver) = sync_channel(1);
        self.inbox.submit(Box::new(Awaited { task: Some(task), reply }));
        self.waker.wake();
        receiver
    }
}

impl Worker {
    /// Does a piece of each task; gives their number.
    #[cold]
    pub(super) fn run_tasks(&mut self) -> usize {
        let Self { snapshot, runner, graph, domains, tasks, shared, .. } = self;
        shared.load.is_elsewhere();
        let mut context = TaskContext { snapshot, runner, graph };
        let count = tasks.len();
        tasks.retain_mut(|task| {
            let is_known = |domain: &Arc<Domain>| domains.iter().any(|it| Arc::ptr_eq(it, domain));
            let visited = task.domain().filter(|domain| !is_known(domain));
            if let Some(domain) = &visited {
                domain.quiesce(shared.number);
            }
            let is_done = task.step(&mut context);
            if let Some(domain) = &visited {
                domain.offline(shared.number);
            }
            !is_done
        });
        count
    }
}
