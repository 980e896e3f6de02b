//! Frames from AF_XDP sockets' tx rings, and to the sockets.

use std::sync::Arc;
use std::time::Instant;

use towpath_xdp::Frame;
use towpath_xdp::frame::RxInfo;

use super::graph::Graph;
use super::idle::REAP_PERIOD;
use super::{BURST, Worker};
use crate::counters::DropReason;
use crate::port::Wake;
use crate::snapshot::Snapshot;
use crate::socket::QueueId;
use crate::sockets::{Collect, Served};
use crate::target::{Owner, Side};

/// A socket's tx ring, which this worker sends for the socket's application.
pub(super) struct TxRing {
    collect: Collect,
    /// The port had no room for all of it the last time.
    is_stuck: bool,
}

impl TxRing {
    /// What ends the worker's sleep.
    pub(super) fn arm(&self) -> Wake<'_> {
        // Its ring is not empty, but that is no reason to spin until the port's is.
        if self.is_stuck {
            return Wake::At(Instant::now() + REAP_PERIOD);
        }
        self.collect.served.socket.arm()
    }

    /// What was to end the sleep is readable.
    pub(super) fn rang(&self, is_gone: bool) {
        self.collect.served.socket.rang(is_gone);
    }

    pub(super) fn disarm(&self) {
        self.collect.served.socket.disarm();
    }
}

impl Worker {
    /// Has the sockets of the current configuration polled.
    pub(super) fn adopt_tx_rings(&mut self) {
        let next = self.snapshot.collects.get(self.shared.number).map_or(&[][..], |next| next);
        let mut before = std::mem::take(&mut self.tx_rings).into_iter();
        // Whoever is not polled any more has to ring, for whoever polls next.
        let gone = |ring: &TxRing| {
            let _wake = ring.collect.served.socket.arm();
        };
        for collect in next {
            let is_same = |ring: &TxRing| Arc::ptr_eq(&ring.collect.served, &collect.served);
            let ring = TxRing { collect: collect.clone(), is_stuck: false };
            // In the same order, mostly; what is taken for gone and is not, is new again.
            let mut is_new = true;
            while is_new && let Some(ring) = before.next() {
                is_new = !is_same(&ring);
                if is_new {
                    gone(&ring);
                }
            }
            if is_new {
                ring.disarm();
            }
            self.tx_rings.push(ring);
        }
        before.for_each(|ring| gone(&ring));
    }

    /// Sends what a socket has, as far as there is room (`__xsk_generic_xmit`); gives the number of
    /// packets that are done with. The rest stays in the ring.
    #[inline]
    pub(super) fn poll_tx_ring(&mut self, index: usize) -> usize {
        let Self { snapshot, tx_rings, graph, runner, frames, .. } = self;
        let ring = &mut tx_rings[index];
        let Collect { port, served } = &ring.collect;
        if snapshot.port(*port).is_none() || !served.claim() {
            return 0;
        }
        if !served.socket.has_packets() {
            ring.is_stuck = false;
            served.release();
            return 0;
        }
        let credit = graph.credit(snapshot, *port);
        let limit = credit.min(BURST);
        let count = served.socket.collect(&mut graph.pool, frames, limit);
        let mut done = 0;
        if count > 0 {
            graph.shared.load.is_elsewhere();
            // They arrived nowhere.
            let nowhere = |rx: RxInfo| RxInfo { ifindex: 0, queue_index: 0, ..rx };
            frames.iter_mut().for_each(|frame| frame.rx = nowhere(frame.rx));
            let (taken, why) = graph.offer(snapshot, *port, frames, credit);
            done = taken;
            if why != DropReason::RingFull {
                // There will never be room.
                done += frames.len();
                graph.shared.counters.created.add(frames.len() as u64);
                graph.drop_all(snapshot, Owner::of(*port), Side::Tx, why, frames);
            }
            graph.flush(snapshot, runner);
            served.socket.sent(done);
            graph.pool.give_all(frames);
        }
        served.release();
        ring.is_stuck = done < count || limit == 0;
        done
    }
}

impl Graph {
    /// All that a burst has for a socket (`__xsk_map_redirect`). What the socket does not take is
    /// dropped, whatever fallback its redirect named (`xsk_rcv`).
    #[inline]
    pub(super) fn deliver(&mut self, snapshot: &Snapshot, place: u32, frames: &mut Vec<Frame>) {
        let Some(served) = snapshot.sockets.at(place) else { return };
        let Some(from) = frames.first().map(arrival) else { return };
        if frames.iter().all(|frame| arrival(frame) == from) {
            self.deliver_run(snapshot, served, from, frames);
        } else {
            self.deliver_mixed(snapshot, served, frames);
        }
    }

    /// Frames that arrived at several places, as when programs of two guests answer what was
    /// flooded to both. A socket takes only what arrived where it is bound (`xsk_rcv_check`).
    #[cold]
    fn deliver_mixed(&mut self, snapshot: &Snapshot, served: &Served, frames: &mut Vec<Frame>) {
        let mut run = std::mem::take(&mut self.scratch);
        debug_assert!(run.is_empty(), "nobody else is at it");
        let mut rest = frames.drain(..).peekable();
        while let Some(from) = rest.peek().map(arrival) {
            run.extend(std::iter::from_fn(|| rest.next_if(|frame| arrival(frame) == from)));
            self.deliver_run(snapshot, served, from, &mut run);
        }
        self.scratch = run;
    }

    /// Frames that arrived at one place.
    #[inline]
    fn deliver_run(
        &mut self,
        snapshot: &Snapshot,
        served: &Served,
        from: QueueId,
        frames: &mut Vec<Frame>,
    ) {
        let count = frames.len();
        let delivered = served.socket.deliver_all(from, frames, &mut self.pool);
        debug_assert!(delivered <= count && frames.is_empty(), "a socket takes or drops all");
        self.shared.counters.delivered.add(delivered as u64);
        if delivered < count {
            let (owner, why) = (arrived_at(snapshot, from.ifindex), refusal(served, from));
            self.count_dropped(snapshot, owner, Side::Rx, why, (count - delivered) as u64);
        }
    }
}

/// The port of that ifindex, where frames arrived.
pub(super) fn arrived_at(snapshot: &Snapshot, ifindex: u32) -> Owner {
    snapshot.by_ifindex.get(ifindex).map_or(Owner::NOBODY, Owner::of)
}

/// Why a socket did not take a frame.
#[cold]
fn refusal(served: &Served, from: QueueId) -> DropReason {
    let is_here = served.socket.receives() && served.socket.bound_to() == Some(from);
    if is_here { DropReason::SocketFull } else { DropReason::NoSocket }
}

#[inline]
fn arrival(frame: &Frame) -> QueueId {
    QueueId { ifindex: frame.rx.ifindex, queue: frame.rx.queue_index }
}
