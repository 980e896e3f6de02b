//! TX rings of AF_XDP sockets as sources.

use std::sync::Arc;
use std::time::Instant;

use towpath_xdp::Frame;
use towpath_xdp::frame::RxInfo;

use crate::counters::DropReason;
use crate::options::BURST;
use crate::port::Wake;
use crate::snapshot::Snapshot;
use crate::sockets::Collect;
use crate::target::{Owner, Side};
use crate::worker::flush::flush;
use crate::worker::hook::HookRunner;
use crate::worker::nodes::Nodes;
use crate::worker::nodes::wire::REAP_PERIOD;

/// A socket's TX ring, whose packets this worker sends.
pub(crate) struct TxRing {
    collect: Collect,
    /// The port had no room for all packets at the last poll.
    is_stuck: bool,
}

impl TxRing {
    /// Prepares for the worker's sleep; returns the event that is to end it.
    pub(crate) fn arm(&self) -> Wake<'_> {
        // The ring is not empty, but the worker need not spin until the port has room.
        if self.is_stuck {
            return Wake::At(Instant::now() + REAP_PERIOD);
        }
        self.collect.served.socket.arm()
    }

    /// Notes that the descriptor from [`TxRing::arm`] is readable, or that its peer is gone.
    pub(crate) fn rang(&self, is_gone: bool) {
        self.collect.served.socket.rang(is_gone);
    }

    pub(crate) fn disarm(&self) {
        self.collect.served.socket.disarm();
    }

    /// Sends a socket's packets as far as there is room (`__xsk_generic_xmit`); returns the number
    /// of packets sent or dropped. The rest stays in the ring.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        snapshot: &Snapshot,
        frames: &mut Vec<Frame>,
        nodes: &mut Nodes,
        runner: &mut HookRunner,
    ) -> usize {
        let Collect { port, served } = &self.collect;
        if snapshot.port(*port).is_none() || !served.claim() {
            return 0;
        }
        if !served.socket.has_packets() {
            self.is_stuck = false;
            served.release();
            return 0;
        }
        let credit = nodes.credit(snapshot, *port);
        let limit = credit.min(BURST);
        let count = served.socket.collect(&mut nodes.graph.pool, frames, limit);
        let mut done = 0;
        if count > 0 {
            nodes.graph.shared.load.is_elsewhere();
            // These frames have no ingress.
            let nowhere = |rx: RxInfo| RxInfo { ifindex: 0, queue_index: 0, ..rx };
            frames.iter_mut().for_each(|frame| frame.rx = nowhere(frame.rx));
            let (taken, why) = nodes.offer(snapshot, *port, frames, credit);
            done = taken;
            if why != DropReason::RingFull {
                // The port cannot send at all, so the frames are dropped.
                done += frames.len();
                nodes.graph.shared.counters.created.add(frames.len() as u64);
                nodes.graph.drop_all(snapshot, Owner::of(*port), Side::Tx, why, frames);
            }
            flush(snapshot, nodes, runner, false);
            served.socket.sent(done);
            nodes.graph.pool.give_all(frames);
        }
        served.release();
        self.is_stuck = done < count || limit == 0;
        done
    }
}

/// Adopts the sockets that a configuration assigns to this worker.
pub(crate) fn adopt(rings: &mut Vec<TxRing>, next: &[Collect]) {
    let mut before = std::mem::take(rings).into_iter();
    // A socket that this worker no longer polls must signal new packets to its next worker.
    let gone = |ring: &TxRing| {
        let _wake = ring.collect.served.socket.arm();
    };
    for collect in next {
        let is_same = |ring: &TxRing| Arc::ptr_eq(&ring.collect.served, &collect.served);
        let ring = TxRing { collect: collect.clone(), is_stuck: false };
        // Both lists are mostly in the same order. A ring skipped here although it is still
        // assigned is made again later.
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
        rings.push(ring);
    }
    before.for_each(|ring| gone(&ring));
}
