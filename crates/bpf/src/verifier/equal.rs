//! Comparison of states: everything that the program can do from the current state, it could also
//! do from the explored one (`states_equal`).

use crate::proto::id;

use super::env::Verifier;
use super::reg::{ADD_CONST, Base, Reg};
use super::stack::UNBOUND;
use super::state::{Frame, Ref, RefKind, Refs, SLOT_BYTES, SlotKind, StackSlot, State};

/// Strictness of a comparison (`enum exact_level`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exact {
    /// Unused registers and slots may differ; marks of the old state are final.
    Not,
    /// All must be equal: to find endless loops.
    Yes,
    /// Within the old state's ranges, all scalars taken as precise: the old state's marks aren't
    /// final.
    Range,
}

/// Mapping between ids of the old state and of the current one.
#[derive(Default)]
pub(crate) struct IdMap {
    pairs: Vec<(u32, u32)>,
    invented: u32,
}

impl IdMap {
    /// Whether the pair is consistent with the pairs before (`check_ids`).
    pub(crate) fn same(&mut self, old: u32, current: u32) -> bool {
        if (old == 0) != (current == 0) {
            return false;
        }
        if old == 0 {
            return true;
        }
        for &(known_old, known_current) in &self.pairs {
            if known_old == old {
                return known_current == current;
            }
            if known_current == current {
                return false;
            }
        }
        self.pairs.push((old, current));
        true
    }

    /// As [`IdMap::same`]; a scalar without id counts as one with an id of its own, linked with
    /// none (`check_scalar_ids`).
    fn same_scalar(&mut self, old: u32, current: u32) -> bool {
        let old = if old != 0 { old } else { self.invent() };
        let current = if current != 0 { current } else { self.invent() };
        self.same(old, current)
    }

    fn invent(&mut self) -> u32 {
        self.invented += 1;
        // Larger than all ids that a verification of a million instructions can give out.
        (1 << 29) + self.invented
    }
}

impl Verifier<'_> {
    /// Whether `current` needs no exploring because `old` was (or is being) explored.
    pub(crate) fn states_equal(&self, old: &State, current: &State, exact: Exact) -> bool {
        let mut ids = IdMap::default();
        old.frames.len() == current.frames.len()
            && old.in_sleepable == current.in_sleepable
            && refs_equal(&old.refs, &current.refs, &mut ids)
            && (0..old.frames.len()).all(|depth| {
                let (a, b) = (&old.frames[depth], &current.frames[depth]);
                a.callsite == b.callsite
                    && a.subprog == b.subprog
                    && self.rounds_equal(old, current, depth)
                    && self.frames_equal(a, b, old.frame_insn(depth), exact, &mut ids)
            })
    }

    /// Compares the number of rounds of `bpf_loop`: it is decided at the return of the function, by
    /// r1 of its caller, so the old state counts even if no check in the function depended on it.
    fn rounds_equal(&self, old: &State, current: &State, depth: usize) -> bool {
        let called = current.frames.get(depth + 1).filter(|frame| frame.in_callback);
        let Some(callsite) = called.map(|frame| frame.callsite) else { return true };
        let call = self.insn_at(callsite);
        let is_loop = call.is_helper_call() && call.imm == id::LOOP as i32;
        let rounds = |state: &State| state.frames[depth].regs[1];
        !is_loop || rounds(old).var.contains(&rounds(current).var)
    }

    fn frames_equal(
        &self,
        old: &Frame,
        current: &Frame,
        insn_idx: usize,
        exact: Exact,
        ids: &mut IdMap,
    ) -> bool {
        if old.callback_depth > current.callback_depth {
            return false;
        }
        let live = self.learned.aux.get(insn_idx).map_or(u16::MAX, |aux| aux.live_regs);
        let regs = old.regs.iter().zip(&current.regs).enumerate();
        let mut live_regs = regs.filter(|(regno, _)| live & (1 << regno) != 0);
        live_regs.all(|(_, (a, b))| regs_equal(a, b, exact, ids))
            && self.stacks_equal(old, current, exact, ids)
    }

    /// Compares stacks (`stacksafe`): the old state can't have used slots that it doesn't have.
    fn stacks_equal(&self, old: &Frame, current: &Frame, exact: Exact, ids: &mut IdMap) -> bool {
        old.stack.iter().enumerate().all(|(spi, slot)| {
            let other = current.slot(spi).unwrap_or(&StackSlot::EMPTY);
            self.slots_equal(slot, other, exact, ids)
        })
    }

    fn slots_equal(
        &self,
        old: &StackSlot,
        current: &StackSlot,
        exact: Exact,
        ids: &mut IdMap,
    ) -> bool {
        let may_read_unwritten = self.input.options.allow_uninit_stack;
        // In a loop it is not known yet which slots are read later: a slot that the first round
        // wrote distinguishes it from the second.
        if exact != Exact::Not && old.kinds != current.kinds {
            return false;
        }
        // The old state can't have read slots that it never wrote, or (privileged) took them for
        // any data.
        if old.kinds.iter().all(|kind| *kind == SlotKind::Invalid) {
            return true;
        }
        let whole = |slot| whole_scalar(slot, may_read_unwritten);
        if exact != Exact::Yes
            && let (Some(a), Some(b)) = (whole(old), whole(current))
        {
            return regs_equal(&a, &b, exact, ids);
        }
        for i in 0..SLOT_BYTES {
            let (a, b) = (old.kinds[i], current.kinds[i]);
            let any = match a {
                SlotKind::Invalid => true,
                // A state that is safe with any data is safe with zeros.
                SlotKind::Misc => may_read_unwritten || b == SlotKind::Zero,
                _ => false,
            };
            if !any && a != b {
                return false;
            }
        }
        let last = old.kinds[SLOT_BYTES - 1];
        match last {
            SlotKind::Spill => regs_equal(&old.reg, &current.reg, exact, ids),
            SlotKind::Dynptr | SlotKind::Iter | SlotKind::Irq => {
                special_equal(&old.reg, &current.reg, ids)
            }
            _ => true,
        }
    }
}

fn refs_equal(old: &Refs, current: &Refs, ids: &mut IdMap) -> bool {
    let counts = |refs: &Refs| {
        (
            refs.list.len(),
            refs.active_locks,
            refs.active_preempt_locks,
            refs.active_rcu_locks,
            refs.active_lock_owner,
        )
    };
    let same_ref = |a: &Ref, b: &Ref, ids: &mut IdMap| {
        a.kind == b.kind
            && ids.same(a.id, b.id)
            && (matches!(a.kind, RefKind::Ptr | RefKind::Irq) || a.owner == b.owner)
    };
    counts(old) == counts(current)
        && ids.same(old.active_irq_id, current.active_irq_id)
        && ids.same(old.active_lock_id, current.active_lock_id)
        && old.list.iter().zip(&current.list).all(|(a, b)| same_ref(a, b, ids))
}

/// Compares registers (`regsafe`).
fn regs_equal(old: &Reg, current: &Reg, exact: Exact, ids: &mut IdMap) -> bool {
    if exact == Exact::Yes {
        return exactly(old, current, ids);
    }
    if old.is(Base::NotInit) && exact == Exact::Not {
        return true;
    }
    if old.kind != current.kind {
        return false;
    }
    match old.base() {
        Base::Scalar => {
            if !old.precise && exact == Exact::Not {
                return true;
            }
            let flagged =
                |reg: &Reg| (reg.id & ADD_CONST != 0).then_some((reg.id & ADD_CONST, reg.off));
            flagged(old) == flagged(current)
                && ids.same_scalar(old.id, current.id)
                && old.var.contains(&current.var)
        }
        Base::MapKey | Base::MapValue | Base::Mem | Base::Buf => {
            old.off == current.off
                && old.frame == current.frame
                && old.payload == current.payload
                && old.var.contains(&current.var)
                && ids.same(old.id, current.id)
                && ids.same(old.ref_id, current.ref_id)
        }
        Base::Packet | Base::PacketMeta => {
            let (a, b) = (old.range(), current.range());
            let range = if a < 0 || b < 0 { a == b } else { a <= b };
            range
                && old.off == current.off
                && ids.same(old.id, current.id)
                && ids.same(old.ref_id, current.ref_id)
                && old.var.contains(&current.var)
        }
        Base::Stack => old.frame == current.frame && exactly(old, current, ids),
        Base::Arena => true,
        _ => exactly(old, current, ids),
    }
}

/// Compares everything but the numbers of ids (`regs_exact`).
fn exactly(old: &Reg, current: &Reg, ids: &mut IdMap) -> bool {
    old.kind == current.kind
        && old.off == current.off
        && old.payload == current.payload
        && old.var == current.var
        && old.frame == current.frame
        && ids.same(old.id, current.id)
        && ids.same(old.ref_id, current.ref_id)
}

/// Compares dynptr, iterator and interrupt slots; an iterator's depth is not part of its state.
fn special_equal(old: &Reg, current: &Reg, ids: &mut IdMap) -> bool {
    use super::reg::Payload::Iter;
    let payload = match (old.payload, current.payload) {
        (Iter { ty: a, state: s, .. }, Iter { ty: b, state: t, .. }) => a == b && s == t,
        (a, b) => a == b,
    };
    payload && ids.same(old.ref_id, current.ref_id)
}

/// A slot as one 64-bit number: a spilled scalar, or unknown data, which includes unwritten bytes
/// if programs may read them.
fn whole_scalar(slot: &StackSlot, unwritten: bool) -> Option<Reg> {
    if slot.is_full_spill() && slot.reg.is_scalar() {
        return Some(slot.reg);
    }
    let is_data =
        |kind: SlotKind| kind == SlotKind::Misc || (kind == SlotKind::Invalid && unwritten);
    let data = slot.kinds.iter().all(|kind| is_data(*kind));
    data.then_some(UNBOUND)
}
