//! A worker: one thread that polls the queues it owns.
//!
//! ```text
//! source -- burst --> hook (programs, a row of targets) --> targets' queues --> one flush
//! ```

mod adopt;
mod flush;
mod graph;
mod guest;
mod hook;
mod idle;
mod inbox;
mod live;
mod nodes;
mod redirect;
mod scatter;
mod scheduler;
mod shared;
mod sleep;
mod source;
mod tap;
mod task;
mod way;

use std::sync::Arc;
use std::time::Instant;

use towpath_maps::Domain;
use towpath_xdp::{Frame, Pool};

use crate::dequeue::{Reclaimer, monotonic_ns};
use crate::load::Stint;
use crate::numbers::PortId;
use crate::options::BURST;
use crate::snapshot::Snapshot;
use crate::target::Exit;
use flush::flush;
use graph::BurstSummary;
use hook::HookRunner;
use idle::Idle;
pub use live::{LiveError, LiveRun};
use nodes::Nodes;
pub use nodes::launch::LAUNCH_HORIZON;
pub(crate) use shared::{WorkerShared, marks};
use source::dequeue::DequeueSource;
use source::handed::Lanes;
use source::ready::Ready;
use source::rx::RxQueue;
use source::tx_ring::TxRing;
pub use task::{ControlTask, TaskContext};
pub(crate) use task::{TaskSender, Tasks, tasks};

/// State of the worker's thread.
pub(crate) struct Worker {
    shared: Arc<WorkerShared>,
    workers: Arc<[Arc<WorkerShared>]>,
    snapshot: Arc<Snapshot>,
    /// Its sources: receive queues and sockets' TX rings.
    queues: Vec<RxQueue>,
    tx_rings: Vec<TxRing>,
    /// Receive queues with frames, among the queues that report them by a descriptor.
    ready: Ready,
    /// Dequeue programs that this worker runs.
    dequeues: Vec<DequeueSource>,
    /// Queues to poll that another worker still holds.
    awaited: Vec<(PortId, u32)>,
    /// Lanes by which workers hand it frames.
    lanes: Lanes,
    /// Tasks of control code.
    tasks: Tasks,
    /// The present burst; `batch` is a buffer to split it.
    frames: Vec<Frame>,
    batch: Vec<Frame>,
    runner: HookRunner,
    nodes: Nodes,
    /// Reader groups of all programs' maps.
    domains: Vec<Arc<Domain>>,
    idle: Idle,
    stint: Stint,
}

impl Worker {
    pub(crate) fn new(
        shared: &Arc<WorkerShared>,
        workers: &Arc<[Arc<WorkerShared>]>,
        reclaimer: &Arc<Reclaimer>,
        tasks: Tasks,
        pool: Pool,
    ) -> Worker {
        let mut runner = HookRunner::new(shared.number);
        runner.xdp.set_brake(&shared.brake);
        runner.xdp.set_tx_timestamps(Some(Arc::clone(pool.arena().tx_timestamps())));
        Worker {
            shared: Arc::clone(shared),
            workers: Arc::clone(workers),
            snapshot: Arc::default(),
            queues: Vec::new(),
            tx_rings: Vec::new(),
            ready: Ready::default(),
            dequeues: Vec::new(),
            awaited: Vec::new(),
            lanes: Lanes::default(),
            tasks,
            frames: Vec::with_capacity(2 * BURST),
            batch: Vec::with_capacity(2 * BURST),
            runner,
            nodes: Nodes::new(shared, workers, reclaimer, pool),
            domains: Vec::new(),
            idle: Idle::default(),
            stint: Stint::new(),
        }
    }

    /// Runs rounds until the worker is stopped.
    pub(crate) fn run(mut self) {
        loop {
            self.shared.counters.begin_round();
            if self.shared.offered() != self.snapshot.generation {
                let next = self.shared.current();
                self.adopt(next);
            }
            if self.shared.is_stopped() {
                break;
            }
            let work = self.round();
            self.rest(work);
        }
        self.finish();
        self.shared.counters.rest();
    }

    /// Polls all sources once; returns the number of frames and tasks processed.
    fn round(&mut self) -> usize {
        if !self.awaited.is_empty() {
            self.claim_awaited();
        }
        let mut work = 0;
        self.ready.look(&mut self.queues);
        for index in 0..self.queues.len() {
            work += self.poll(index);
        }
        let Self { snapshot, tx_rings, frames, nodes, runner, .. } = self;
        for ring in tx_rings {
            work += ring.poll(snapshot, frames, nodes, runner);
        }
        if !self.tasks.is_empty() {
            work += self.run_tasks();
        }
        work += self.take_inbox();
        // Last, so that frames of this round are in the queues already.
        let Self { snapshot, dequeues, nodes, runner, .. } = self;
        for source in dequeues {
            work += source.poll(snapshot, nodes, runner);
        }
        if !nodes.launches.is_empty() {
            work += launch_due(snapshot, nodes, runner);
        }
        nodes.wires.end_round(&mut nodes.graph.pool, work >= BURST);
        if work > 0 && !self.stint.is_at_work {
            self.stint.begin(&self.shared.load);
        }
        work
    }

    /// Runs one step of each task; returns the number of tasks.
    #[cold]
    fn run_tasks(&mut self) -> usize {
        let Self { snapshot, runner, nodes, domains, tasks, shared, .. } = self;
        shared.load.is_elsewhere();
        tasks.run(&mut TaskContext { snapshot, runner, nodes }, shared.number, domains)
    }

    /// Receives and processes one burst of a receive queue; returns its size.
    #[inline]
    fn poll(&mut self, index: usize) -> usize {
        let Self { snapshot, queues, frames, batch, runner, nodes, shared, stint, .. } = self;
        let queue = &mut queues[index];
        let count = queue.receive(&mut nodes.graph.pool, frames);
        if count == 0 {
            return 0;
        }
        // Noted before programs run, which may take long.
        if !stint.is_at_work {
            stint.begin(&shared.load);
        }
        shared.load.is_at(queue.port, queue.queue);
        // Counted first, so that a reader that sees the port's counters also sees these frames.
        shared.counters.received.add(count as u64);
        let Some(port) = snapshot.port(queue.port) else {
            nodes.graph.drop_removed(snapshot, frames);
            return count;
        };
        let (ifindex, number) = (port.ifindex, queue.queue);
        let arrivals = frames.iter_mut().map(|frame| (frame.arrive(ifindex, number), frame));
        // A program may change the frames, so that no summary is kept.
        let is_judged = port.has_rx_programs();
        let (bytes, known) = if is_judged {
            (arrivals.map(|(bytes, _)| bytes).sum(), None)
        } else {
            let all =
                arrivals.fold(BurstSummary::NOTHING, |all, (bytes, frame)| all.and(frame, bytes));
            (all.bytes, Some(all))
        };
        let counters = &port.opened.counters[shared.number];
        counters.rx_packets.add(count as u64);
        counters.rx_bytes.add(bytes as u64);
        if let Some(spread) = &mut queue.spread {
            spread.share(snapshot, port, frames, batch, &mut nodes.graph);
        }
        let known = known.filter(|_| queue.spread.is_none());
        runner.judge(snapshot, port, frames, known, nodes);
        flush(snapshot, nodes, runner, count == BURST);
        count
    }

    /// Processes work from other threads, of each lane at most a burst; returns its amount.
    #[inline]
    fn take_inbox(&mut self) -> usize {
        let asked = if self.shared.inbox.is_empty() { 0 } else { self.work_inbox() };
        if self.lanes.is_empty() {
            return asked;
        }
        let Self { snapshot, frames, lanes, nodes, runner, .. } = self;
        asked + lanes.poll(snapshot, frames, nodes, runner)
    }

    #[cold]
    fn work_inbox(&mut self) -> usize {
        let Self { shared, snapshot, runner, nodes, tasks, lanes, .. } = self;
        shared.load.is_elsewhere();
        lanes.see(&shared.inbox);
        let submitted = tasks.take_up();
        shared.inbox.take_announced(submitted);
        let asked = submitted + send_injected(snapshot, nodes);
        flush(snapshot, nodes, runner, false);
        asked
    }

    /// Drops the work that is left when the worker stops.
    fn drain_inbox(&mut self) {
        let Self { shared, snapshot, nodes, lanes, .. } = self;
        shared.inbox.close();
        shared.inbox.take_injected();
        lanes.see(&shared.inbox);
        lanes.drop_all(snapshot, &mut nodes.graph);
    }
}

/// Sends the packets of control code; returns their number.
fn send_injected(snapshot: &Snapshot, nodes: &mut Nodes) -> usize {
    let injected = nodes.graph.shared.inbox.take_injected();
    let count = injected.len();
    for (port, packet) in injected {
        if snapshot.port(port).is_none() {
            continue;
        }
        // A packet that is not a valid frame, or for which there is no memory, is lost, as on a
        // wire.
        if let Ok(Some(frame)) = nodes.graph.pool.frame(&packet) {
            nodes.graph.counters().created.add(1);
            nodes.push(snapshot, Exit::Forward.at(port), frame);
        }
    }
    count
}

/// Sends the frames whose launch time has come; returns their number.
#[cold]
fn launch_due(snapshot: &Snapshot, nodes: &mut Nodes, runner: &mut HookRunner) -> usize {
    let (now_ns, mut count) = (monotonic_ns(), 0);
    while let Some((port, frame)) = nodes.launches.take_due(&nodes.graph, now_ns) {
        nodes.push(snapshot, Exit::Xmit.at(port), frame);
        count += 1;
    }
    if count > 0 {
        flush(snapshot, nodes, runner, false);
    }
    count
}

/// Releases callers that wait for the worker, also if it panicked.
impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.inbox.close();
        self.stint.pause(&self.shared.load, Instant::now());
        self.shared.counters.rest();
        self.shared.note_adopted(u64::MAX);
    }
}
