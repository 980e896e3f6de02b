//! Numbers that mattered: scalars are marked precise back along the path.
//!
//! Most values on a path never decide anything. A scalar is marked precise in the states of the
//! path only when a check depended on it; all others may differ between states that are still
//! equal. This is what makes pruning effective (`__mark_chain_precision`).

use super::backtrack::Wanted;
use super::env::{Result, Verifier};
use super::state::{FRAME_COUNT_MAX, HistoryEntry, LinkedReg, LinkedRegs, State, StateId};

impl Verifier<'_> {
    /// Records that the verdict depends on the value of scalar `regno`: states are only equal to
    /// those of this path if their value is within this one (`mark_chain_precision`).
    pub(crate) fn mark_chain_precision(&mut self, regno: u8) -> Result<()> {
        if !self.reg(regno).is_scalar() {
            return Ok(());
        }
        let mut wanted = Wanted::new(self.path.cur.depth());
        wanted.add(regno);
        self.mark_current_chain(wanted);
        Ok(())
    }

    /// As [`Verifier::mark_chain_precision`], for the scalar spilled to a stack slot.
    pub(crate) fn mark_slot_precise(&mut self, frame: usize, spi: usize) {
        let mut wanted = Wanted::new(self.path.cur.depth());
        if let Some(slots) = wanted.slots.get_mut(frame) {
            *slots |= 1 << (spi & 63);
            self.mark_current_chain(wanted);
        }
    }

    /// Marks the wanted scalars in the states that the current one came from. True if there are new
    /// marks.
    fn mark_current_chain(&mut self, wanted: Wanted) -> bool {
        let mut current = std::mem::replace(&mut self.path.cur, State::new(0));
        let changed = self.mark_chain(&mut current, wanted);
        self.path.cur = current;
        changed
    }

    fn mark_chain(&mut self, start: &mut State, mut wanted: Wanted) -> bool {
        let mut changed = false;
        if wanted.is_empty() {
            return false;
        }
        let mut at: Option<StateId> = None;
        let mut last = start.insn_idx;
        let mut next = None;
        let mut skip_first = true;
        loop {
            let segment = at.map_or(&*start, |id| self.search.arena.state(id));
            match self.walk_segment(segment, last, &mut next, skip_first, &mut wanted) {
                Walk::Found => return changed,
                Walk::Lost => {
                    self.mark_all_scalars_precise(start);
                    return true;
                }
                Walk::Goes => {}
            }
            skip_first = false;
            let Some(parent) = segment.parent else { break };
            let first = segment.first_insn_idx;
            changed |= mark_wanted(self.search.arena.state_mut(parent), &mut wanted);
            if wanted.is_empty() {
                return changed;
            }
            next = Some(first);
            last = self.search.arena.state(parent).last_insn_idx;
            if last == super::state::NO_INSN {
                // At the entry of the program or of a global function: arguments have no origin.
                return changed;
            }
            at = Some(parent);
        }
        // An access can't be followed back.
        self.mark_all_scalars_precise(start);
        true
    }

    /// Goes back over the instructions between a state and its parent.
    fn walk_segment(
        &self,
        segment: &State,
        last: usize,
        next: &mut Option<usize>,
        mut skip_first: bool,
        wanted: &mut Wanted,
    ) -> Walk {
        let mut history: &[HistoryEntry] = &segment.history;
        let mut idx = last;
        loop {
            if !skip_first {
                let entry = history.last().filter(|entry| entry.idx == idx);
                if self.backtrack(idx, *next, entry, wanted).is_err() {
                    return Walk::Lost;
                }
            }
            skip_first = false;
            if wanted.is_empty() {
                return Walk::Found;
            }
            *next = Some(idx);
            if idx == segment.first_insn_idx
                && (history.is_empty() || (history.len() == 1 && history[0].idx == idx))
            {
                return Walk::Goes;
            }
            match history.split_last() {
                Some((entry, rest)) if entry.idx == idx => {
                    idx = entry.prev_idx;
                    history = rest;
                }
                _ => match idx.checked_sub(1) {
                    Some(previous) => idx = previous,
                    None => return Walk::Goes,
                },
            }
            if idx >= self.input.prog.insns.len() {
                return Walk::Goes;
            }
        }
    }

    /// Marks every scalar of the state's ancestors precise: the fallback if tracking fails
    /// (`mark_all_scalars_precise`).
    pub(crate) fn mark_all_scalars_precise(&mut self, start: &mut State) {
        let mut parent = start.parent;
        while let Some(id) = parent {
            let state = self.search.arena.state_mut(id);
            for reg in state.all_regs_mut().filter(|reg| reg.is_scalar()) {
                reg.precise = true;
            }
            parent = state.parent;
        }
    }

    /// Applies the precision marks of `old` to the path that ended there (`propagate_precision`).
    /// True if there are new marks.
    pub(crate) fn propagate_precision(&mut self, old: StateId, state: &mut State) -> bool {
        let wanted = precise_of(self.search.arena.state(old), state);
        self.mark_chain(state, wanted)
    }

    /// As [`Verifier::propagate_precision`], for the current path.
    pub(crate) fn propagate_precision_here(&mut self, old: StateId) {
        let wanted = precise_of(self.search.arena.state(old), &self.path.cur);
        self.mark_current_chain(wanted);
    }

    /// Applies the read marks of `old` to the path that ended there. True if there are new marks.
    pub(crate) fn propagate_liveness(&mut self, old: StateId, state: &State) -> bool {
        let reads: Vec<u64> =
            self.search.arena.state(old).frames.iter().map(|frame| frame.stack_read).collect();
        let mut changed = false;
        for (frame, reads) in reads.into_iter().enumerate() {
            let Some(owner) = state.frames.get(frame) else { break };
            let bits = reads & !owner.stack_written;
            if bits != 0 {
                changed |= self.mark_parents_read(state.parent, frame, bits);
            }
        }
        changed
    }

    /// As [`Verifier::propagate_liveness`], for the current path.
    pub(crate) fn propagate_liveness_here(&mut self, old: StateId) {
        let current = std::mem::replace(&mut self.path.cur, State::new(0));
        self.propagate_liveness(old, &current);
        self.path.cur = current;
    }

    /// The current instruction's entry in the path's history, made if needed.
    fn history_entry(&mut self) -> Option<&mut HistoryEntry> {
        if !self.path.history_entry {
            self.path
                .cur
                .history
                .push(HistoryEntry::jump(self.path.insn_idx, self.path.prev_insn_idx));
            self.path.history_entry = true;
        }
        self.path.cur.history.last_mut()
    }

    /// Records that the path arrives at the current instruction (`push_jmp_history`).
    pub(crate) fn note_jump(&mut self) {
        let _ = self.history_entry();
    }

    /// Records a spill or fill.
    pub(crate) fn note_stack_access(&mut self, frame: usize, spi: usize) {
        if let Some(entry) = self.history_entry() {
            entry.stack_access = Some((frame as u8, spi as u8));
        }
    }

    /// Records that a comparison's operands are stack pointers.
    pub(crate) fn note_stack_compare(&mut self, dst: bool, src: bool) {
        if let Some(entry) = self.history_entry() {
            entry.dst_is_stack = dst;
            entry.src_is_stack = src;
        }
    }

    /// Records scalars refined together.
    pub(crate) fn note_linked(&mut self, linked: &[LinkedReg]) {
        if let Some(entry) = self.history_entry() {
            entry.linked = LinkedRegs::first_of(linked);
        }
    }
}

/// Outcome of going back over one segment.
enum Walk {
    /// All wanted numbers came from constants or memory.
    Found,
    /// The segment's start is reached with numbers still wanted.
    Goes,
    /// An instruction can't be followed back.
    Lost,
}

/// Marks the wanted scalars precise in a state, and drops those that were marked already (their
/// origins are marked, too) and those that are no scalars. True if there are new marks.
fn mark_wanted(state: &mut State, wanted: &mut Wanted) -> bool {
    let mut changed = false;
    for depth in 0..FRAME_COUNT_MAX {
        let Some(frame) = state.frames.get_mut(depth) else {
            // The frame was entered after this state: none of its registers can be wanted earlier.
            continue;
        };
        for (regno, reg) in frame.regs.iter_mut().enumerate() {
            let bit = 1u16 << regno;
            if wanted.regs[depth] & bit == 0 {
                continue;
            }
            if !reg.is_scalar() || reg.precise {
                wanted.regs[depth] &= !bit;
            } else {
                reg.precise = true;
                changed = true;
            }
        }
        let slots = wanted.slots[depth];
        for spi in (0..64).filter(|spi| slots & (1 << spi) != 0) {
            match frame.stack.get_mut(spi) {
                Some(slot) if slot.is_scalar_spill() && !slot.reg.precise => {
                    slot.reg.precise = true;
                    changed = true;
                }
                _ => wanted.slots[depth] &= !(1 << spi),
            }
        }
    }
    changed
}

/// The precise scalars of a finished state that `state` has too.
fn precise_of(old: &State, state: &State) -> Wanted {
    let mut wanted = Wanted::new(state.depth());
    for (depth, frame) in old.frames.iter().enumerate().take(FRAME_COUNT_MAX) {
        for (regno, reg) in frame.regs.iter().enumerate() {
            if reg.is_scalar() && reg.precise {
                wanted.regs[depth] |= 1 << regno;
            }
        }
        for (spi, slot) in frame.stack.iter().enumerate().take(64) {
            if slot.is_scalar_spill() && slot.reg.precise {
                wanted.slots[depth] |= 1 << spi;
            }
        }
    }
    wanted
}
