//! Frames to and from AF_XDP sockets.
//!
//! Frames of a burst that go to one socket are delivered in one call. When that is a whole burst,
//! and the socket the only one on its queue, they go there directly: no table is looked at, since
//! the socket was found when the configuration changed (`Slot::sole`). What the program looked up
//! decides all the same: it must be that socket.

use std::sync::Arc;
use std::time::Instant;

use towpath_bpf::program::MapType;
use towpath_xdp::frame::RxInfo;
use towpath_xdp::{Destination, Frame, Pool};

use super::deliver::bytes_max;
use super::idle::REAP_PERIOD;
use super::judge::Judge;
use super::outbox::{Outboxes, flush_tx};
use super::{BURST, Worker};
use crate::counters::Drop;
use crate::port::{Features, Wake};
use crate::snapshot::{PortId, Slot, Snapshot};
use crate::socket::Place;
use crate::sockets::{Collect, Delivery, Served};

/// Frames for sockets, until the end of the burst.
#[derive(Default)]
pub(super) struct Boxes {
    boxes: Vec<SocketBox>,
    /// How many of them are in use; the others keep their memory for later.
    used: usize,
    /// For a frame that is delivered alone.
    single: Vec<Frame>,
}

/// Frames for one socket that arrived at one place.
struct SocketBox {
    served: Option<Arc<Served>>,
    from: Place,
    /// Who is charged with what the socket does not take.
    port: PortId,
    frames: Vec<Frame>,
}

impl Boxes {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The box for a socket. Frames of one flow follow each other, so it is most likely the last.
    #[inline]
    fn find(&mut self, id: u32, from: Place) -> Option<&mut SocketBox> {
        self.boxes[..self.used].iter_mut().rev().find(|waiting| {
            waiting.from == from && waiting.served.as_ref().is_some_and(|served| served.id == id)
        })
    }

    fn open(&mut self, served: &Arc<Served>, from: Place, port: PortId) -> &mut SocketBox {
        if self.used == self.boxes.len() {
            let frames = Vec::with_capacity(BURST);
            self.boxes.push(SocketBox { served: None, from, port, frames });
        }
        self.used += 1;
        let opened = &mut self.boxes[self.used - 1];
        (opened.served, opened.from, opened.port) = (Some(Arc::clone(served)), from, port);
        opened
    }
}

impl Outboxes {
    /// To the socket of that number (`__xsk_map_redirect`): it gets the frame at the end of the
    /// burst.
    #[inline]
    pub(super) fn socket_one(&mut self, snapshot: &Snapshot, slot: &Slot, frame: Frame, id: u32) {
        if frame.offload().is_some() {
            return self.settle_for_socket(snapshot, slot, frame, id);
        }
        let from = arrival(&frame);
        if matches!(snapshot.sockets.delivery, Delivery::General | Delivery::Direct) {
            return self.socket_now(snapshot, slot, frame, id, from);
        }
        if let Some(waiting) = self.boxes.find(id, from) {
            return waiting.frames.push(frame);
        }
        match snapshot.sockets.get(id) {
            Some(served) => self.boxes.open(served, from, slot.id).frames.push(frame),
            None => self.drop_at(slot, frame, Drop::NoSocket),
        }
    }

    /// As [`Outboxes::socket_one`]; the frame is in the socket's ring when this returns, to be
    /// shown at the end of the burst.
    #[inline(never)]
    fn socket_now(&mut self, snapshot: &Snapshot, slot: &Slot, frame: Frame, id: u32, from: Place) {
        let Some(served) = snapshot.sockets.get(id) else {
            return self.drop_at(slot, frame, Drop::NoSocket);
        };
        self.hand_over_single(slot, served, from, frame);
        if self.boxes.find(id, from).is_none() {
            self.boxes.open(served, from, slot.id);
        }
    }

    /// A whole burst to one socket, if nothing needs to be done to any frame; otherwise it stays.
    #[inline]
    pub(super) fn socket_all(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        frames: &mut Vec<Frame>,
        id: u32,
    ) -> bool {
        let Some(first) = frames.first() else { return true };
        let from = arrival(first);
        let sole = slot.sole.get(from.queue as usize).and_then(Option::as_ref);
        let sole = sole.filter(|sole| sole.id == id && from.ifindex == slot.ifindex);
        let table = || snapshot.sockets.get(id);
        let found = match snapshot.sockets.delivery {
            Delivery::Batched => sole.or_else(table),
            Delivery::Direct => sole,
            Delivery::General | Delivery::Collected => None,
        };
        let Some(served) = found else { return false };
        // What waits came earlier. A sum or a cut is work for each frame.
        if !self.boxes.is_empty() || frames.iter().any(|frame| frame.offload().is_some()) {
            return false;
        }
        if snapshot.sockets.delivery == Delivery::Direct {
            frames.drain(..).for_each(|frame| self.hand_over_single(slot, served, from, frame));
            served.socket.flush();
        } else {
            self.hand_over(slot, served, from, frames);
        }
        true
    }

    /// The end of a burst (`xsk_flush`).
    pub(super) fn flush_sockets(&mut self, snapshot: &Snapshot) {
        let mut boxes = std::mem::take(&mut self.boxes);
        for waiting in &mut boxes.boxes[..boxes.used] {
            let Some(served) = waiting.served.take() else { continue };
            match snapshot.port(waiting.port) {
                // Delivered already, one by one.
                Some(_) if waiting.frames.is_empty() => served.socket.flush(),
                Some(slot) => self.hand_over(slot, &served, waiting.from, &mut waiting.frames),
                None => self.drop_all(&mut waiting.frames),
            }
        }
        boxes.used = 0;
        self.boxes = boxes;
    }

    /// All that a burst has for a socket.
    #[inline]
    fn hand_over(&mut self, slot: &Slot, served: &Served, from: Place, frames: &mut Vec<Frame>) {
        let count = frames.len();
        let delivered = served.socket.deliver_all(from, frames, &mut self.pool);
        self.count_delivered(slot, served, from, count, delivered);
    }

    #[inline]
    fn count_delivered(
        &self,
        slot: &Slot,
        served: &Served,
        from: Place,
        count: usize,
        delivered: usize,
    ) {
        self.seat.counters.delivered.add(delivered as u64);
        if delivered < count {
            self.count_refused(slot, served, from, (count - delivered) as u64);
        }
    }

    #[inline]
    fn hand_over_single(&mut self, slot: &Slot, served: &Served, from: Place, frame: Frame) {
        self.boxes.single.push(frame);
        let delivered = served.socket.deliver(from, &mut self.boxes.single, &mut self.pool);
        self.count_delivered(slot, served, from, 1, delivered);
    }

    /// Frames that a socket did not take are dropped, whatever fallback their redirect named
    /// (`xsk_rcv`).
    #[cold]
    fn count_refused(&self, slot: &Slot, served: &Served, from: Place, count: u64) {
        let is_here = served.socket.receives() && served.socket.place() == Some(from);
        let why = if is_here { Drop::SocketFull } else { Drop::NoSocket };
        slot.opened.counters[self.seat.number].drops[why as usize].add(count);
        self.seat.counters.dropped.add(count);
    }

    /// Makes what a wire would carry of a frame with work left to do: applications have no way to
    /// know of it.
    #[cold]
    fn settle_for_socket(&mut self, snapshot: &Snapshot, slot: &Slot, frame: Frame, id: u32) {
        let mut pieces = Vec::new();
        let rx = frame.rx;
        if let Err((frame, why)) = self.settle_into(frame, &AS_ON_A_WIRE, &mut pieces) {
            self.drop_at(slot, frame, why);
        }
        for mut piece in pieces {
            piece.set_offload(None);
            piece.rx = rx;
            self.socket_one(snapshot, slot, piece, id);
        }
    }

    /// Sends what a socket's application wants to be sent (`__xsk_generic_xmit`). Gives how many
    /// of the frames are done with, sent or lost; those that the port has no room for are not.
    fn send_collected(
        &mut self,
        snapshot: &Snapshot,
        slot: &Slot,
        judge: &mut Judge,
        frames: &mut Vec<Frame>,
    ) -> usize {
        let count = frames.len();
        // They arrived nowhere.
        frames
            .iter_mut()
            .for_each(|frame| frame.rx = RxInfo { ifindex: 0, queue_index: 0, ..frame.rx });
        let longest = bytes_max(slot);
        let is_simple = !slot.watches_tx()
            && slot.bond.is_none()
            && frames.iter().all(|frame| frame.is_plain() && frame.linear_len() <= longest);
        if !is_simple {
            frames.iter_mut().for_each(|frame| self.own(frame));
            self.seat.counters.created.add(count as u64);
            frames.drain(..).for_each(|frame| self.send_checked(snapshot, slot, frame));
            self.flush(snapshot, judge);
            return count;
        }
        let lost = self.transmit_now(slot, frames);
        let done = count - frames.len();
        self.seat.counters.created.add(done as u64);
        self.seat.counters.delivered.add((done - lost) as u64);
        self.seat.counters.dropped.add(lost as u64);
        done
    }

    /// Gives frames to a port's transmitter and leaves those that do not fit; gives how many were
    /// lost.
    fn transmit_now(&mut self, slot: &Slot, frames: &mut Vec<Frame>) -> usize {
        let Self { outlets, pool, seat, .. } = self;
        let Some(Some(outlet)) = outlets.get_mut(slot.id.0 as usize) else { return 0 };
        let counters = &outlet.opened.counters[seat.number];
        let (before, mut lost) = (frames.len(), 0);
        let mut bytes: usize = frames.iter().map(|frame| frame.len()).sum();
        let mut lose = |frames: &mut Vec<Frame>, why: Drop, pool: &mut Pool| {
            for frame in frames.drain(..frames.len().min(1)) {
                counters.tx_drops[why as usize].add(1);
                lost += 1;
                bytes -= frame.len();
                pool.give(frame);
            }
        };
        match &mut outlet.tx {
            None => (0..before).for_each(|_| lose(frames, Drop::Unsupported, pool)),
            Some(tx) => {
                while !frames.is_empty() {
                    let Err(error) = tx.transmit(frames, pool) else { break };
                    outlet.opened.note_tx_error(&error);
                    lose(frames, Drop::TxError, pool);
                }
                flush_tx(tx.as_mut(), &outlet.opened, pool);
            }
        }
        bytes -= frames.iter().map(|frame| frame.len()).sum::<usize>();
        counters.tx_packets.add((before - frames.len() - lost) as u64);
        counters.tx_bytes.add(bytes as u64);
        lost
    }
}

/// A socket that this worker collects from.
pub(super) struct Collector {
    collect: Collect,
    /// The port had no room for all of it the last time.
    is_stuck: bool,
}

impl Collector {
    /// What ends the worker's sleep.
    pub(super) fn arm(&self) -> Wake<'_> {
        // Its ring is not empty, but that is no reason to spin until the port's is.
        if self.is_stuck {
            return Wake::At(Instant::now() + REAP_PERIOD);
        }
        self.collect.served.socket.arm()
    }

    pub(super) fn disarm(&self) {
        self.collect.served.socket.disarm();
    }
}

impl Worker {
    /// Has the sockets of the current configuration polled.
    pub(super) fn adopt_sockets(&mut self) {
        let next = self.snapshot.collects.get(self.seat.number).map_or(&[][..], |next| next);
        let is_kept = |collector: &Collector| {
            let served = &collector.collect.served;
            next.iter().any(|next| Arc::ptr_eq(&next.served, served))
        };
        // Whoever is not polled any more has to ring, for whoever polls next.
        for gone in self.collectors.iter().filter(|collector| !is_kept(collector)) {
            let _wake = gone.collect.served.socket.arm();
        }
        let collector = |collect: &Collect| Collector { collect: collect.clone(), is_stuck: false };
        self.collectors = next.iter().map(collector).collect();
        self.collectors.iter().for_each(Collector::disarm);
    }

    /// Sends what sockets have; gives the number of packets.
    pub(super) fn collect(&mut self) -> usize {
        let Self { snapshot, collectors, out, judge, frames, .. } = self;
        let mut work = 0;
        for collector in collectors {
            let Collect { port, served } = &collector.collect;
            let Some(slot) = snapshot.port(*port) else { continue };
            let sent = served.in_turn(|socket| {
                let count = socket.collect(&mut out.pool, frames, BURST);
                if count == 0 {
                    return (0, 0);
                }
                let done = out.send_collected(snapshot, slot, judge, frames);
                socket.sent(done);
                // The rest is still in the ring.
                out.pool.give_all(frames);
                (count, done)
            });
            if let Some((count, done)) = sent {
                collector.is_stuck = done < count;
                work += done;
            }
        }
        work
    }
}

/// Number of the socket that a redirect leads to, if it leads to one.
#[inline]
pub(super) fn socket_of(destination: Destination<'_>) -> Option<u32> {
    match destination {
        Destination::Entry { map, entry, .. } if map.kind() == MapType::Xskmap => Some(entry.id),
        _ => None,
    }
}

#[inline]
fn arrival(frame: &Frame) -> Place {
    Place { ifindex: frame.rx.ifindex, queue: frame.rx.queue_index }
}

/// What sockets can do with a frame: applications know chains of buffers, and nothing else.
const AS_ON_A_WIRE: Features = Features {
    rx_frags: true,
    tx_frags: true,
    tx_checksum: false,
    tx_tso: false,
    tx_uso: false,
    zero_copy: false,
};
