//! A worker: one thread that polls the queues it owns.
//!
//! ```text
//! source -- burst --> hook (programs, a row of targets) --> targets' queues --> one flush
//! ```

mod adopt;
mod bond;
mod bridge;
mod byte_limit;
mod cpu;
mod dequeue;
mod graph;
mod guest;
mod hook;
mod idle;
mod inbox;
mod launch;
mod live;
mod port_tx;
mod ready;
mod redirect;
mod scatter;
mod scheduler;
mod shared;
mod spread;
mod tap;
mod task;
mod tx_ring;
mod way;
mod zero_copy;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use towpath_maps::Domain;
use towpath_xdp::{Frame, Pool};

use crate::counters::DropReason;
use crate::dequeue::Reclaimer;
use crate::lane::Lane;
use crate::load::Stint;
use crate::numbers::PortId;
use crate::opened::{Opened, ParkedRx};
use crate::port::Rx;
use crate::snapshot::Snapshot;
use crate::target::{Owner, Side};
use dequeue::DequeueSource;
use graph::{BurstSummary, Graph};
use hook::HookRunner;
use idle::Idle;
pub use launch::LAUNCH_HORIZON;
pub use live::{LiveError, LiveRun};
use ready::{Ready, Source, Watch};
pub(crate) use shared::{WorkerShared, marks};
use spread::{FlowSpread, judge};
pub use task::{ControlTask, TaskContext};
pub(crate) use task::{TaskSender, Tasks, tasks};
use tx_ring::TxRing;
use zero_copy::UmemPool;

/// Frames received and judged at a time.
pub const BURST: usize = 64;

/// A port's receive queue that the worker polls.
struct RxQueue {
    port: PortId,
    queue: u32,
    rx: Box<dyn Rx>,
    /// Where it belongs when the worker lets go of it.
    parked: Arc<ParkedRx>,
    opened: Arc<Opened>,
    is_finished: bool,
    watch: Watch,
    /// Whose memory it receives into, if not our own.
    umem: Option<UmemPool>,
    /// Who else runs the port's programs on what comes by it.
    spread: Option<Box<FlowSpread>>,
}

/// The thread's state.
pub(crate) struct Worker {
    shared: Arc<WorkerShared>,
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
    /// By which others hand it frames, and the last one that it looked into.
    lanes: Vec<Arc<Lane>>,
    next_lane: usize,
    /// What control code has it do.
    tasks: Tasks,
    /// The burst in hand, and one that is taken apart.
    frames: Vec<Frame>,
    batch: Vec<Frame>,
    runner: HookRunner,
    graph: Graph,
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
            snapshot: Arc::default(),
            queues: Vec::new(),
            tx_rings: Vec::new(),
            ready: Ready::default(),
            dequeues: Vec::new(),
            awaited: Vec::new(),
            lanes: Vec::new(),
            next_lane: 0,
            tasks,
            frames: Vec::with_capacity(2 * BURST),
            batch: Vec::with_capacity(2 * BURST),
            runner,
            graph: Graph::new(shared, workers, reclaimer, pool),
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
        for index in 0..self.tx_rings.len() {
            work += self.poll_tx_ring(index);
        }
        if !self.tasks.is_empty() {
            work += self.run_tasks();
        }
        work += self.take_inbox();
        // Last, so that what came is in the queues.
        for index in 0..self.dequeues.len() {
            work += self.poll_dequeue(index);
        }
        if !self.graph.launches.is_empty() {
            work += self.launch_due();
        }
        self.graph.end_round(work >= BURST);
        if work > 0 && !self.stint.is_at_work {
            self.stint.begin(&self.shared.load);
        }
        work
    }

    /// Does a piece of what control code wants; gives how many tasks there were.
    #[cold]
    fn run_tasks(&mut self) -> usize {
        let Self { snapshot, runner, graph, domains, tasks, shared, .. } = self;
        shared.load.is_elsewhere();
        tasks.run(&mut TaskContext { snapshot, runner, graph }, shared.number, domains)
    }

    /// Receives one burst and sends it on its way.
    #[inline]
    fn poll(&mut self, index: usize) -> usize {
        let Self { snapshot, queues, frames, batch, runner, graph, shared, stint, .. } = self;
        let queue = &mut queues[index];
        let count = queue.receive(graph, frames);
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
            let (nobody, why) = (Owner::NOBODY, DropReason::Removed);
            graph.drop_all(snapshot, nobody, Side::Rx, why, frames);
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
            spread.share(snapshot, port, frames, batch, graph);
        }
        let known = known.filter(|_| queue.spread.is_none());
        judge(snapshot, port, frames, known, runner, graph);
        graph.expects_more = count == BURST;
        graph.flush(snapshot, runner);
        graph.expects_more = false;
        count
    }
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
    /// Receives a burst; gives its length.
    #[inline]
    fn receive(&mut self, graph: &mut Graph, frames: &mut Vec<Frame>) -> usize {
        if self.is_finished || self.watch.is_quiet() {
            return 0;
        }
        debug_assert!(frames.is_empty(), "the burst before is gone");
        if let Some(umem) = &mut self.umem {
            umem.enter(&mut graph.pool);
        }
        let received = self.rx.receive(&mut graph.pool, frames, BURST);
        if let Some(umem) = &mut self.umem {
            umem.leave(&mut graph.pool);
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

    /// The queue is of no more use; its port says why.
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
}
