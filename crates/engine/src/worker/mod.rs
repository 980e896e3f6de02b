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

/// The thread's state.
pub(crate) struct Worker {
    shared: Arc<WorkerShared>,
    workers: Arc<[Arc<WorkerShared>]>,
    snapshot: Arc<Snapshot>,
    /// Its sources: receive queues, sockets' tx rings, and its inbox.
    queues: Vec<RxQueue>,
    tx_rings: Vec<TxRing>,
    /// Which of the receive queues have frames, where the kernel says that.
    ready: Ready,
    /// Dequeue programs of ports.
    dequeues: Vec<DequeueSource>,
    /// Queues it should poll and another worker still holds.
    awaited: Vec<(PortId, u32)>,
    /// By which others hand it frames.
    lanes: Lanes,
    /// What control code has it do.
    tasks: Tasks,
    /// The burst in hand, and one that is taken apart.
    frames: Vec<Frame>,
    batch: Vec<Frame>,
    runner: HookRunner,
    nodes: Nodes,
    /// The readers' groups of all programs' maps.
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

    /// Works until told to stop.
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

    /// Polls everything once; gives the number of frames seen.
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
        // Last, so that what came is in the queues.
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

    /// Does a piece of what control code wants; gives how many tasks there were.
    #[cold]
    fn run_tasks(&mut self) -> usize {
        let Self { snapshot, runner, nodes, domains, tasks, shared, .. } = self;
        shared.load.is_elsewhere();
        tasks.run(&mut TaskContext { snapshot, runner, nodes }, shared.number, domains)
    }

    /// Receives one burst and sends it on its way.
    #[inline]
    fn poll(&mut self, index: usize) -> usize {
        let Self { snapshot, queues, frames, batch, runner, nodes, shared, stint, .. } = self;
        let queue = &mut queues[index];
        let count = queue.receive(&mut nodes.graph.pool, frames);
        if count == 0 {
            return 0;
        }
        // Now, and not after a program that takes long.
        if !stint.is_at_work {
            stint.begin(&shared.load);
        }
        shared.load.is_at(queue.port, queue.queue);
        // First, so that who sees the port's frames sees that there are frames.
        shared.counters.received.add(count as u64);
        let Some(port) = snapshot.port(queue.port) else {
            nodes.graph.drop_removed(snapshot, frames);
            return count;
        };
        let (ifindex, number) = (port.ifindex, queue.queue);
        let arrivals = frames.iter_mut().map(|frame| (frame.arrive(ifindex, number), frame));
        // A program changes what would be known.
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

    /// Works on what others have for it, of frames a burst; gives how much that was.
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

    /// Drops what nobody will work on any more.
    fn drain_inbox(&mut self) {
        let Self { shared, snapshot, nodes, lanes, .. } = self;
        shared.inbox.close();
        shared.inbox.take_injected();
        lanes.see(&shared.inbox);
        lanes.drop_all(snapshot, &mut nodes.graph);
    }
}

/// Sends what control code wants to be sent; gives the number of packets.
fn send_injected(snapshot: &Snapshot, nodes: &mut Nodes) -> usize {
    let injected = nodes.graph.shared.inbox.take_injected();
    let count = injected.len();
    for (port, packet) in injected {
        if snapshot.port(port).is_none() {
            continue;
        }
        // What is no frame, or finds no memory, is lost as on a wire.
        if let Ok(Some(frame)) = nodes.graph.pool.frame(&packet) {
            nodes.graph.counters().created.add(1);
            nodes.push(snapshot, Exit::Forward.at(port), frame);
        }
    }
    count
}

/// Sends the frames whose launch time has come; gives their number.
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

/// Nobody waits for a worker that is gone, even if it panicked.
impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.inbox.close();
        self.stint.pause(&self.shared.load, Instant::now());
        self.shared.counters.rest();
        self.shared.note_adopted(u64::MAX);
    }
}
