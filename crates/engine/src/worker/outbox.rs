//! Frames on their way out of one worker: collected per target, sent once per burst.

use std::sync::Arc;

use towpath_xdp::{Action, Burst, Frame, Pool};

use super::cpu::CpuBulk;
use super::judge::Judge;
use super::sockets::Boxes;
use super::{BURST, Seat};
use crate::bond::Turn;
use crate::counters::{Drop, PortCounters};
use crate::offload;
use crate::port::{Features, LINGER_ROUNDS, Tx};
use crate::snapshot::{Opened, PortId, Slot, Snapshot};

/// One port as this worker sends to it.
pub(super) struct Outlet {
    pub(super) opened: Arc<Opened>,
    pub(super) tx: Option<Box<dyn Tx>>,
    pub(super) frames: Vec<Frame>,
    /// Bytes of those.
    bytes: usize,
    is_dirty: bool,
    /// Which member of a bond is next.
    pub(super) turn: Turn,
}

impl Outlet {
    pub(super) fn new(opened: &Arc<Opened>, tx: Option<Box<dyn Tx>>, worker: usize) -> Outlet {
        let frames = Vec::with_capacity(2 * BURST);
        let (opened, turn) = (Arc::clone(opened), Turn::new(worker));
        Outlet { opened, tx, frames, bytes: 0, is_dirty: false, turn }
    }

    /// What is queued, for somebody else to send.
    pub(super) fn take_frames(&mut self) -> Vec<Frame> {
        self.bytes = 0;
        std::mem::take(&mut self.frames)
    }

    /// Has the port flushed at the end of the burst.
    #[inline]
    fn mark_dirty(&mut self, port: PortId, dirty: &mut Vec<PortId>) {
        if !self.is_dirty {
            self.is_dirty = true;
            dirty.push(port);
        }
    }
}

/// Everything a worker has to send, and the memory it sends from.
pub(super) struct Outboxes {
    pub(super) seat: Arc<Seat>,
    pub(super) seats: Arc<[Arc<Seat>]>,
    pub(super) pool: Pool,
    /// By port number.
    pub(super) outlets: Vec<Option<Outlet>>,
    /// Ports that have frames to send.
    dirty: Vec<PortId>,
    /// Whether another full burst is expected, so that transmitters may wait for it.
    pub(super) expects_more: bool,
    /// Ports that do.
    lingering: Vec<PortId>,
    /// For how many rounds.
    lingered: u32,
    /// Frames that a devmap entry's program is to see first.
    with_program: Vec<EntryBulk>,
    pub(super) to_cpus: Vec<CpuBulk>,
    /// What is for sockets.
    pub(super) boxes: Boxes,
    scratch: Vec<Frame>,
    /// Frames of a burst by the member of a bond that they leave by.
    pub(super) lanes: Vec<Vec<Frame>>,
    /// Room for the queues of a bond's members while they are filled.
    pub(super) queues: Vec<Vec<Frame>>,
    /// For each frame of a burst, which of the members that is.
    pub(super) places: Vec<u8>,
    /// Frames dropped by verdict in this burst.
    discarded: u64,
}

/// Frames for one (target, program).
struct EntryBulk {
    to: PortId,
    program: u32,
    frames: Vec<Frame>,
}

impl Outboxes {
    pub(super) fn new(seat: &Arc<Seat>, seats: &Arc<[Arc<Seat>]>, pool: Pool) -> Outboxes {
        Outboxes {
            seat: Arc::clone(seat),
            seats: Arc::clone(seats),
            pool,
            outlets: Vec::new(),
            dirty: Vec::new(),
            expects_more: false,
            lingering: Vec::new(),
            lingered: 0,
            with_program: Vec::new(),
            to_cpus: Vec::new(),
            boxes: Boxes::default(),
            scratch: Vec::new(),
            lanes: Vec::new(),
            queues: Vec::new(),
            places: Vec::new(),
            discarded: 0,
        }
    }

    pub(super) fn number(&self) -> usize {
        self.seat.number
    }

    /// `XDP_DROP`; counted by [`Outboxes::count_discarded`].
    #[inline]
    pub(super) fn discard(&mut self, frame: Frame) {
        self.discarded += 1;
        self.pool.give(frame);
    }

    /// `XDP_DROP` for a whole burst.
    #[inline]
    pub(super) fn discard_all(&mut self, slot: &Slot, frames: &mut Vec<Frame>) {
        self.discarded += frames.len() as u64;
        self.pool.give_all(frames);
        self.count_discarded(slot);
    }

    /// Queues a whole burst of frames for a port, in one piece if there is nothing to do to any and
    /// none is longer than `longest` bytes. Otherwise it leaves them.
    #[inline]
    pub(super) fn send_all(&mut self, to: &Slot, frames: &mut Vec<Frame>, longest: usize) -> bool {
        let Some(Some(outlet)) = self.outlets.get_mut(to.id.0 as usize) else { return false };
        let (mut bytes, mut is_plain) = (0, outlet.frames.is_empty());
        for frame in &*frames {
            is_plain &= frame.is_plain() & (frame.linear_len() <= longest);
            bytes += frame.linear_len();
        }
        if is_plain {
            outlet.mark_dirty(to.id, &mut self.dirty);
            outlet.bytes += bytes;
            // There are none yet.
            std::mem::swap(&mut outlet.frames, frames);
        }
        is_plain
    }

    /// Lends the empty queue of a port, to be filled with frames that it takes as they are;
    /// [`Outboxes::put_queue`] gives it back.
    #[inline]
    pub(super) fn lend_queue(&mut self, to: PortId) -> Vec<Frame> {
        let outlet = self.outlets.get_mut(to.0 as usize).and_then(Option::as_mut);
        outlet.map(|outlet| std::mem::take(&mut outlet.frames)).unwrap_or_default()
    }

    #[inline]
    pub(super) fn put_queue(&mut self, to: PortId, frames: Vec<Frame>) {
        let Some(Some(outlet)) = self.outlets.get_mut(to.0 as usize) else { return };
        if !frames.is_empty() {
            outlet.mark_dirty(to, &mut self.dirty);
            outlet.bytes += frames.iter().map(|frame| frame.linear_len()).sum::<usize>();
        }
        outlet.frames = frames;
    }

    #[inline]
    pub(super) fn count_discarded(&mut self, slot: &Slot) {
        if self.discarded > 0 {
            let counters = &slot.opened.counters[self.seat.number];
            counters.drops[Drop::Verdict as usize].add(self.discarded);
            self.seat.counters.dropped.add(self.discarded);
            self.discarded = 0;
        }
    }

    /// Drops a frame that arrived on `slot`.
    pub(super) fn drop_at(&mut self, slot: &Slot, frame: Frame, why: Drop) {
        slot.opened.counters[self.seat.number].drops[why as usize].add(1);
        self.seat.counters.dropped.add(1);
        self.pool.give(frame);
    }

    /// Drops a frame that was to leave by `slot`.
    pub(super) fn drop_out(&mut self, slot: &Slot, frame: Frame, why: Drop) {
        slot.opened.counters[self.seat.number].tx_drops[why as usize].add(1);
        self.seat.counters.dropped.add(1);
        self.pool.give(frame);
    }

    /// Drops frames that no port can be charged with: theirs is gone.
    pub(super) fn drop_all(&mut self, frames: &mut Vec<Frame>) {
        self.seat.counters.dropped.add(frames.len() as u64);
        self.pool.give_all(frames);
    }

    /// Queues a frame for a port; it leaves with the next flush.
    #[inline]
    pub(super) fn push(&mut self, snapshot: &Snapshot, to: PortId, frame: Frame) {
        let Some(Some(outlet)) = self.outlets.get_mut(to.0 as usize) else {
            self.seat.counters.dropped.add(1);
            return self.pool.give(frame);
        };
        outlet.mark_dirty(to, &mut self.dirty);
        outlet.bytes += frame.len();
        outlet.frames.push(frame);
        if outlet.frames.len() >= 2 * BURST
            && let Some(slot) = snapshot.port(to)
            && !slot.watches_tx()
        {
            self.transmit(snapshot, slot);
        }
    }

    /// Queues a frame for the program of a devmap entry, then for the entry's port.
    pub(super) fn push_entry(&mut self, to: PortId, program: u32, frame: Frame) {
        let found = self.with_program.iter_mut().find(|b| b.to == to && b.program == program);
        match found {
            Some(bulk) => bulk.frames.push(frame),
            None => self.with_program.push(EntryBulk { to, program, frames: vec![frame] }),
        }
    }

    /// Sends everything: the end of a burst.
    #[inline]
    pub(super) fn flush(&mut self, snapshot: &Snapshot, judge: &mut Judge) {
        if !self.with_program.is_empty() {
            self.run_entry_programs(snapshot, judge);
        }
        while let Some(port) = self.dirty.pop() {
            self.flush_port(snapshot, judge, port);
        }
        if !self.to_cpus.is_empty() {
            self.flush_cpus();
        }
        if !self.boxes.is_empty() {
            self.flush_sockets(snapshot);
        }
    }

    fn flush_port(&mut self, snapshot: &Snapshot, judge: &mut Judge, port: PortId) {
        if let Some(slot) = snapshot.port(port) {
            if slot.watches_tx() {
                self.run_tx_hook(slot, judge);
            }
            self.transmit(snapshot, slot);
        }
        let Some(Some(outlet)) = self.outlets.get_mut(port.0 as usize) else { return };
        outlet.is_dirty = false;
        let Some(tx) = &mut outlet.tx else { return };
        if !self.expects_more {
            return flush_tx(tx.as_mut(), &outlet.opened, &mut self.pool);
        }
        match tx.flush_some(&mut self.pool) {
            Ok(false) => {}
            Ok(true) if self.lingering.contains(&port) => {}
            Ok(true) => self.lingering.push(port),
            Err(error) => outlet.opened.note_tx_error(&error),
        }
    }

    /// The end of a round that brought a full burst, or not: what lingers goes if it has to.
    #[inline]
    pub(super) fn end_round(&mut self, is_full: bool) {
        if self.lingering.is_empty() {
            return;
        }
        self.lingered += 1;
        if !is_full || self.lingered >= LINGER_ROUNDS {
            self.flush_lingering();
        }
    }

    pub(super) fn flush_lingering(&mut self) {
        self.lingered = 0;
        while let Some(port) = self.lingering.pop() {
            if let Some(Some(outlet)) = self.outlets.get_mut(port.0 as usize)
                && let Some(tx) = &mut outlet.tx
            {
                flush_tx(tx.as_mut(), &outlet.opened, &mut self.pool);
            }
        }
    }

    /// Lets the programs of a port's `tx` hook judge what is queued for it: what they pass is sent,
    /// anything else is dropped, as with the program of a devmap entry.
    #[cold]
    fn run_tx_hook(&mut self, slot: &Slot, judge: &mut Judge) {
        let Some(Some(outlet)) = self.outlets.get_mut(slot.id.0 as usize) else { return };
        let mut frames = outlet.take_frames();
        judge.enter_tx(slot, &frames);
        for link in slot.tx_hook.iter().flat_map(|chain| chain.links()) {
            let judged = |frames: &mut [Frame]| judge.link(slot, link, frames);
            let burst = self.keep_passed(slot, &mut frames, Drop::Verdict, judged);
            judge.put_away(burst);
        }
        judge.leave_tx(slot, &frames);
        if let Some(Some(outlet)) = self.outlets.get_mut(slot.id.0 as usize) {
            outlet.bytes = frames.iter().map(|frame| frame.len()).sum();
            outlet.frames = frames;
        }
    }

    /// Lets a program judge frames on their way out of a port, and drops those it does not pass.
    fn keep_passed(
        &mut self,
        slot: &Slot,
        frames: &mut Vec<Frame>,
        why: Drop,
        judge: impl FnOnce(&mut [Frame]) -> Burst,
    ) -> Burst {
        frames.iter_mut().for_each(|frame| frame.egress_ifindex = slot.ifindex);
        let burst = judge(frames);
        let judged = std::mem::take(frames);
        for (index, mut frame) in judged.into_iter().enumerate() {
            frame.egress_ifindex = 0;
            match burst.action(index) {
                Action::Pass => frames.push(frame),
                _ => self.drop_out(slot, frame, why),
            }
        }
        burst
    }

    /// Gives a port, or the members of a bond, what is queued for it.
    fn transmit(&mut self, snapshot: &Snapshot, slot: &Slot) {
        if let Some(view) = &slot.bond {
            return self.spread(snapshot, slot, view);
        }
        let Self { outlets, pool, seat, scratch, .. } = self;
        let Some(Some(outlet)) = outlets.get_mut(slot.id.0 as usize) else { return };
        let counters = &outlet.opened.counters[seat.number];
        let Some(tx) = &mut outlet.tx else {
            outlet.bytes = 0;
            drop_rest(&mut outlet.frames, Drop::Unsupported, counters, seat, pool);
            return;
        };
        let before = outlet.frames.len();
        let mut bytes = std::mem::take(&mut outlet.bytes);
        let mut dropped = 0;
        while !outlet.frames.is_empty() {
            let (why, count) = match tx.transmit(&mut outlet.frames, pool) {
                Ok(()) => (Drop::RingFull, outlet.frames.len()),
                Err(error) => {
                    outlet.opened.note_tx_error(&error);
                    (Drop::TxError, outlet.frames.len().min(1))
                }
            };
            if count == 0 {
                break;
            }
            dropped += count;
            scratch.extend(outlet.frames.drain(..count));
            bytes -= scratch.iter().map(|frame| frame.len()).sum::<usize>();
            drop_rest(scratch, why, counters, seat, pool);
        }
        let sent = (before - dropped) as u64;
        counters.tx_packets.add(sent);
        counters.tx_bytes.add(bytes as u64);
        seat.counters.delivered.add(sent);
    }

    /// Runs the programs of devmap entries: only what they pass goes on
    /// (`dev_map_bpf_prog_run`).
    #[cold]
    fn run_entry_programs(&mut self, snapshot: &Snapshot, judge: &mut Judge) {
        for bulk in std::mem::take(&mut self.with_program) {
            let EntryBulk { to, program, mut frames } = bulk;
            let Some(slot) = snapshot.port(to) else {
                self.drop_all(&mut frames);
                continue;
            };
            let Some(program) = snapshot.entry_programs.get(&program) else {
                frames.drain(..).for_each(|frame| self.drop_out(slot, frame, Drop::BadTarget));
                continue;
            };
            frames.iter_mut().for_each(|frame| frame.rx.queue_index = 0);
            let judged = |frames: &mut [Frame]| judge.entry(program, frames);
            let burst = self.keep_passed(slot, &mut frames, Drop::EntryVerdict, judged);
            judge.put_away(burst);
            frames.into_iter().for_each(|frame| self.push(snapshot, to, frame));
        }
    }

    /// Makes frames of several buffers linear, as the kernel does for programs without frags
    /// support (`skb_linearize`).
    pub(super) fn linearize(&mut self, frames: &mut [Frame]) {
        for frame in frames.iter_mut().filter(|frame| frame.has_frags()) {
            self.pool.linearize(frame);
        }
    }

    /// Does what is left to do to a frame before this port can send it.
    pub(super) fn settle(&mut self, snapshot: &Snapshot, slot: &Slot, frame: Frame) {
        let mut pieces = std::mem::take(&mut self.scratch);
        if let Err((frame, why)) = self.settle_into(frame, &slot.features, &mut pieces) {
            self.drop_out(slot, frame, why);
        }
        for piece in pieces.drain(..) {
            self.push(snapshot, slot.id, piece);
        }
        self.scratch = pieces;
    }

    /// Appends what a receiver with those features can take of a frame ([`offload::settle`]), and
    /// counts what that made of it.
    pub(super) fn settle_into(
        &mut self,
        frame: Frame,
        features: &Features,
        pieces: &mut Vec<Frame>,
    ) -> Result<(), (Frame, Drop)> {
        if offload::settle(frame, features, &mut self.pool, pieces)? {
            self.seat.counters.created.add(pieces.len() as u64);
            self.seat.counters.freed.add(1);
        }
        Ok(())
    }

    /// Lets transmitters take back memory before the worker sleeps; gives whether one of them
    /// still waits for something.
    pub(super) fn reap(&mut self) -> bool {
        let Self { outlets, pool, .. } = self;
        let mut waiting = false;
        for outlet in outlets.iter_mut().flatten() {
            if let Some(tx) = &mut outlet.tx {
                waiting |= tx.reap(pool);
            }
        }
        waiting
    }
}

/// Has a transmitter send what it holds.
#[inline]
pub(super) fn flush_tx(tx: &mut dyn Tx, opened: &Opened, pool: &mut Pool) {
    if let Err(error) = tx.flush(pool) {
        opened.note_tx_error(&error);
    }
}

/// Drops what a transmitter left.
fn drop_rest(
    frames: &mut Vec<Frame>,
    why: Drop,
    counters: &PortCounters,
    seat: &Seat,
    pool: &mut Pool,
) {
    if !frames.is_empty() {
        counters.tx_drops[why as usize].add(frames.len() as u64);
        seat.counters.dropped.add(frames.len() as u64);
        pool.give_all(frames);
    }
}
