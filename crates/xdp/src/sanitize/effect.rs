//! Effects of a call: memory that it wrote, records that it returned, a moved start of the packet.

use towpath_bpf::insn::REG_COUNT;
use towpath_bpf::map::Values;
use towpath_bpf::proto::id;

use super::finding::Kind;
use super::shadow::Place;
use super::{Redirect, Sanitizer};
use crate::run::Run;

/// A call that has not returned.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) callee: Callee,
    pub(super) args: [u64; 5],
    pub(super) place: Place,
    /// Memory that it writes, and whether it does so when it fails, too.
    pub(super) outputs: Vec<(u64, u64, bool)>,
    /// The former start addresses of metadata and packet.
    packet: (u64, u64),
}

/// The called function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Callee {
    Helper(u32),
    /// A kfunc, by its number in our table.
    Kfunc(u32),
}

impl Pending {
    pub(super) fn new(run: &Run<'_>, callee: Callee, args: [u64; 5], place: Place) -> Pending {
        let packet = (run.frame.data_meta_addr(), run.frame.data_addr());
        Pending { callee, args, place, outputs: Vec::new(), packet }
    }

    /// Whether a function that starts now was called by this call: true for all calls but tail
    /// calls.
    pub(super) fn calls_back(&self) -> bool {
        self.callee != Callee::Helper(id::TAIL_CALL)
    }
}

impl Sanitizer {
    /// A call has returned, or another program has begun.
    pub(super) fn conclude(
        &mut self,
        run: &Run<'_>,
        pending: &Pending,
        slot: usize,
        regs: &[u64; REG_COUNT],
    ) {
        self.bits[..6].fill(0);
        self.loaded_from[..6].fill(0);
        let called = pending.place.get();
        let has_come_back =
            called.is_some_and(|(program, at)| program == self.program && at + 1 == slot);
        if !has_come_back {
            // A tail call, or an exception: the frame is another program's.
            self.bits = [0; REG_COUNT];
            self.shadow.enter(self.fp);
            return;
        }
        let r0 = regs[0];
        let succeeded = i64::from(r0 as u32 as i32) >= 0 && r0.cast_signed() >= 0;
        for &(addr, len, always) in &pending.outputs {
            if always || succeeded {
                self.shadow.fill(addr, len, 0, pending.place);
            }
        }
        if let Callee::Helper(helper) = pending.callee {
            self.after_helper(run, helper, pending, r0);
            self.note_call(run, helper, pending, r0);
        }
    }

    fn after_helper(&mut self, run: &Run<'_>, helper: u32, pending: &Pending, r0: u64) {
        match helper {
            id::RINGBUF_RESERVE if r0 != 0 => {
                let len = pending.args[1];
                self.shadow.fill(r0, len, 0xff, pending.place);
                self.records.push((r0, len, pending.place));
            }
            id::RINGBUF_SUBMIT | id::RINGBUF_DISCARD => self.record_gone(pending.args[0]),
            id::XDP_ADJUST_HEAD | id::XDP_ADJUST_META if r0 == 0 => self.packet_grew(run, pending),
            id::XDP_STORE_BYTES if r0 == 0 && !self.shadow.is_stack_only() => {
                let [_, offset, _, len, _] = pending.args;
                let to = run.frame.data_addr().wrapping_add(offset);
                self.shadow.fill(to, len, 0, pending.place);
            }
            id::REDIRECT | id::REDIRECT_MAP => {
                let is_map = helper == id::REDIRECT_MAP;
                // The value of an unset number is unknown; that was reported.
                let is_set = !self.known.contains(&(pending.place, Kind::Argument, 1));
                let map = is_map.then(|| run.map_by_handle(pending.args[0])).flatten();
                let to_socket = map.is_some_and(|map| map.kind().values() == Values::Socket);
                self.redirect = Some(Redirect {
                    place: pending.place,
                    succeeded: r0 as u32 == XDP_REDIRECT,
                    to_socket,
                    to_nothing: !is_map && is_set && pending.args[0] as u32 == 0,
                });
            }
            id::SPIN_LOCK => self.locks += 1,
            id::SPIN_UNLOCK => self.locks = self.locks.saturating_sub(1),
            _ => {}
        }
        if CHANGE_PACKETS.contains(&helper) {
            self.packet_writer = pending.place;
        }
    }

    fn record_gone(&mut self, record: u64) {
        if let Some(at) = self.records.iter().position(|known| known.0 == record) {
            let (addr, len, place) = self.records.swap_remove(at);
            self.shadow.fill(addr, len, 0, place);
        }
    }

    /// Marks the bytes that were added in front as unset; metadata moves with the packet's start.
    fn packet_grew(&mut self, run: &Run<'_>, pending: &Pending) {
        let (meta, data) = (run.frame.data_meta_addr(), run.frame.data_addr());
        let (meta_before, data_before) = pending.packet;
        let start = meta.min(data);
        if start < self.packet_start {
            let grown = self.packet_start - start;
            self.shadow.fill(start, grown, 0xff, pending.place);
            self.packet_start = start;
        }
        let moves = pending.callee == Callee::Helper(id::XDP_ADJUST_HEAD);
        if moves && meta < data && meta_before < data_before {
            self.shadow.fill(meta, data - meta, 0, pending.place);
            // Bytes that the metadata covered belong to the packet if it now begins further in
            // front.
            if data < data_before {
                self.shadow.fill(data, data_before - data, 0xff, pending.place);
            }
        }
    }
}

const XDP_REDIRECT: u32 = 4;
const CHANGE_PACKETS: [u32; 3] = [id::XDP_STORE_BYTES, id::XDP_ADJUST_HEAD, id::XDP_ADJUST_TAIL];
