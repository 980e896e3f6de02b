//! Wires: one worker's transmitters of all ports.

use std::sync::Arc;
use std::time::Duration;

use towpath_xdp::{Frame, Pool, Sent as SentFrame, tai_now};

use crate::counters::{Counter, DropReason, FrameCounters};
use crate::numbers::PortId;
use crate::opened::Opened;
use crate::port::{LINGER_ROUNDS, Tx};
use crate::snapshot::Snapshot;
use crate::target::{Owner, Side};
use crate::worker::graph::Graph;

/// A worker's transmitters, and those with unsent frames.
#[derive(Default)]
pub(crate) struct Wires {
    /// Ports by number.
    ports: Vec<Option<PortTx>>,
    /// Ports whose transmitters wait for more frames; `lingered` counts the rounds.
    lingering: Vec<PortId>,
    lingered: u32,
    /// Buffer for frames that could not be sent.
    lost: Vec<Frame>,
    /// Buffer for a frame that is sent by itself.
    alone: Vec<Frame>,
}

/// A port with this worker's transmitter.
struct PortTx {
    opened: Arc<Opened>,
    tx: Option<Box<dyn Tx>>,
}

/// Result of giving frames to a transmitter.
#[derive(Clone, Copy)]
struct Sent {
    count: u64,
    bytes: u64,
    lost: usize,
}

impl PortTx {
    fn new(opened: &Arc<Opened>, worker: usize) -> PortTx {
        let tx = opened.tx.get(worker).and_then(|parked| parked.take());
        PortTx { opened: Arc::clone(opened), tx }
    }

    /// Parks the transmitter, with frames that it has not sent yet; their memory comes back through
    /// it later.
    fn park(mut self, worker: usize, pool: &mut Pool) {
        self.reap(pool);
        if let (Some(tx), Some(place)) = (self.tx, self.opened.tx.get(worker)) {
            place.put(tx);
        }
    }

    /// Number of frames that the transmitter has room for.
    fn credit(&mut self) -> usize {
        self.tx.as_mut().map_or(0, |tx| tx.credit())
    }

    /// Gives frames to the transmitter, in order. Frames that cannot be sent are added to `lost`.
    /// Frames beyond its room stay in `frames`; returns the reason for these.
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

    /// Makes the transmitter send the frames it holds.
    #[inline]
    fn flush(&mut self, pool: &mut Pool) {
        if let Some(Err(error)) = self.tx.as_mut().map(|tx| tx.flush(pool)) {
            self.opened.note_tx_error(&error);
        }
    }

    /// Lets the transmitter send or wait for more frames; returns whether it waits.
    fn flush_some(&mut self, pool: &mut Pool) -> bool {
        let Some(tx) = &mut self.tx else { return false };
        tx.flush_some(pool).unwrap_or_else(|error| {
            self.opened.note_tx_error(&error);
            false
        })
    }

    fn reap(&mut self, pool: &mut Pool) -> bool {
        self.tx.as_mut().is_some_and(|tx| tx.reap(pool))
    }
}

impl Wires {
    /// Adopts the ports of a configuration; transmitters of other ports are parked.
    pub(super) fn adopt(&mut self, graph: &mut Graph, next: &Snapshot) {
        let worker = graph.number();
        let old = std::mem::take(&mut self.ports);
        let count = old.len().max(next.ports.len());
        let mut old = old.into_iter();
        for index in 0..count {
            let before = old.next().flatten();
            let opened = next.port(PortId(index as u32)).map(|port| &port.opened);
            let port = match (before, opened) {
                (Some(port), Some(opened)) if Arc::ptr_eq(&port.opened, opened) => Some(port),
                (before, opened) => {
                    if let Some(port) = before {
                        port.park(worker, &mut graph.pool);
                    }
                    opened.map(|opened| PortTx::new(opened, worker))
                }
            };
            self.ports.push(port);
        }
    }

    #[inline]
    fn port(&mut self, port: PortId) -> Option<&mut PortTx> {
        self.ports.get_mut(port.0 as usize)?.as_mut()
    }

    /// Sends queued frames; frames beyond the port's room are dropped. Returns the number sent.
    pub(super) fn transmit(
        &mut self,
        graph: &mut Graph,
        snapshot: &Snapshot,
        port: PortId,
        frames: &mut Vec<Frame>,
        bytes: usize,
    ) -> u64 {
        note_departure(graph, snapshot, port, frames);
        let (sent, why) = self.send(graph, port, frames, bytes);
        self.count_sent(graph, snapshot, port, sent);
        if !frames.is_empty() {
            graph.drop_all(snapshot, Owner::of(port), Side::Tx, why, frames);
        }
        sent.count
    }

    /// Like [`Wires::transmit`], for frames with TX timestamp requests: each frame is sent by
    /// itself, so that it has its own timestamp.
    #[cold]
    pub(super) fn transmit_and_tell(
        &mut self,
        graph: &mut Graph,
        snapshot: &Snapshot,
        port: PortId,
        frames: &mut Vec<Frame>,
    ) {
        let ifindex = snapshot.port(port).map_or(0, |port| port.ifindex);
        let mut alone = std::mem::take(&mut self.alone);
        for mut frame in frames.drain(..) {
            let (request, bytes) = (frame.take_tx_request(), frame.len());
            alone.push(frame);
            let is_sent = self.transmit(graph, snapshot, port, &mut alone, bytes) == 1;
            let Some(request) = request else { continue };
            if let Some(to) = self.port(port) {
                to.flush(&mut graph.pool);
            }
            let sent = is_sent.then(|| SentFrame { timestamp_ns: tai_now(), ifindex });
            graph.pool.arena().tx_timestamps().end(request, sent);
        }
        self.alone = alone;
    }

    /// Sends frames of a source that keeps frames beyond the port's room, which stay in `frames`.
    /// `from` selects the counter of their origin. Returns the number of frames sent or lost, and
    /// the reason why the others stay.
    pub(super) fn send_first(
        &mut self,
        graph: &mut Graph,
        snapshot: &Snapshot,
        port: PortId,
        frames: &mut Vec<Frame>,
        from: impl Fn(&FrameCounters) -> &Counter,
    ) -> (usize, DropReason) {
        let count = frames.len();
        note_departure(graph, snapshot, port, frames);
        let bytes = frames.iter().map(|frame| frame.len()).sum();
        let (sent, why) = self.send(graph, port, frames, bytes);
        let done = sent.count as usize + sent.lost;
        assert_eq!(done + frames.len(), count, "no frame is lost track of");
        // A frame's origin is counted before its fate.
        from(graph.counters()).add(done as u64);
        self.count_sent(graph, snapshot, port, sent);
        if let Some(to) = self.port(port) {
            to.flush(&mut graph.pool);
        }
        (done, why)
    }

    /// Gives frames to a port's transmitter. Leaves frames beyond its room, with the reason; frames
    /// that could not be sent are in `lost`, to be counted.
    fn send(
        &mut self,
        graph: &mut Graph,
        port: PortId,
        frames: &mut Vec<Frame>,
        bytes: usize,
    ) -> (Sent, DropReason) {
        let before = frames.len();
        let Self { ports, lost, .. } = self;
        assert!(lost.is_empty(), "nobody else is at it");
        let mut why = DropReason::Removed;
        if let Some(Some(to)) = ports.get_mut(port.0 as usize) {
            why = to.transmit(frames, lost, &mut graph.pool);
        }
        let unsent = lost.iter().chain(&*frames).map(|frame| frame.len()).sum::<usize>();
        let count = (before - lost.len() - frames.len()) as u64;
        let sent = Sent { count, bytes: (bytes - unsent) as u64, lost: lost.len() };
        (sent, why)
    }

    fn count_sent(&mut self, graph: &mut Graph, snapshot: &Snapshot, port: PortId, sent: Sent) {
        if let Some(to) = self.port(port) {
            let counters = &to.opened.counters[graph.number()];
            counters.tx_packets.add(sent.count);
            counters.tx_bytes.add(sent.bytes);
        }
        graph.counters().delivered.add(sent.count);
        if sent.lost > 0 {
            let why = DropReason::TxError;
            graph.drop_all(snapshot, Owner::of(port), Side::Tx, why, &mut self.lost);
        }
    }

    /// Number of frames that a port's transmitter can take, whatever hooks precede it.
    pub(crate) fn credit(&mut self, to: PortId) -> usize {
        self.port(to).map_or(0, PortTx::credit)
    }

    /// Ends a burst that had frames for a port. If another full burst is expected, the transmitter
    /// may wait for it.
    #[inline]
    pub(crate) fn flush(&mut self, port: PortId, pool: &mut Pool, expects_more: bool) {
        let Some(to) = self.port(port) else { return };
        if !expects_more {
            return to.flush(pool);
        }
        if to.flush_some(pool) && !self.lingering.contains(&port) {
            self.lingering.push(port);
        }
    }

    /// Ends a round; `is_full` if it had at least a full burst. Flushes transmitters that may not
    /// wait longer.
    #[inline]
    pub(crate) fn end_round(&mut self, pool: &mut Pool, is_full: bool) {
        if self.lingering.is_empty() {
            return;
        }
        self.lingered += 1;
        if !is_full || self.lingered >= LINGER_ROUNDS {
            self.flush_lingering(pool);
        }
    }

    /// Makes all waiting transmitters send the frames they hold.
    pub(crate) fn flush_lingering(&mut self, pool: &mut Pool) {
        self.lingered = 0;
        while let Some(port) = self.lingering.pop() {
            if let Some(to) = self.port(port) {
                to.flush(pool);
            }
        }
    }

    /// Lets transmitters reclaim memory before the worker sleeps; returns whether any has more
    /// outstanding.
    pub(crate) fn reap(&mut self, pool: &mut Pool) -> bool {
        self.ports.iter_mut().flatten().fold(false, |waits, port| waits | port.reap(pool))
    }
}

/// Samples the ingress ports of frames that leave by a port.
#[inline]
fn note_departure(graph: &Graph, snapshot: &Snapshot, to: PortId, frames: &[Frame]) {
    let flows = &graph.shared.flows;
    if flows.is_asked()
        && let Some(port) = snapshot.port(to)
    {
        flows.note(frames.iter().map(|frame| frame.rx.ifindex), port.ifindex);
    }
}

/// Interval at which a sleeping worker reclaims memory of transmitters.
pub(crate) const REAP_PERIOD: Duration = Duration::from_millis(1);
