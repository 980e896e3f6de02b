//! Nodes: the processing of frames at each kind of target. Each file here is a node: its state, and
//! its processing of frames that are pushed to it or flushed from its queue. A node does not know
//! the others: it returns a [`Next`], and [`Nodes`] carries it out.
//!
//! Before frames are queued, they are admitted ([`admit`]), prepared ([`prepare`]) and,
//! for a wire, held until their launch times ([`launch`]), as the target specifies. Then:
//!
//! | kind | node | push | flush |
//! |---|---|---|---|
//! | `Wire` | [`wire`] | | a port's transmitter |
//! | `Socket` | [`socket`] | | an AF_XDP socket |
//! | `Cpu` | [`cpu`] | | another worker |
//! | `Queue` | [`queue`] | | a map's queue |
//! | `Drop` | [`Graph`] | immediate for a whole burst | counted |
//! | `Bond` | [`bond`] | | a member for each frame |
//! | `BondTx` | [`bond`] | immediate: a member | |
//! | `Member` | [`bond`] | immediate: the bond's control plane | |
//! | `Bridge` | [`bridge`] | immediate: one port, all others, or none | |
//! | `Broadcast` | [`broadcast`] | immediate: a copy for each entry | |
//! | `EntryHook` | [`devmap`] | | the entry's program |
//! | `TxHook`, `GuestHook`, `RxHook`, `Arrive` | | | [the port's hook](mod@super::flush) |

pub(super) mod bond;
mod bridge;
mod broadcast;
mod cpu;
mod devmap;
pub(super) mod launch;
mod next;
mod prepare;
mod queue;
mod socket;
pub(super) mod wire;

use std::sync::Arc;

use towpath_maps::Map;
use towpath_xdp::{Frame, Pool};

use super::graph::{BurstSummary, Graph};
use super::shared::WorkerShared;
use crate::admit::admit;
use crate::bond::Choice;
use crate::counters::{Counter, DropReason, FrameCounters};
use crate::dequeue::Reclaimer;
use crate::hook::HookSpec;
use crate::lane::CpuEntry;
use crate::numbers::PortId;
use crate::snapshot::Snapshot;
use crate::target::{Exit, Kind, Owner, Side, Target, TargetId};
use bond::{Bonds, Dealt, view_of};
use bridge::Bridges;
use broadcast::Broadcast;
use cpu::Cpus;
use devmap::Entries;
use launch::Launches;
use next::Next;
use queue::Queues;
use socket::Sockets;
use wire::Wires;

/// All nodes of a worker.
pub(super) struct Nodes {
    pub(super) graph: Graph,
    pub(super) wires: Wires,
    pub(super) launches: Launches,
    pub(super) cpus: Cpus,
    pub(super) entries: Entries,
    queues: Queues,
    sockets: Sockets,
    bonds: Bonds,
    bridges: Bridges,
    broadcast: Broadcast,
    /// Buffer for the segments of a frame.
    pieces: Vec<Frame>,
}

impl Nodes {
    pub(super) fn new(
        shared: &Arc<WorkerShared>,
        workers: &Arc<[Arc<WorkerShared>]>,
        reclaimer: &Arc<Reclaimer>,
        pool: Pool,
    ) -> Nodes {
        Nodes {
            graph: Graph::new(shared, pool),
            wires: Wires::default(),
            launches: Launches::default(),
            cpus: Cpus::new(workers),
            entries: Entries::default(),
            queues: Queues::new(workers, reclaimer),
            sockets: Sockets::default(),
            bonds: Bonds::default(),
            bridges: Bridges::default(),
            broadcast: Broadcast::default(),
            pieces: Vec::new(),
        }
    }

    /// Adopts the ports and targets of a configuration. All queues must be empty.
    pub(super) fn adopt(&mut self, snapshot: &Snapshot) {
        self.wires.adopt(&mut self.graph, snapshot);
        self.bonds.adopt(snapshot, self.graph.number());
        self.adopt_targets(snapshot);
    }

    /// Adopts the targets of a configuration; targets of map entries are added again at their next
    /// use.
    fn adopt_targets(&mut self, snapshot: &Snapshot) {
        self.entries.clear();
        self.cpus.clear();
        self.queues.clear();
        self.graph.adopt(&snapshot.targets);
    }

    /// Pushes a frame to a target, where it is queued or processed immediately.
    #[inline]
    pub(super) fn push(&mut self, snapshot: &Snapshot, to: TargetId, frame: Frame) {
        let target = self.graph.target(to);
        if frame.is_plain() && frame.linear_len() <= target.plain_max as usize {
            let queue = target.queue;
            return self.enqueue(snapshot, queue, frame);
        }
        self.push_checked(snapshot, to, frame);
    }

    /// Pushes a burst to a target, in one piece if no frame needs checks or work. `known` is the
    /// burst's summary, if the caller has it.
    #[inline]
    pub(super) fn push_all(
        &mut self,
        snapshot: &Snapshot,
        to: TargetId,
        frames: &mut Vec<Frame>,
        known: Option<BurstSummary>,
    ) {
        if !self.graph.enqueue_all(snapshot, to, frames, known) {
            self.push_each(snapshot, to, frames);
        }
    }

    /// Pushes a burst frame by frame.
    #[inline(never)]
    fn push_each(&mut self, snapshot: &Snapshot, to: TargetId, frames: &mut Vec<Frame>) {
        let target = self.graph.target(to);
        if let (Kind::BondTx { bond }, Some(member)) = (target.kind, target.owner.port()) {
            self.push_by_members(snapshot, bond, frames, |to| bond::sent_back(member, to));
        }
        let mut burst = std::mem::take(frames);
        burst.drain(..).for_each(|frame| self.push(snapshot, to, frame));
        *frames = burst;
    }

    /// Pushes a frame that is not plain, or whose target processes each frame.
    #[inline(never)]
    fn push_checked(&mut self, snapshot: &Snapshot, to: TargetId, frame: Frame) {
        let target = *self.graph.target(to);
        let next = match (target.kind, target.owner.port()) {
            (Kind::Broadcast, _) => return self.push_broadcast(snapshot, frame),
            (Kind::Bridge(number), Some(port)) => {
                self.bridges.forward(snapshot, port, number as usize, &frame)
            }
            (Kind::Member { bond, then }, Some(port)) => {
                bond::pass_member(snapshot, port, bond, then, &frame)
            }
            (Kind::BondTx { bond }, Some(member)) => {
                self.bonds.send_back(snapshot, member, bond, &frame)
            }
            _ => return self.push_prepared(snapshot, &target, frame),
        };
        self.go_on(snapshot, &target, next, frame);
    }

    /// Carries out a node's decision.
    fn go_on(&mut self, snapshot: &Snapshot, at: &Target, next: Next<'_>, frame: Frame) {
        match next {
            Next::To(to) => self.push(snapshot, to, frame),
            Next::Flood(targets) => {
                let is_other = |target: &Target, _: &Frame| target.owner != at.owner;
                let nobody = (at.owner, DropReason::Bridge);
                self.copy_to(snapshot, frame, targets.iter().copied(), is_other, nobody);
            }
            Next::Drop(side, why) => self.graph.drop(snapshot, at.owner, side, why, frame),
            Next::Delivered => {
                self.graph.counters().delivered.add(1);
                self.graph.pool.give(frame);
            }
        }
    }

    /// Pushes a frame that may have to be converted before it is queued.
    fn push_prepared(&mut self, snapshot: &Snapshot, target: &Target, mut frame: Frame) {
        if let Err(why) = admit(target, snapshot, &frame) {
            return self.graph.drop(snapshot, target.owner, Side::Tx, why, frame);
        }
        let Some(features) = prepare::features(snapshot, target) else {
            return self.enqueue_or_hold(snapshot, target, frame);
        };
        if frame.offload().is_some() {
            let mut pieces = std::mem::take(&mut self.pieces);
            prepare::prepare(&mut self.graph, snapshot, (target, &features), frame, &mut pieces);
            pieces.drain(..).for_each(|piece| self.enqueue_or_hold(snapshot, target, piece));
            self.pieces = pieces;
            return;
        }
        if frame.has_frags() && !features.tx_frags {
            self.graph.pool.linearize(&mut frame);
        }
        self.enqueue_or_hold(snapshot, target, frame);
    }

    /// Queues a frame until the end of the burst, or holds it until its launch time.
    fn enqueue_or_hold(&mut self, snapshot: &Snapshot, target: &Target, frame: Frame) {
        let is_wire = self.graph.target(target.queue).kind == Kind::Wire;
        match (frame.launch_time(), target.owner.port()) {
            (Some(time_ns), Some(port)) if is_wire => {
                let held = self.launches.hold(&self.graph, port, time_ns, frame);
                if let Some((frame, next)) = held {
                    self.go_on(snapshot, target, next, frame);
                }
            }
            _ => {
                let bulk = self.graph.queue(target.queue);
                bulk.has_requests |= frame.has_tx_request();
                bulk.has_work |= frame.offload().is_some();
                self.enqueue(snapshot, target.queue, frame);
            }
        }
    }

    /// Queues a frame until the end of the burst.
    #[inline]
    fn enqueue(&mut self, snapshot: &Snapshot, queue: TargetId, frame: Frame) {
        if self.graph.enqueue(queue, frame) {
            self.overflow(snapshot, queue);
        }
    }

    /// Handles a long queue before the end of the burst: flushes it, unless a program is to run on
    /// it.
    #[cold]
    fn overflow(&mut self, snapshot: &Snapshot, queue: TargetId) {
        match self.graph.target(queue).kind {
            Kind::TxHook | Kind::GuestHook | Kind::Arrive | Kind::RxHook | Kind::EntryHook(_) => {}
            Kind::Bond => self.flush_bond(snapshot, queue),
            _ => self.flush_leaf(snapshot, queue),
        }
    }

    /// Pushes a copy to each target of a broadcast that takes the frame (`dev_map_enqueue_multi`).
    fn push_broadcast(&mut self, snapshot: &Snapshot, frame: Frame) {
        let targets = std::mem::take(&mut self.broadcast.targets);
        let takes = |target: &Target, frame: &Frame| admit(target, snapshot, frame).is_ok();
        let nobody = (self.broadcast.owner, DropReason::BadTarget);
        self.copy_to(snapshot, frame, targets.iter().copied(), takes, nobody);
        self.broadcast.targets = targets;
    }

    /// Pushes a copy to each target that `takes` the frame, and the frame itself to the last of
    /// them. If there is none, the frame is dropped with the reason given last.
    fn copy_to(
        &mut self,
        snapshot: &Snapshot,
        frame: Frame,
        targets: impl Iterator<Item = TargetId>,
        takes: impl Fn(&Target, &Frame) -> bool,
        (owner, nobody): (Owner, DropReason),
    ) {
        let mut last = None;
        for to in targets {
            if !takes(self.graph.target(to), &frame) {
                continue;
            }
            let Some(to) = last.replace(to) else { continue };
            self.graph.counters().created.add(1);
            match self.graph.pool.copy(&frame) {
                Some(copy) => self.push(snapshot, to, copy),
                // The missing copy counts as created and dropped.
                None => {
                    let why = DropReason::NoMemory;
                    self.graph.count_dropped(snapshot, owner, Side::Rx, why, 1);
                }
            }
        }
        match last {
            Some(to) => self.push(snapshot, to, frame),
            None => self.graph.drop(snapshot, owner, Side::Rx, nobody, frame),
        }
    }

    /// Pushes frames to the members that a bond chooses, in one piece for each member. Frames
    /// without a usable member stay in `frames`.
    #[inline]
    fn push_by_members(
        &mut self,
        snapshot: &Snapshot,
        bond: PortId,
        frames: &mut Vec<Frame>,
        exit: impl Fn(PortId) -> TargetId,
    ) {
        match self.bonds.deal(snapshot, bond, frames) {
            None => {}
            Some(Dealt::ToOne(member)) => self.push_all(snapshot, exit(member), frames, None),
            Some(Dealt::ToEach(members, mut lanes)) => {
                for (&member, lane) in members.iter().zip(&mut lanes) {
                    self.push_all(snapshot, exit(member), lane, None);
                }
                self.bonds.put_back(lanes);
            }
        }
    }

    /// Pushes the frames queued for a bond to its members (`bond_xdp_xmit`).
    #[cold]
    pub(super) fn flush_bond(&mut self, snapshot: &Snapshot, queue: TargetId) {
        let owner = self.graph.target(queue).owner;
        let mut frames = self.graph.take(queue);
        let known = owner.port().and_then(|bond| Some((bond, view_of(snapshot, bond)?)));
        if let Some((bond, view)) = known {
            if let Some(all) = &view.neighbours {
                for frame in bond::take_neighbours(&mut frames) {
                    self.copy_to_members(snapshot, owner, all, frame);
                }
            }
            match &view.choice {
                Choice::Nobody => {}
                Choice::All(members) if view.only.is_none() => frames
                    .drain(..)
                    .for_each(|frame| self.copy_to_members(snapshot, owner, members, frame)),
                _ => {
                    let exit = |member| Exit::Forward.at(member);
                    self.push_by_members(snapshot, bond, &mut frames, exit);
                }
            }
        }
        if !frames.is_empty() {
            let is_there = known.is_some();
            let why = if is_there { DropReason::NoMember } else { DropReason::Removed };
            self.graph.drop_all(snapshot, owner, Side::Tx, why, &mut frames);
        }
        self.graph.put_back(queue, frames);
    }

    /// Pushes a copy to each of these members.
    fn copy_to_members(
        &mut self,
        snapshot: &Snapshot,
        owner: Owner,
        members: &[PortId],
        frame: Frame,
    ) {
        let targets = members.iter().map(|&member| Exit::Forward.at(member));
        self.copy_to(snapshot, frame, targets, |_, _| true, (owner, DropReason::NoMember));
    }

    /// Processes the queue of a leaf target.
    pub(super) fn flush_leaf(&mut self, snapshot: &Snapshot, queue: TargetId) {
        let Self { graph, wires, sockets, cpus, queues, .. } = self;
        let target = *graph.target(queue);
        let bulk = graph.queue(queue);
        let (bytes, has_requests) = (bulk.bytes, std::mem::take(&mut bulk.has_requests));
        let mut frames = graph.take(queue);
        match (target.kind, target.owner.port()) {
            (Kind::Wire, Some(port)) if has_requests => {
                wires.transmit_and_tell(graph, snapshot, port, &mut frames);
            }
            (Kind::Wire, Some(port)) => {
                wires.transmit(graph, snapshot, port, &mut frames, bytes);
            }
            (Kind::Socket(place), _) => sockets.deliver(graph, snapshot, place, &mut frames),
            (Kind::Cpu(number), _) => {
                cpus.hand_over(graph, snapshot, number as usize, &mut frames);
            }
            (Kind::Queue(number), _) => {
                queues.put(graph, snapshot, number as usize, &mut frames);
            }
            (Kind::Drop(why, side), _) => {
                graph.drop_all(snapshot, target.owner, side, why, &mut frames);
            }
            _ => {
                let why = DropReason::Removed;
                graph.drop_all(snapshot, target.owner, Side::Tx, why, &mut frames);
            }
        }
        graph.put_back(queue, frames);
    }

    /// Ends a burst, when all queues are empty. If there are too many targets of map entries, all
    /// of them are discarded.
    #[inline]
    pub(super) fn end_burst(&mut self, snapshot: &Snapshot) {
        if self.graph.has_grown(snapshot.targets.len()) {
            self.adopt_targets(snapshot);
        }
        self.bridges.end_burst();
    }
}

/// Targets of redirects.
impl Nodes {
    /// The target for a cpumap entry's worker, if that exists.
    pub(super) fn cpu(&mut self, entry: CpuEntry) -> Option<TargetId> {
        self.cpus.target(&mut self.graph, entry)
    }

    /// The target for a map's queue; `None` if the map has none.
    pub(super) fn queue(&mut self, snapshot: &Snapshot, map: &Map) -> Option<TargetId> {
        self.queues.target(&mut self.graph, snapshot, map)
    }

    /// The target for a devmap entry: the port, through the entry's program if it has one.
    pub(super) fn device(&mut self, snapshot: &Snapshot, to: PortId, program: u32) -> TargetId {
        self.entries.target(&mut self.graph, snapshot, to, program)
    }

    /// The target for all ports of a devmap, except `without`.
    pub(super) fn all_devices(
        &mut self,
        snapshot: &Snapshot,
        hook: &HookSpec,
        map: &Map,
        without: Option<PortId>,
    ) -> TargetId {
        let Self { graph, entries, broadcast, .. } = self;
        broadcast.note(snapshot, hook, map, without, |to, program| {
            entries.target(graph, snapshot, to, program)
        });
        TargetId::BROADCAST
    }
}

/// Sending for sources that keep the frames a port has no room for.
impl Nodes {
    /// Number of frames that a port can take now ([`Tx::credit`](crate::port::Tx::credit)); for a
    /// bond, the lowest of its usable members. Programs of the port's `tx` hook can only reduce the
    /// number of frames. If no device would send the frames, the credit is unlimited, so that they
    /// are taken and dropped with a reason.
    pub(super) fn credit(&mut self, snapshot: &Snapshot, to: PortId) -> usize {
        match self.graph.target(Exit::Xmit.at(to)).kind {
            Kind::Wire => self.wires.credit(to),
            Kind::Bond => {
                let members = view_of(snapshot, to).map_or(&[][..], |view| view.choice.members());
                members.iter().map(|&it| self.credit(snapshot, it)).min().unwrap_or(usize::MAX)
            }
            _ => usize::MAX,
        }
    }

    /// Sends new frames out of a port immediately; frames beyond the port's room stay in `frames`.
    /// The caller has read [`Nodes::credit`], and no frame was sent since. Returns the number of
    /// frames sent or lost, and the reason why the others stay.
    pub(super) fn offer(
        &mut self,
        snapshot: &Snapshot,
        to: PortId,
        frames: &mut Vec<Frame>,
        credit: usize,
    ) -> (usize, DropReason) {
        assert!(frames.len() <= credit, "credit is never exceeded");
        if !self.are_sendable(Exit::Forward.at(to), frames) {
            frames.iter_mut().for_each(|frame| self.graph.pool.own(frame));
            let count = frames.len();
            self.graph.counters().created.add(count as u64);
            self.push_all(snapshot, Exit::Forward.at(to), frames, None);
            return (count, DropReason::RingFull);
        }
        self.send_first(snapshot, to, frames, |counters| &counters.created)
    }

    /// Like [`Nodes::offer`], for frames from a dequeue program, which must fit the port as they
    /// are.
    pub(super) fn offer_dequeued(
        &mut self,
        snapshot: &Snapshot,
        to: PortId,
        frames: &mut Vec<Frame>,
    ) -> usize {
        let exit = Exit::Redirect.at(to);
        if self.are_sendable(exit, frames) {
            let (done, _why) =
                self.send_first(snapshot, to, frames, |counters| &counters.taken_over);
            return done;
        }
        // At most as many frames as the transmitter has credit for.
        let count = frames.len().min(self.wires.credit(to));
        self.graph.counters().taken_over.add(count as u64);
        frames.drain(..count).for_each(|frame| self.push(snapshot, exit, frame));
        count
    }

    /// Whether these frames need no work, and go to a wire directly.
    fn are_sendable(&self, exit: TargetId, frames: &[Frame]) -> bool {
        let target = self.graph.target(exit);
        let longest = target.plain_max as usize;
        let is_plain = |frame: &Frame| frame.is_plain() && frame.linear_len() <= longest;
        let is_wire = self.graph.target(target.queue).kind == Kind::Wire;
        is_wire && frames.iter().all(is_plain)
    }

    /// Sends frames for which [`Nodes::are_sendable`] holds, ahead of queued ones; `from` selects
    /// the counter of their origin, which counts frames sent or lost.
    fn send_first(
        &mut self,
        snapshot: &Snapshot,
        to: PortId,
        frames: &mut Vec<Frame>,
        from: impl Fn(&FrameCounters) -> &Counter,
    ) -> (usize, DropReason) {
        let queue = Exit::Xmit.at(to);
        assert!(self.graph.queue(queue).frames.is_empty(), "nothing goes before");
        self.wires.send_first(&mut self.graph, snapshot, to, frames, from)
    }
}
