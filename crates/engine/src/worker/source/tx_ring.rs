//! Frames from AF_XDP sockets' tx rings.

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

/// A socket's tx ring, which this worker sends for the socket's application.
pub(crate) struct TxRing {
    collect: Collect,
    /// The port had no room for all of it the last time.
    is_stuck: bool,
}

impl TxRing {
    /// What ends the worker's sleep.
    pub(crate) fn arm(&self) -> Wake<'_> {
        // Its ring is not empty, but that is no reason to spin until the port's is.
        if self.is_stuck {
            return Wake::At(Instant::now() + REAP_PERIOD);
        }
        self.collect.served.socket.arm()
    }

    /// What was to end the sleep is readable.
    pub(crate) fn rang(&self, is_gone: bool) {
        self.collect.served.socket.rang(is_gone);
    }

    pub(crate) fn disarm(&self) {
        self.collect.served.socket.disarm();
    }

    /// Sends what a socket has, as far as there is room (`__xsk_generic_xmit`); gives the number of
    /// packets that are done with. The rest stays in the ring.
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
            // They arrived nowhere.
            let nowhere = |rx: RxInfo| RxInfo { ifindex: 0, queue_index: 0, ..rx };
            frames.iter_mut().for_each(|frame| frame.rx = nowhere(frame.rx));
            let (taken, why) = nodes.offer(snapshot, *port, frames, credit);
            done = taken;
            if why != DropReason::RingFull {
                // There will never be room.
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

/// Has the sockets of a configuration polled.
pub(crate) fn adopt(rings: &mut Vec<TxRing>, next: &[Collect]) {
    let mut before = std::mem::take(rings).into_iter();
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
        rings.push(ring);
    }
    before.for_each(|ring| gone(&ring));
}
