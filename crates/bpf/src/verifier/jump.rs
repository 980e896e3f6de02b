//! Conditional jumps: both outcomes are followed, each with the knowledge that it adds
//! (`check_cond_jmp_op`).

use crate::insn::*;
use crate::map::{Host, Values};

use super::cfg::{jump_distance, relative};
use super::compare;
use super::env::{Result, Verifier};
use super::reg::{ADD_CONST, ADD_CONST_32, AT_PKT_END, BEYOND_PKT_END, Base, Flags, Reg};
use super::scalar::Scalar;
use super::state::{LINKED_REGS_MAX, LinkedReg, State};

impl Verifier<'_> {
    /// Checks one conditional jump; returns the next instruction of this path.
    pub(crate) fn check_conditional_jump(&mut self, insn: &Insn) -> Result<usize> {
        let next = self.path.insn_idx + 1;
        let target = relative(self.path.insn_idx, jump_distance(insn)).unwrap_or(next);
        if insn.op() == BPF_JCOND {
            return self.check_may_goto(next, target);
        }
        self.check_reg_read(insn.dst)?;
        if insn.is_reg_operand() {
            self.check_reg_read(insn.src)?;
        }
        self.note_operands(insn);
        let dst = *self.reg(insn.dst);
        let src = self.jump_operand(insn);
        let dst_is_stack = dst.is(Base::Stack);
        let src_is_stack = insn.is_reg_operand() && src.is(Base::Stack);
        if dst_is_stack || src_is_stack {
            self.note_stack_compare(dst_is_stack, src_is_stack);
        }
        let is32 = insn.class() == BPF_JMP32;
        self.check_compared_source(insn, &dst, &src)?;
        match self.known_outcome(insn, &dst, &src, is32) {
            Some(taken) => {
                if dst.is_scalar() {
                    self.mark_chain_precision(insn.dst)?;
                }
                if insn.is_reg_operand() && src.is_scalar() {
                    self.mark_chain_precision(insn.src)?;
                }
                self.note_branch(taken, !taken);
                Ok(if taken { target } else { next })
            }
            None => {
                self.check_compared(insn, &dst, &src, is32)?;
                self.follow_both(insn, next, target)
            }
        }
    }

    fn known_outcome(&self, insn: &Insn, dst: &Reg, src: &Reg, is32: bool) -> Option<bool> {
        let op = insn.op();
        let is_null_check = matches!(op, BPF_JEQ | BPF_JNE) && src.is_null_const() && !is32;
        // A test for null reveals nothing about such a pointer that must stay unknown.
        if is_null_check && dst.is_packet_any() && self.is_secret(dst) {
            return self.input.options.packet_distances.then_some(op == BPF_JNE);
        }
        branch_taken(dst, src, op, is32)
    }

    fn jump_operand(&self, insn: &Insn) -> Reg {
        if insn.is_reg_operand() {
            *self.reg(insn.src)
        } else {
            Reg::constant(i64::from(insn.imm) as u64)
        }
    }

    /// Checks `may_goto`: the kernel takes the jump once the program has looped long enough, so
    /// both outcomes are possible at any time, and this path takes the jump.
    fn check_may_goto(&mut self, next: usize, target: usize) -> Result<usize> {
        let idx = self.path.insn_idx;
        let mut queued = self.path.cur.clone();
        queued.may_goto_depth += 1;
        if let Some(previous) = self.find_previous_entry(self.before_checkpoint(), idx) {
            self.widen_imprecise(previous, &mut queued);
        }
        self.push_pending_state(queued, next, idx)?;
        self.note_branch(true, true);
        Ok(target)
    }

    /// Queues the jump and goes on with the fall-through; with `every_number`, an outcome that
    /// contradicts the operands is left out.
    fn follow_both(&mut self, insn: &Insn, next: usize, target: usize) -> Result<usize> {
        debug_assert_eq!(next, self.path.insn_idx + 1);
        let linked = self.collect_linked(insn);
        if linked.len() > 1 {
            self.note_linked(&linked);
        }
        let mut taken = self.path.cur.clone();
        let dst = *self.reg(insn.dst);
        let src = self.jump_operand(insn);
        let is32 = insn.class() == BPF_JMP32;
        let [may_jump, may_stay] = [(true, &mut taken), (false, &mut self.path.cur)]
            .map(|(holds, state)| refine_state(state, insn, &dst, &src, is32, holds, &linked));
        if self.input.options.every_number && may_jump != may_stay {
            self.note_branch(may_jump, may_stay);
            if may_jump {
                self.path.cur = taken;
            }
            return Ok(if may_jump { target } else { next });
        }
        self.note_branch(true, true);
        if !is32 {
            self.refine_pointers(insn, &dst, &src, &mut taken);
        }
        self.push_pending_state(taken, target, self.path.insn_idx)?;
        Ok(next)
    }

    /// Refines pointers by a comparison: null-ness, or bytes of the packet.
    fn refine_pointers(&mut self, insn: &Insn, dst: &Reg, src: &Reg, taken: &mut State) {
        let equality = matches!(insn.op(), BPF_JEQ | BPF_JNE);
        let is_equal = insn.op() == BPF_JEQ;
        if insn.is_reg_operand() && equality && dst.is_pointer() && src.is_pointer() {
            let typed = dst.is(Base::BtfId) || src.is(Base::BtfId);
            if dst.maybe_null() != src.maybe_null() && !typed {
                let regno = if src.maybe_null() { insn.src } else { insn.dst };
                let mut equal =
                    if is_equal { taken.frame().clone() } else { self.path.cur.frame().clone() };
                self.mark_not_null(&mut equal.regs[usize::from(regno)]);
                let state = if is_equal { taken } else { &mut self.path.cur };
                *state.frame_mut() = equal;
            }
            return;
        }
        if !insn.is_reg_operand() && insn.imm == 0 && equality && dst.maybe_null() {
            let mut current = std::mem::replace(&mut self.path.cur, State::new(0));
            self.mark_null_or_not(&mut current, dst, !is_equal);
            self.mark_null_or_not(taken, dst, is_equal);
            self.path.cur = current;
            return;
        }
        if insn.is_reg_operand() {
            refine_packet(insn, dst, src, &mut self.path.cur, taken);
        }
    }

    /// Makes all copies of a pointer that may be null, null or not null (`mark_ptr_or_null_regs`).
    fn mark_null_or_not(&self, state: &mut State, pointer: &Reg, is_null: bool) {
        let (id, ref_id) = (pointer.id, pointer.ref_id);
        if ref_id != 0 && ref_id == id && is_null {
            // The reference never existed.
            state.refs.list.retain(|held| held.id != id);
        }
        for reg in state.all_regs_mut() {
            if !reg.maybe_null() || reg.id != id {
                continue;
            }
            let odd = !reg.var.tnum.equals_const(0);
            if odd {
                continue;
            }
            if is_null {
                *reg = Reg::constant(0);
                continue;
            }
            self.mark_not_null(reg);
            if !self.may_hold_lock(reg) {
                reg.id = 0;
            }
        }
    }

    /// Registers linked to either operand (`collect_linked_regs`): as many as fit into the history,
    /// which records dependences; all of them with `every_number`.
    fn collect_linked(&mut self, insn: &Insn) -> Vec<LinkedReg> {
        let count_max = if self.input.options.every_number { usize::MAX } else { LINKED_REGS_MAX };
        let mut linked = Vec::new();
        let operands = [Some(insn.dst), insn.is_reg_operand().then_some(insn.src)];
        let mut ids = [0u32; 2];
        for (slot, regno) in ids.iter_mut().zip(operands) {
            let reg = regno.map_or(Reg::NOT_INIT, |regno| *self.reg(regno));
            if reg.is_scalar() {
                *slot = reg.id & !ADD_CONST;
            }
        }
        if ids[0] == ids[1] {
            ids[1] = 0;
        }
        for id in ids.into_iter().filter(|&id| id != 0) {
            for (depth, frame) in self.path.cur.frames.iter_mut().enumerate() {
                let spilled =
                    frame.stack.iter_mut().enumerate().filter(|(_, slot)| slot.is_spill());
                let spilled = spilled.map(|(spi, slot)| (spi, false, &mut slot.reg));
                let regs = frame.regs.iter_mut().enumerate().map(|(no, reg)| (no, true, reg));
                for (index, is_reg, reg) in regs.chain(spilled) {
                    if !reg.is_scalar() || reg.id & !ADD_CONST != id {
                        continue;
                    }
                    if linked.len() >= count_max {
                        // Registers that are not recorded must not be refined.
                        reg.id = 0;
                        reg.off = 0;
                        continue;
                    }
                    linked.push(LinkedReg { frame: depth as u8, index: index as u8, is_reg });
                }
            }
        }
        linked
    }
}

/// The outcome of a jump, if known (`is_branch_taken`).
fn branch_taken(dst: &Reg, src: &Reg, op: u8, is32: bool) -> Option<bool> {
    if dst.is_packet_any() && src.is_packet_any() {
        return if is32 { None } else { packet_branch_taken(dst, src, op) };
    }
    if dst.is_scalar() && src.is_scalar() {
        return compare::outcome(&dst.var, &src.var, op, is32);
    }
    let (pointer, number) = if dst.is_pointer() { (dst, src) } else { (src, dst) };
    if is32 || number.const_value() != Some(0) || !is_never_null(pointer) {
        return None;
    }
    match op {
        BPF_JEQ => Some(false),
        BPF_JNE => Some(true),
        _ => None,
    }
}

/// Whether the pointer is known not to be null (`reg_not_null`).
fn is_never_null(reg: &Reg) -> bool {
    if reg.maybe_null() {
        return false;
    }
    match reg.base() {
        Base::Frame
        | Base::Socket
        | Base::TcpSock
        | Base::MapValue
        | Base::MapKey
        | Base::SockCommon
        | Base::ConstMapPtr => true,
        Base::BtfId => reg.ref_id != 0 || (reg.has(Flags::TRUSTED) && !reg.has(Flags::UNTRUSTED)),
        Base::Mem => !reg.has(Flags::UNTRUSTED),
        _ => false,
    }
}

/// The outcome for a pointer that was already compared with the packet's end
/// (`is_pkt_ptr_branch_taken`).
fn packet_branch_taken(dst: &Reg, src: &Reg, op: u8) -> Option<bool> {
    let (pointer, op) = if src.is(Base::PacketEnd) {
        (dst, op)
    } else if dst.is(Base::PacketEnd) {
        (src, flip(op))
    } else {
        return None;
    };
    if dst.ref_id != src.ref_id {
        return None;
    }
    match (op, pointer.range()) {
        (BPF_JGT, BEYOND_PKT_END) => Some(true),
        (BPF_JLE, BEYOND_PKT_END) => Some(false),
        (BPF_JGE, BEYOND_PKT_END | AT_PKT_END) => Some(true),
        (BPF_JLT, BEYOND_PKT_END | AT_PKT_END) => Some(false),
        _ => None,
    }
}

/// The comparison with its sides exchanged.
fn flip(op: u8) -> u8 {
    match op {
        BPF_JGT => BPF_JLT,
        BPF_JLT => BPF_JGT,
        BPF_JGE => BPF_JLE,
        BPF_JLE => BPF_JGE,
        BPF_JSGT => BPF_JSLT,
        BPF_JSLT => BPF_JSGT,
        BPF_JSGE => BPF_JSLE,
        BPF_JSLE => BPF_JSGE,
        op => op,
    }
}

/// Refines the compared numbers and those linked to them, in the state of one outcome. False if
/// that outcome is impossible.
fn refine_state(
    state: &mut State,
    insn: &Insn,
    dst: &Reg,
    src: &Reg,
    is32: bool,
    holds: bool,
    linked: &[LinkedReg],
) -> bool {
    if !dst.is_scalar() || !src.is_scalar() {
        return true;
    }
    let frame = state.frame_mut();
    let mut left = frame.regs[usize::from(insn.dst)];
    let mut right = if insn.is_reg_operand() { frame.regs[usize::from(insn.src)] } else { *src };
    let is_possible = compare::refine(&mut left.var, &mut right.var, insn.op(), is32, holds);
    frame.regs[usize::from(insn.dst)] = left;
    if insn.is_reg_operand() && insn.src != insn.dst {
        frame.regs[usize::from(insn.src)] = right;
    }
    if !linked.is_empty() {
        if insn.is_reg_operand() && right.id != 0 {
            sync_linked(state, &right, linked);
        }
        if left.id != 0 {
            sync_linked(state, &left, linked);
        }
    }
    is_possible
}

/// Applies the knowledge about `known` to all numbers of its id (`sync_linked_regs`).
fn sync_linked(state: &mut State, known: &Reg, linked: &[LinkedReg]) {
    for item in linked {
        let Some(frame) = state.frames.get_mut(usize::from(item.frame)) else { continue };
        let reg = if item.is_reg {
            frame.regs.get_mut(usize::from(item.index))
        } else {
            frame.stack.get_mut(usize::from(item.index)).map(|slot| &mut slot.reg)
        };
        let Some(reg) = reg else { continue };
        if !reg.is_scalar() || reg.id & !ADD_CONST != known.id & !ADD_CONST {
            continue;
        }
        if reg.id == known.id && reg.off == known.off {
            *reg = *known;
            continue;
        }
        let base = step(&known.var, known.id, -i64::from(known.off));
        let value = step(&base, reg.id, i64::from(reg.off));
        *reg = Reg { var: value, id: reg.id, off: reg.off, ..*known };
    }
}

/// A number at the given distance from another, of the width that the id's flags say.
fn step(from: &Scalar, id: u32, distance: i64) -> Scalar {
    if id & ADD_CONST == 0 {
        return *from;
    }
    let is64 = id & ADD_CONST_32 == 0;
    from.alu(BPF_ADD, &Scalar::constant(distance as u64), is64)
}

/// Records packet bytes that a comparison proved (`try_match_pkt_pointers`).
fn refine_packet(insn: &Insn, dst: &Reg, src: &Reg, current: &mut State, taken: &mut State) {
    // Ends of different packets have no relation.
    if dst.ref_id != src.ref_id {
        return;
    }
    let (moving, regno, op) = if is_region(dst, src) {
        (dst, insn.dst, insn.op())
    } else if is_region(src, dst) {
        (src, insn.src, flip(insn.op()))
    } else {
        return;
    };
    // For `moving OP end`: the outcome that means "inside", and whether it includes equality.
    let (inside, outside, open, beyond) = match op {
        BPF_JGT => (current, taken, false, true),
        BPF_JLT => (taken, current, true, false),
        BPF_JGE => (current, taken, true, false),
        BPF_JLE => (taken, current, false, true),
        _ => return,
    };
    extend_ranges(inside, moving, open);
    let reg = &mut outside.frame_mut().regs[usize::from(regno)];
    if reg.is(Base::Packet) {
        let range = if beyond { BEYOND_PKT_END } else { AT_PKT_END };
        reg.payload = super::reg::Payload::Range(range);
    }
}

/// Whether `moving` was compared with the fixed end of its region.
pub(crate) fn is_region(moving: &Reg, end: &Reg) -> bool {
    (moving.is(Base::Packet) && end.is(Base::PacketEnd))
        || (moving.is(Base::PacketMeta) && is_packet_start(end))
}

/// Whether the register holds `data` as it was loaded: the end of the metadata.
fn is_packet_start(reg: &Reg) -> bool {
    reg.is(Base::Packet) && reg.id == 0 && reg.off == 0 && reg.var.tnum.equals_const(0)
}

/// Extends the range of every pointer with the same base (`find_good_pkt_pointers`). With `open`,
/// the byte that it points to is inside, too.
fn extend_ranges(state: &mut State, moving: &Reg, open: bool) {
    if moving.off < 0 || (moving.off == 0 && !open) {
        return;
    }
    let limit = PACKET_OFF_MAX as u64;
    if moving.var.umax > limit || moving.var.umax + moving.off as u64 > limit {
        return;
    }
    let range = moving.off + i32::from(open);
    for reg in state.all_regs_mut() {
        if reg.kind == moving.kind && reg.id == moving.id && reg.ref_id == moving.ref_id {
            reg.payload = super::reg::Payload::Range(reg.range().max(range));
        }
    }
}

/// Number of bytes that a packet pointer's range may span (`MAX_PACKET_OFF`).
pub(crate) const PACKET_OFF_MAX: i32 = 0xffff;

impl Verifier<'_> {
    /// Marks a pointer as not null; some map values become pointers to other objects
    /// (`mark_ptr_not_null_reg`).
    pub(crate) fn mark_not_null(&self, reg: &mut Reg) {
        reg.kind.flags = reg.kind.flags.without(Flags::MAYBE_NULL);
        let (Base::MapValue, Some(map)) = (reg.base(), reg.map()) else { return };
        let Some(def) = self.map_def(map) else { return };
        match def.kind.values() {
            Values::Map => {
                let inner = super::reg::MapRef { index: map.index, inner: true };
                reg.kind.base = Base::ConstMapPtr;
                reg.payload = super::reg::Payload::Map { map: inner, uid: reg.id };
            }
            Values::Socket => {
                reg.kind.base = Base::XdpSock;
                reg.payload = super::reg::Payload::None;
            }
            Values::Host(Host::Socket) => {
                reg.kind.base = Base::Socket;
                reg.payload = super::reg::Payload::None;
            }
            _ => {}
        }
    }

    /// Whether the pointer's target may have a lock: the id then distinguishes locks.
    fn may_hold_lock(&self, reg: &Reg) -> bool {
        match reg.base() {
            Base::MapValue => self.map_of(reg).is_some_and(|map| map.value_type != 0),
            Base::BtfId => reg.has(Flags::ALLOC),
            _ => false,
        }
    }
}
