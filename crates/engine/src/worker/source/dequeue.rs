//! Dequeue programs as sources: sends the packets that a port's program takes out of queues.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use towpath_xdp::{Dequeued, Frame};

use super::byte_limit::ByteLimit;
use crate::counters::DropReason;
use crate::dequeue::{Schedule, monotonic_ns};
use crate::numbers::PortId;
use crate::opened::Opened;
use crate::options::BURST;
use crate::snapshot::{Port, Snapshot};
use crate::target::{Exit, Owner, Side};
use crate::worker::flush::flush;
use crate::worker::graph::Graph;
use crate::worker::hook::HookRunner;
use crate::worker::nodes::Nodes;

/// A port's dequeue program, with the state of the worker that runs it.
pub(crate) struct DequeueSource {
    port: PortId,
    opened: Arc<Opened>,
    schedule: Arc<Schedule>,
    limit: ByteLimit,
    /// Moving average of packet lengths in bytes.
    usual_bytes: usize,
    /// Number of runs of the program per call: fewer after it had nothing to send, to avoid runs
    /// without a result.
    runs: usize,
    /// Results of the program; packets that the port has no room for yet stay here.
    dequeued: Dequeued,
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

    /// Whether there is work that waits for room at the port.
    pub(crate) fn waits_for_room(&self, snapshot: &Snapshot) -> bool {
        let port = snapshot.port(self.port);
        self.has_work() && port.is_some_and(|port| port.is_target)
    }

    #[inline]
    fn has_work(&self) -> bool {
        !self.dequeued.frames.is_empty() || self.schedule.is_wanted()
    }

    /// Runs the program if requested and while the port has room; returns the number of packets
    /// sent or dropped.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        snapshot: &Snapshot,
        nodes: &mut Nodes,
        runner: &mut HookRunner,
    ) -> usize {
        if self.has_work() { self.work(snapshot, nodes, runner) } else { 0 }
    }

    fn work(&mut self, snapshot: &Snapshot, nodes: &mut Nodes, runner: &mut HookRunner) -> usize {
        // A port that is down gets no packets, and loses none.
        let Some(port) = snapshot.port(self.port).filter(|port| port.is_target) else { return 0 };
        let now_ns = monotonic_ns();
        let mut done = 0;
        while done < BURST {
            let credit = nodes.wires.credit(self.port);
            let room = self.limit.look(credit, now_ns);
            if credit == 0 || room == 0 {
                if room == 0 {
                    self.limit.keeps_back();
                }
                break;
            }
            if self.dequeued.frames.is_empty() {
                let runs = self.runs.min(credit).min(room / self.usual_bytes).max(1);
                done += self.run(port, (runs, now_ns), snapshot, nodes, runner);
            }
            let sent = self.send(snapshot, nodes, runner);
            done += sent;
            if sent == 0 || self.dequeued.ran_dry {
                break;
            }
        }
        self.tell();
        done
    }

    /// Runs the program; returns the number of packets it dropped.
    fn run(
        &mut self,
        port: &Port,
        (runs, now_ns): (usize, u64),
        snapshot: &Snapshot,
        nodes: &mut Nodes,
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
        drop_dequeued(&mut nodes.graph, snapshot, port.id, why, &mut dequeued.dropped);
        drop_dequeued(&mut nodes.graph, snapshot, port.id, lost, &mut dequeued.lost);
        dropped
    }

    /// Sends packets as far as there is room; the rest stays. Returns the number sent or lost.
    fn send(&mut self, snapshot: &Snapshot, nodes: &mut Nodes, runner: &mut HookRunner) -> usize {
        let frames = &mut self.dequeued.frames;
        let lengths: Lengths = std::array::from_fn(|at| frames.get(at).map_or(0, |it| it.len()));
        let done = nodes.offer_dequeued(snapshot, self.port, frames);
        flush(snapshot, nodes, runner, false);
        for &length in lengths.iter().take(done) {
            self.limit.sent(length);
            self.usual_bytes = (self.usual_bytes * 7 + length).div_ceil(8);
        }
        done
    }

    /// Publishes the statistics of [`Schedule`].
    fn tell(&self) {
        let Schedule { limit_bytes, in_flight_bytes, kept, .. } = &*self.schedule;
        limit_bytes.store(self.limit.limit().unwrap_or(0) as u64, Relaxed);
        in_flight_bytes.store(self.limit.in_flight() as u64, Relaxed);
        kept.store(self.dequeued.frames.len() as u64, Relaxed);
    }
}

/// Adopts the dequeue programs that a configuration assigns to this worker. Packets kept for a
/// program that leaves are sent now, or dropped if their port is gone.
pub(crate) fn adopt(
    dequeues: &mut Vec<DequeueSource>,
    (before, snapshot): (&Snapshot, &Snapshot),
    nodes: &mut Nodes,
    runner: &mut HookRunner,
) {
    let worker = nodes.graph.number();
    let mut old = std::mem::take(dequeues);
    for port in snapshot.ports.iter().flatten() {
        let Some(hook) = port.dequeue.as_ref() else { continue };
        if hook.worker != worker {
            continue;
        }
        // Packets may have been queued before the program was attached.
        hook.schedule.want();
        let same = |it: &DequeueSource| it.port == port.id && Arc::ptr_eq(&it.opened, &port.opened);
        dequeues.push(match old.iter().position(same) {
            Some(place) => old.swap_remove(place),
            None => DequeueSource::new(port, &hook.schedule),
        });
    }
    for mut gone in old {
        let frames = &mut gone.dequeued.frames;
        let stays =
            snapshot.port(gone.port).is_some_and(|port| Arc::ptr_eq(&port.opened, &gone.opened));
        if stays && !frames.is_empty() {
            nodes.graph.counters().taken_over.add(frames.len() as u64);
            nodes.push_all(snapshot, Exit::Redirect.at(gone.port), frames, None);
            flush(snapshot, nodes, runner, false);
        } else {
            drop_dequeued(&mut nodes.graph, before, gone.port, DropReason::Removed, frames);
        }
        gone.tell();
    }
}

/// Drops frames that a dequeue program dropped, or that are lost with it.
fn drop_dequeued(
    graph: &mut Graph,
    snapshot: &Snapshot,
    port: PortId,
    why: DropReason,
    frames: &mut Vec<Frame>,
) {
    if !frames.is_empty() {
        graph.counters().taken_over.add(frames.len() as u64);
        graph.drop_all(snapshot, Owner::of(port), Side::Tx, why, frames);
    }
}

/// Most runs of a dequeue program per call, as in the proposed kernel patches
/// (`DEV_MAP_BULK_SIZE`).
const RUNS: usize = 16;
const _: () = assert!(RUNS <= BURST, "packets of one call are a burst");
type Lengths = [usize; RUNS];
/// Assumed length of packets in bytes, until some were seen: the usual maximum.
const BYTES_FIRST: usize = 1514;
