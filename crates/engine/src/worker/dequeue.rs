//! Queues: frames into them, and a port's dequeue program as a source.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use towpath_bpf::Errno;
use towpath_maps::Map;
use towpath_xdp::queue::Keeper;
use towpath_xdp::{Dequeued, Frame, FrameQueue};

use super::byte_limit::ByteLimit;
use super::graph::Graph;
use super::hook::HookRunner;
use super::tx_ring::arrived_at;
use super::{BURST, Worker};
use crate::counters::DropReason;
use crate::dequeue::{Schedule, monotonic_ns};
use crate::numbers::PortId;
use crate::opened::Opened;
use crate::snapshot::{Port, Snapshot};
use crate::target::{Exit, Kind, Owner, Side, Target, TargetId};

/// A queue that programs of this worker redirect to.
pub(super) struct QueueTarget {
    queue: Arc<FrameQueue>,
    target: TargetId,
    /// Ports whose dequeue programs know it, with the workers that run those.
    readers: Vec<(Arc<Schedule>, usize)>,
}

/// A port's dequeue program, as the worker that runs it has it.
pub(super) struct DequeueSource {
    port: PortId,
    opened: Arc<Opened>,
    schedule: Arc<Schedule>,
    limit: ByteLimit,
    /// Bytes of a packet, as they were lately.
    usual_bytes: usize,
    /// How often the program is run at a time: fewer times where it had nothing to send in the end,
    /// since each of those runs is one in vain.
    runs: usize,
    /// What the program gave: packets that the port had no room for yet stay in it.
    dequeued: Dequeued,
}

impl Graph {
    /// The queue of a map, as a target; `None` when it is none.
    pub(super) fn queue(&mut self, snapshot: &Snapshot, map: &Map) -> Option<TargetId> {
        let queue = FrameQueue::of(map)?;
        let known = self.pifos.iter().find(|known| std::ptr::eq(&*known.queue, queue));
        if let Some(known) = known {
            return Some(known.target);
        }
        self.add_queue(snapshot, map)
    }

    #[cold]
    fn add_queue(&mut self, snapshot: &Snapshot, map: &Map) -> Option<TargetId> {
        let queue = FrameQueue::shared(map)?;
        queue.set_keeper(&(Arc::clone(&self.reclaimer) as Arc<dyn Keeper>));
        let hooks = snapshot.ports.iter().flatten().filter_map(|port| port.dequeue.as_ref());
        let readers = hooks.filter(|hook| hook.knows(map));
        let readers = readers.map(|hook| (Arc::clone(&hook.schedule), hook.worker)).collect();
        let kind = Kind::Queue(self.pifos.len() as u32);
        let target = self.add(|id| Target::open(id, Owner::NOBODY, kind));
        self.pifos.push(QueueTarget { queue, target, readers });
        Some(target)
    }

    /// Whether frames need a rank to get there.
    #[inline]
    pub(super) fn is_queue(&self, to: TargetId) -> bool {
        matches!(self.targets[to.index()].kind, Kind::Queue(_))
    }

    /// Puts frames into a queue; what that refuses is dropped where it arrived.
    pub(super) fn put_into_queue(
        &mut self,
        snapshot: &Snapshot,
        number: usize,
        frames: &mut Vec<Frame>,
    ) {
        let Some(QueueTarget { queue, readers, .. }) = self.pifos.get(number) else { return };
        let (count, mut refused) = (frames.len(), std::mem::take(&mut self.refused));
        queue.push_all(frames, monotonic_ns(), &mut refused);
        self.shared.counters.handed_over.add((count - refused.len()) as u64);
        for (schedule, worker) in readers {
            schedule.want();
            if *worker != self.shared.number {
                self.workers[*worker].waker.wake();
            }
        }
        for (frame, errno) in refused.drain(..) {
            let is_full = errno == Errno::EOVERFLOW;
            let why = if is_full { DropReason::QueueFull } else { DropReason::QueueRank };
            let owner = arrived_at(snapshot, frame.rx.ifindex);
            self.drop(snapshot, owner, Side::Rx, why, frame);
        }
        self.refused = refused;
    }

    /// Frames that a dequeue program dropped, or that are lost with it.
    fn drop_dequeued(
        &mut self,
        snapshot: &Snapshot,
        port: PortId,
        why: DropReason,
        frames: &mut Vec<Frame>,
    ) {
        if !frames.is_empty() {
            self.shared.counters.taken_over.add(frames.len() as u64);
            self.drop_all(snapshot, Owner::of(port), Side::Tx, why, frames);
        }
    }
}

impl Worker {
    /// Has the dequeue programs of the current configuration run here that belong here. What a port
    /// had no room for leaves it now, or is dropped with it.
    pub(super) fn adopt_dequeues(&mut self, before: &Snapshot) {
        let Self { snapshot, dequeues, graph, runner, shared, .. } = self;
        let mut old = std::mem::take(dequeues);
        for port in snapshot.ports.iter().flatten() {
            let Some(hook) = port.dequeue.as_ref() else { continue };
            if hook.worker != shared.number {
                continue;
            }
            // What waits in the queues may have come before the program.
            hook.schedule.want();
            let same =
                |it: &DequeueSource| it.port == port.id && Arc::ptr_eq(&it.opened, &port.opened);
            dequeues.push(match old.iter().position(same) {
                Some(place) => old.swap_remove(place),
                None => DequeueSource::new(port, &hook.schedule),
            });
        }
        for mut gone in old {
            let frames = &mut gone.dequeued.frames;
            let stays = snapshot
                .port(gone.port)
                .is_some_and(|port| Arc::ptr_eq(&port.opened, &gone.opened));
            if stays && !frames.is_empty() {
                shared.counters.taken_over.add(frames.len() as u64);
                graph.push_all(snapshot, Exit::Redirect.at(gone.port), frames, None);
                graph.flush(snapshot, runner);
            } else {
                graph.drop_dequeued(before, gone.port, DropReason::Removed, frames);
            }
            gone.tell();
        }
    }

    /// Runs a port's dequeue program as far as it is wanted and the port has room; gives how many
    /// packets it is done with.
    #[inline]
    pub(super) fn poll_dequeue(&mut self, index: usize) -> usize {
        let Self { snapshot, dequeues, graph, runner, .. } = self;
        let source = &mut dequeues[index];
        if !source.has_work() {
            return 0;
        }
        source.poll(snapshot, graph, runner)
    }

    /// Whether some port has no room for what is to leave it.
    pub(super) fn waits_for_room(&self) -> bool {
        let is_up = |port: PortId| self.snapshot.port(port).is_some_and(|port| port.is_target);
        self.dequeues.iter().any(|source| source.has_work() && is_up(source.port))
    }
}

impl DequeueSource {
    fn new(port: &Port, schedule: &Arc<Schedule>) -> DequeueSource {
        DequeueSource {
            port: port.id,
            opened: Arc::clone(&port.opened),
            schedule: Arc::clone(schedule),
            limit: ByteLimit::default(),
            usual_bytes: BYTES_FIRST,
            runs: 1,
            dequeued: Dequeued::default(),
        }
    }

    #[inline]
    fn has_work(&self) -> bool {
        !self.dequeued.frames.is_empty() || self.schedule.is_wanted()
    }

    fn poll(&mut self, snapshot: &Snapshot, graph: &mut Graph, runner: &mut HookRunner) -> usize {
        // A port that is down gets nothing, and loses nothing.
        let Some(port) = snapshot.port(self.port).filter(|port| port.is_target) else { return 0 };
        let now_ns = monotonic_ns();
        let mut done = 0;
        while done < BURST {
            let credit = graph.wire_credit(self.port);
            let room = self.limit.look(credit, now_ns);
            if credit == 0 || room == 0 {
                if room == 0 {
                    self.limit.keeps_back();
                }
                break;
            }
            if self.dequeued.frames.is_empty() {
                let runs = self.runs.min(credit).min(room / self.usual_bytes).max(1);
                done += self.run(port, (runs, now_ns), snapshot, graph, runner);
            }
            let sent = self.send(snapshot, graph, runner);
            done += sent;
            if sent == 0 || self.dequeued.ran_dry {
                break;
            }
        }
        self.tell();
        done
    }

    /// Runs the program; gives how many packets it dropped.
    fn run(
        &mut self,
        port: &Port,
        (runs, now_ns): (usize, u64),
        snapshot: &Snapshot,
        graph: &mut Graph,
        runner: &mut HookRunner,
    ) -> usize {
        let Some(hook) = &port.dequeue else { return 0 };
        let link = hook.link();
        let counters = &link.counters()[runner.number];
        let dequeued = &mut self.dequeued;
        self.schedule.begin();
        let timers = link.program.dequeue(&mut runner.xdp, (port.ifindex, runs), now_ns, dequeued);
        counters.runs.add(runs as u64);
        let faults = dequeued.faults.len() + usize::from(timers.is_err());
        counters.faults.add(faults as u64);
        dequeued.faults.clear();
        if dequeued.ran_dry {
            self.runs = (self.runs / 2).max(1);
        } else {
            self.runs = (self.runs * 2).min(RUNS);
            self.schedule.want();
        }
        let dropped = dequeued.dropped.len();
        let (why, lost) = (DropReason::Dequeue, DropReason::Aborted);
        graph.drop_dequeued(snapshot, port.id, why, &mut dequeued.dropped);
        graph.drop_dequeued(snapshot, port.id, lost, &mut dequeued.lost);
        dropped
    }

    /// Sends what there is room for; the rest stays. Gives how many packets are done with.
    fn send(&mut self, snapshot: &Snapshot, graph: &mut Graph, runner: &mut HookRunner) -> usize {
        let frames = &mut self.dequeued.frames;
        let lengths: Lengths = std::array::from_fn(|at| frames.get(at).map_or(0, |it| it.len()));
        let done = graph.offer_dequeued(snapshot, self.port, frames);
        graph.flush(snapshot, runner);
        for &length in lengths.iter().take(done) {
            self.limit.sent(length);
            self.usual_bytes = (self.usual_bytes * 7 + length).div_ceil(8);
        }
        done
    }

    /// Says how things are.
    fn tell(&self) {
        let Schedule { limit_bytes, in_flight_bytes, kept, .. } = &*self.schedule;
        limit_bytes.store(self.limit.limit().unwrap_or(0) as u64, Relaxed);
        in_flight_bytes.store(self.limit.in_flight() as u64, Relaxed);
        kept.store(self.dequeued.frames.len() as u64, Relaxed);
    }
}

/// Runs of a dequeue program at a time, as proposed (`DEV_MAP_BULK_SIZE`).
const RUNS: usize = 16;
type Lengths = [usize; RUNS];
/// Packets are taken for as long as the usual largest ones, until some were seen.
const BYTES_FIRST: usize = 1514;
