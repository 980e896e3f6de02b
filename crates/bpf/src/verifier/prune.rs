//! Early ends of paths, at states that were explored before (`is_state_visited`).

use crate::errno::Errno;
use crate::insn::BPF_JCOND;

use super::env::{Result, Verifier};
use super::equal::Exact;
use super::reg::{ADD_CONST, Base, IterState, Payload, Reg};
use super::state::{Frame, SlotKind, State, StateId};

/// Number of entries after which a checkpoint ends a segment's history.
const HISTORY_BEFORE_CHECKPOINT: usize = 40;

impl Verifier<'_> {
    /// Whether the current state needs no exploring. If it does, it may have been kept for later
    /// comparisons.
    pub(crate) fn is_state_visited(&mut self) -> Result<bool> {
        let insn_idx = self.path.insn_idx;
        let aux = &self.learned.aux[insn_idx];
        let forced =
            aux.force_checkpoint || self.path.cur.history.len() > HISTORY_BEFORE_CHECKPOINT;
        let jumps = self.search.jumps_processed - self.search.jumps_at_last_state;
        let insns = self.stats.insns_processed - self.search.insns_at_last_state;
        let mut keep = forced || (jumps >= 2 && insns >= 8);
        let candidates = self.search.arena.at_insn(insn_idx);
        let count = candidates.len() as u32;
        for id in candidates {
            let verdict = if self.search.arena.state(id).branches > 0 {
                let verdict = self.compare_unfinished(id)?;
                if verdict == Verdict::Miss && !forced && jumps < 20 && insns < 100 {
                    // A loop's iterations are rarely equal: not too many states are kept.
                    keep = false;
                }
                verdict
            } else {
                self.compare_finished(id)
            };
            if let Verdict::Hit { in_loop } = verdict {
                self.end_at(id, in_loop);
                return Ok(true);
            }
            self.count_miss(id, keep);
        }
        self.stats.max_states_per_insn = self.stats.max_states_per_insn.max(count);
        if keep {
            self.keep_state();
        }
        Ok(false)
    }

    fn compare_finished(&mut self, id: StateId) -> Verdict {
        let in_loop = self.marks_incomplete(self.search.arena.state(id));
        if !in_loop && !self.search.arena.state(id).cleaned {
            self.clean_state(id);
        }
        let all = in_loop || self.input.options.every_number;
        let exact = if all { Exact::Range } else { Exact::Not };
        if self.states_equal(self.search.arena.state(id), &self.path.cur, exact) {
            Verdict::Hit { in_loop }
        } else {
            Verdict::Miss
        }
    }

    /// Compares with a state whose own paths haven't all ended: a return to it is a loop. Loops
    /// with a certain end (iterators, callbacks, `may_goto`) may converge; others may not.
    fn compare_unfinished(&self, id: StateId) -> Result<Verdict> {
        let old = self.search.arena.state(id);
        let (a, b) = (old.frame(), self.path.cur.frame());
        if a.in_async_callback && a.async_entry_count != b.async_entry_count {
            return Ok(Verdict::Miss);
        }
        let insn = self.insn();
        let in_range = |v: &Self| v.states_equal(old, &v.path.cur, Exact::Range);
        if self.learned.aux[self.path.insn_idx].iter_next {
            let converged = self.iterator_goes_on(old) && in_range(self);
            return Ok(if converged { Verdict::Hit { in_loop: true } } else { Verdict::Miss });
        }
        let is_may_goto = insn.op() == BPF_JCOND && matches!(insn.class(), crate::insn::BPF_JMP);
        if is_may_goto && old.may_goto_depth != self.path.cur.may_goto_depth && in_range(self) {
            return Ok(Verdict::Hit { in_loop: true });
        }
        if self.learned.aux[self.path.insn_idx].calls_callback {
            let converged = in_range(self);
            return Ok(if converged { Verdict::Hit { in_loop: true } } else { Verdict::Miss });
        }
        if maybe_looping(old, &self.path.cur)
            && !iterator_depths_differ(old, &self.path.cur)
            && old.may_goto_depth == self.path.cur.may_goto_depth
            && old.callback_unroll_depth == self.path.cur.callback_unroll_depth
            && self.states_equal(old, &self.path.cur, Exact::Yes)
        {
            let message = format!("infinite loop detected at insn {}", self.path.insn_idx);
            let hint = "nothing changes from one iteration to the next: make the loop count, \
                        and compare the count with a constant";
            return Err(self.reject_hint(Errno::EINVAL, message, hint));
        }
        Ok(Verdict::Miss)
    }

    /// Whether r1 of `*_next` points to an iterator that still has elements, the same as in `old`.
    /// The kernel accepts any similar iterator, and so accepts some endless loops: those that make
    /// a new one in each round.
    fn iterator_goes_on(&self, old: &State) -> bool {
        let reg = self.reg(1);
        let Some(off) = reg.const_offset().filter(|off| (-512..0).contains(off)) else {
            return false;
        };
        // The iterator's first slot is the one with the lowest address.
        let place = super::state::slot_index(off);
        let slot = |frame: &Frame| frame.slot(place).map(|slot| slot.reg);
        let now = slot(self.frame_of(reg));
        let before = old.frames.get(reg.frame as usize).and_then(slot);
        now.zip(before).is_some_and(|(now, before)| {
            let active = matches!(now.payload, Payload::Iter { state: IterState::Active, .. });
            active && now.ref_id == before.ref_id
        })
    }

    /// Ends the current path in a state that was explored before: that state's marks apply to this
    /// path, too.
    fn end_at(&mut self, id: StateId, in_loop: bool) {
        self.search.arena.get_mut(id).hits += 1;
        if self.learned.aux[self.path.insn_idx].jump_point {
            self.note_jump();
        }
        self.propagate_liveness_here(id);
        self.propagate_precision_here(id);
        if in_loop {
            let mut state = self.path.cur.clone();
            state.insn_idx = self.path.insn_idx;
            if !self.add_backedge(id, state) {
                // No loop is known here, so marks will not be transferred later: assume them all.
                let mut current = std::mem::replace(&mut self.path.cur, State::new(0));
                self.mark_all_scalars_precise(&mut current);
                self.mark_all_read(&current);
                self.path.cur = current;
            }
        }
    }

    fn mark_all_read(&mut self, state: &State) {
        for depth in 0..state.frames.len() {
            let bits = !state.frames[depth].stack_written;
            self.mark_parents_read(state.parent, depth, bits);
        }
    }

    fn count_miss(&mut self, id: StateId, keep: bool) {
        let patience = if self.learned.aux[self.path.insn_idx].force_checkpoint
            && self.search.arena.state(id).branches > 0
        {
            64
        } else {
            3
        };
        let item = self.search.arena.get_mut(id);
        if keep {
            item.misses += 1;
        }
        if item.misses > item.hits.saturating_mul(patience).saturating_add(patience) {
            self.search.arena.retire(id);
            self.free_if_unused(id);
        }
    }

    fn free_if_unused(&mut self, id: StateId) {
        let item = self.search.arena.get(id);
        if item.evicted && item.state.branches == 0 && !self.marks_incomplete(&item.state) {
            self.search.arena.free(id);
        }
    }

    /// Frees states that only waited for a loop's marks.
    pub(crate) fn free_retired(&mut self) {
        for id in self.search.arena.retired() {
            self.free_if_unused(id);
        }
    }

    /// Keeps a copy of the current state, which continues as its child.
    fn keep_state(&mut self) {
        self.stats.total_states += 1;
        self.search.insns_at_last_state = self.stats.insns_processed;
        self.search.jumps_at_last_state = self.search.jumps_processed;
        for reg in self.path.cur.all_regs_mut().filter(|reg| reg.is_scalar()) {
            reg.precise = false;
        }
        clear_single_ids(&mut self.path.cur);
        let mut kept = self.path.cur.clone();
        kept.insn_idx = self.path.insn_idx;
        for frame in &mut kept.frames {
            frame.stack_read = 0;
        }
        let dfs_depth = kept.dfs_depth + 1;
        let id = self.search.arena.insert(kept);
        self.stats.peak_states = self.stats.peak_states.max(self.search.arena.len() as u64);
        self.maybe_enter_loop(id);
        self.path.cur.parent = Some(id);
        self.path.cur.first_insn_idx = self.path.insn_idx;
        self.path.cur.dfs_depth = dfs_depth;
        self.path.cur.history.clear();
        self.path.history_entry = false;
        for frame in &mut self.path.cur.frames {
            frame.stack_written = 0;
            frame.stack_read = 0;
        }
    }

    /// Removes registers and slots that no path from a finished state reads
    /// (`clean_verifier_state`).
    fn clean_state(&mut self, id: StateId) {
        let state = self.search.arena.state(id);
        let live: Vec<u16> = (0..state.frames.len())
            .map(|depth| {
                self.learned.aux.get(state.frame_insn(depth)).map_or(u16::MAX, |a| a.live_regs)
            })
            .collect();
        let state = self.search.arena.state_mut(id);
        state.cleaned = true;
        for (frame, live) in state.frames.iter_mut().zip(live) {
            for (regno, reg) in frame.regs.iter_mut().enumerate().take(10) {
                if live & (1 << regno) == 0 {
                    *reg = Reg::NOT_INIT;
                }
            }
            let read = frame.stack_read;
            for (spi, slot) in frame.stack.iter_mut().enumerate() {
                if read & (1 << (spi & 63)) == 0 && slot.special().is_none() {
                    slot.fill(SlotKind::Invalid);
                }
            }
        }
    }

    /// Ends the current path (`update_branch_counts`).
    pub(crate) fn end_path(&mut self) {
        let mut parent = self.path.cur.parent;
        while let Some(id) = parent {
            let state = self.search.arena.state_mut(id);
            state.branches = state.branches.saturating_sub(1);
            if state.branches > 0 {
                return;
            }
            parent = state.parent;
            // The end of a loop frees states that waited for its marks, possibly this one.
            if !self.maybe_exit_loop(id) {
                self.free_if_unused(id);
            }
        }
    }

    /// The nearest ancestor at the same instruction and in the same calls (`find_prev_entry`).
    pub(crate) fn find_previous_entry(
        &self,
        mut from: Option<StateId>,
        insn_idx: usize,
    ) -> Option<StateId> {
        while let Some(id) = from {
            let state = self.search.arena.state(id);
            if state.insn_idx == insn_idx
                && state.branches > 0
                && same_callsites(state, &self.path.cur)
            {
                return Some(id);
            }
            from = state.parent;
        }
        None
    }

    /// The parent at an instruction that is always a checkpoint: the state before it.
    pub(crate) fn before_checkpoint(&self) -> Option<StateId> {
        self.path.cur.parent.and_then(|id| self.search.arena.state(id).parent)
    }

    /// Makes numbers unknown that changed since an earlier iteration and didn't matter, so that
    /// loops without a known end converge (`widen_imprecise_scalars`).
    pub(crate) fn widen_imprecise(&self, old: StateId, state: &mut State) {
        if !self.input.options.forget_in_loops {
            return;
        }
        let old = self.search.arena.state(old);
        for (a, b) in old.frames.iter().zip(&mut state.frames) {
            for (before, now) in a.regs.iter().zip(&mut b.regs) {
                widen(before, now);
            }
            for (before, now) in a.stack.iter().zip(&mut b.stack) {
                if before.is_spill() && now.is_spill() {
                    widen(&before.reg, &mut now.reg);
                }
            }
        }
    }
}

/// Result of comparing the current state with an explored one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Hit { in_loop: bool },
    Miss,
}

fn widen(before: &Reg, now: &mut Reg) {
    let scalars = before.is_scalar() && now.is_scalar();
    if scalars && !before.precise && !now.precise && before.var != now.var {
        *now = Reg::UNKNOWN;
    }
}

/// Whether both have the same call sites (`same_callsites`).
pub(crate) fn same_callsites(a: &State, b: &State) -> bool {
    a.frames.len() == b.frames.len()
        && a.frames.iter().zip(&b.frames).all(|(a, b)| a.callsite == b.callsite)
}

/// A quick check whether all registers of the running frame are equal.
fn maybe_looping(old: &State, current: &State) -> bool {
    old.frames.len() == current.frames.len()
        && old.frame().regs.iter().zip(&current.frame().regs).all(|(a, b)| {
            (a.kind, a.off, a.payload, a.id, a.ref_id) == (b.kind, b.off, b.payload, b.id, b.ref_id)
                && a.var == b.var
        })
}

fn iterator_depths_differ(old: &State, current: &State) -> bool {
    let pairs = old.frames.iter().zip(&current.frames);
    let mut slots = pairs.flat_map(|(a, b)| a.stack.iter().zip(&b.stack));
    slots.any(|(a, b)| match (a.reg.payload, b.reg.payload) {
        (
            Payload::Iter { state: IterState::Active, depth, .. },
            Payload::Iter { depth: other, .. },
        ) => depth != other,
        _ => false,
    })
}

/// Clears ids that only one scalar has, as they link it with no other.
fn clear_single_ids(state: &mut State) {
    let mut ids: Vec<u32> = state
        .all_regs()
        .filter(|reg| reg.is(Base::Scalar) && reg.id != 0)
        .map(|reg| reg.id & !ADD_CONST)
        .collect();
    ids.sort_unstable();
    for reg in state.all_regs_mut().filter(|reg| reg.is(Base::Scalar) && reg.id != 0) {
        let id = reg.id & !ADD_CONST;
        let first = ids.partition_point(|&other| other < id);
        if ids.get(first + 1) != Some(&id) {
            reg.id = 0;
            reg.off = 0;
        }
    }
}
