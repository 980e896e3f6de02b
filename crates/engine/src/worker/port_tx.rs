//! A port's wire, as one worker sends to it.

use std::sync::Arc;

use towpath_xdp::{Frame, Pool, Sent as SentFrame, tai_now};

use super::graph::Graph;
use crate::bond::Turn;
use crate::counters::{Counter, DropReason, FrameCounters};
use crate::numbers::PortId;
use crate::opened::Opened;
use crate::port::Tx;
use crate::snapshot::Snapshot;
use crate::target::{Exit, Kind, Owner, Side, TargetId};

/// One port as this worker sends to it.
pub(super) struct PortTx {
    pub(super) opened: Arc<Opened>,
    tx: Option<Box<dyn Tx>>,
    /// Which member of a bond is next.
    pub(super) turn: Turn,
}

/// What became of frames that a transmitter was given.
#[derive(Clone, Copy)]
struct Sent {
    count: u64,
    bytes: u64,
    lost: usize,
}

impl PortTx {
    pub(super) fn new(opened: &Arc<Opened>, worker: usize) -> PortTx {
        let tx = opened.tx.get(worker).and_then(|parked| parked.take());
        PortTx { opened: Arc::clone(opened), tx, turn: Turn::new(worker) }
    }

    /// What the device has not sent yet is its own affair; our memory comes back with it.
    pub(super) fn park(mut self, worker: usize, pool: &mut Pool) {
        self.reap(pool);
        if let (Some(tx), Some(place)) = (self.tx, self.opened.tx.get(worker)) {
            place.put(tx);
        }
    }

    /// How many frames there is room for.
    fn credit(&mut self) -> usize {
        self.tx.as_mut().map_or(0, |tx| tx.credit())
    }

    /// Gives frames to the transmitter, in order. What cannot be sent is added to `lost`; what
    /// there is no room for stays, for the reason that is given.
    fn transmit(
        &mut self,
        frames: &mut Vec<Frame>,
        lost: &mut Vec<Frame>,
        pool: &mut Pool,
    ) -> DropReason {
        let Some(tx) = &mut self.tx else { return DropReason::Unsupported };
        while !frames.is_empty() {
            let Err(error) = tx.transmit(frames, pool) else { break };
            self.opened.note_tx_error(&error);
            lost.extend(frames.drain(..frames.len().min(1)));
        }
        DropReason::RingFull
    }

    /// Has the transmitter send what it holds.
    #[inline]
    pub(super) fn flush(&mut self, pool: &mut Pool) {
        if let Some(Err(error)) = self.tx.as_mut().map(|tx| tx.flush(pool)) {
            self.opened.note_tx_error(&error);
        }
    }

    /// Has it send some; gives whether it waits for more.
    pub(super) fn flush_some(&mut self, pool: &mut Pool) -> bool {
        let Some(tx) = &mut self.tx else { return false };
        tx.flush_some(pool).unwrap_or_else(|error| {
            self.opened.note_tx_error(&error);
            false
        })
    }

    pub(super) fn reap(&mut self, pool: &mut Pool) -> bool {
        self.tx.as_mut().is_some_and(|tx| tx.reap(pool))
    }
}

impl Graph {
    /// Sends frames that waited; what there is no room for is dropped. Gives how many were sent.
    pub(super) fn transmit(
        &mut self,
        snapshot: &Snapshot,
        port: PortId,
        frames: &mut Vec<Frame>,
        bytes: usize,
    ) -> u64 {
        self.note_departure(snapshot, port, frames);
        let (sent, why) = self.send(port, frames, bytes);
        self.count_sent(snapshot, port, sent);
        if !frames.is_empty() {
            self.drop_all(snapshot, Owner::of(port), Side::Tx, why, frames);
        }
        sent.count
    }

    /// The same where programs want to know when some of them were sent: each goes by itself, so
    /// that its time is its own.
    #[cold]
    pub(super) fn transmit_and_tell(
        &mut self,
        snapshot: &Snapshot,
        port: PortId,
        frames: &mut Vec<Frame>,
    ) {
        let ifindex = snapshot.port(port).map_or(0, |port| port.ifindex);
        let mut alone = std::mem::take(&mut self.alone);
        for mut frame in frames.drain(..) {
            let (request, bytes) = (frame.take_tx_request(), frame.len());
            alone.push(frame);
            let is_sent = self.transmit(snapshot, port, &mut alone, bytes) == 1;
            let Some(request) = request else { continue };
            if let Some(Some(to)) = self.ports.get_mut(port.0 as usize) {
                to.flush(&mut self.pool);
            }
            let sent = is_sent.then(|| SentFrame { timestamp_ns: tai_now(), ifindex });
            self.pool.arena().tx_timestamps().end(request, sent);
        }
        self.alone = alone;
    }

    /// The one way to a transmitter. Leaves what there is no room for, with the reason; what could
    /// not be sent waits to be counted.
    fn send(&mut self, port: PortId, frames: &mut Vec<Frame>, bytes: usize) -> (Sent, DropReason) {
        let before = frames.len();
        let lost = &mut self.scratch;
        debug_assert!(lost.is_empty(), "nobody else is at it");
        let mut why = DropReason::Removed;
        if let Some(Some(to)) = self.ports.get_mut(port.0 as usize) {
            why = to.transmit(frames, lost, &mut self.pool);
        }
        let unsent = lost.iter().chain(&*frames).map(|frame| frame.len()).sum::<usize>();
        let count = (before - lost.len() - frames.len()) as u64;
        let sent = Sent { count, bytes: (bytes - unsent) as u64, lost: lost.len() };
        (sent, why)
    }

    /// Looks where the frames of some bursts came from.
    #[inline]
    fn note_departure(&self, snapshot: &Snapshot, to: PortId, frames: &[Frame]) {
        if self.shared.flows.is_asked()
            && let Some(port) = snapshot.port(to)
        {
            let from = frames.iter().map(|frame| frame.rx.ifindex);
            self.shared.flows.note(from, port.ifindex);
        }
    }

    fn count_sent(&mut self, snapshot: &Snapshot, port: PortId, sent: Sent) {
        if let Some(Some(to)) = self.ports.get(port.0 as usize) {
            let counters = &to.opened.counters[self.shared.number];
            counters.tx_packets.add(sent.count);
            counters.tx_bytes.add(sent.bytes);
        }
        self.shared.counters.delivered.add(sent.count);
        if sent.lost > 0 {
            let mut lost = std::mem::take(&mut self.scratch);
            self.drop_all(snapshot, Owner::of(port), Side::Tx, DropReason::TxError, &mut lost);
            self.scratch = lost;
        }
    }

    /// How many frames a port can take now ([`Tx::credit`]); of a bond, what whichever member is
    /// chosen can. Programs of its `tx` hook only make them fewer. What nobody would send is taken,
    /// to be dropped with its reason.
    pub(super) fn credit(&mut self, snapshot: &Snapshot, to: PortId) -> usize {
        match self.targets[Exit::Xmit.at(to).index()].kind {
            Kind::Wire => self.wire_credit(to),
            Kind::Bond => {
                let view = snapshot.port(to).and_then(|bond| bond.bond.as_ref());
                let members = view.map_or(&[][..], |view| view.choice.members());
                members.iter().map(|&it| self.credit(snapshot, it)).min().unwrap_or(usize::MAX)
            }
            _ => usize::MAX,
        }
    }

    /// How many frames its transmitter can take, whatever is before it.
    pub(super) fn wire_credit(&mut self, to: PortId) -> usize {
        let to = self.ports.get_mut(to.0 as usize).and_then(Option::as_mut);
        to.map_or(0, PortTx::credit)
    }

    /// Sends new frames out of a port at once, for a source that keeps what there is no room for:
    /// that stays. It has asked for [`Graph::credit`], and nothing was sent since. Gives how many
    /// are done with, sent or lost, and why the others stay.
    pub(super) fn offer(
        &mut self,
        snapshot: &Snapshot,
        to: PortId,
        frames: &mut Vec<Frame>,
        credit: usize,
    ) -> (usize, DropReason) {
        debug_assert!(frames.len() <= credit, "credit is never exceeded");
        if !self.are_sendable(Exit::Forward.at(to), frames) {
            frames.iter_mut().for_each(|frame| self.pool.own(frame));
            let count = frames.len();
            self.shared.counters.created.add(count as u64);
            self.push_all(snapshot, Exit::Forward.at(to), frames, None);
            return (count, DropReason::RingFull);
        }
        self.send_first(snapshot, to, frames, |counters| &counters.created)
    }

    /// The same for frames out of a queue, which must fit the port as they are.
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
        // As far as the transmitter says that it has room.
        let count = frames.len().min(self.wire_credit(to));
        self.shared.counters.taken_over.add(count as u64);
        frames.drain(..count).for_each(|frame| self.push(snapshot, exit, frame));
        count
    }

    /// Whether there is nothing to do to these frames, and nothing between them and the wire.
    fn are_sendable(&self, exit: TargetId, frames: &[Frame]) -> bool {
        let target = &self.targets[exit.index()];
        let longest = target.plain_max as usize;
        let is_plain = |frame: &Frame| frame.is_plain() && frame.linear_len() <= longest;
        let is_wire = self.targets[target.queue.index()].kind == Kind::Wire;
        is_wire && frames.iter().all(is_plain)
    }

    /// Sends such frames before all others; `from` counts those that are done with as new.
    fn send_first(
        &mut self,
        snapshot: &Snapshot,
        to: PortId,
        frames: &mut Vec<Frame>,
        from: impl Fn(&FrameCounters) -> &Counter,
    ) -> (usize, DropReason) {
        let (count, queue) = (frames.len(), Exit::Xmit.at(to));
        debug_assert!(self.queues[queue.index()].frames.is_empty(), "nothing goes before");
        self.note_departure(snapshot, to, frames);
        let bytes = frames.iter().map(|frame| frame.len()).sum();
        let (sent, why) = self.send(to, frames, bytes);
        let done = sent.count as usize + sent.lost;
        debug_assert_eq!(done + frames.len(), count, "no frame is lost track of");
        // What comes is counted before what goes.
        from(&self.shared.counters).add(done as u64);
        self.count_sent(snapshot, to, sent);
        if let Some(Some(to)) = self.ports.get_mut(to.0 as usize) {
            to.flush(&mut self.pool);
        }
        (done, why)
    }
}
