//! Functions of the program that helpers and kfuncs call, and loops over iterators.
//!
//! The number of a callback's runs isn't known, so a call is followed both as returning and as
//! running the callback once more, until nothing new is learned (`push_callback_call`).

use super::env::{Result, Verifier};
use super::reg::{IterState, Payload, Reg};
use super::state::{Frame, NO_INSN, State};

impl Verifier<'_> {
    /// The current call instruction calls `subprog` back, any number of times. Synchronous: the
    /// callback is followed from a copy of the current state, and the call returns as well.
    /// `set_up` fills the callee's registers from the caller's (`set_callee_state_cb`);
    /// `in_callback` and the frame numbers are already set. Asynchronous (`is_async`): the callback
    /// is followed on its own, without a caller's frame.
    pub(crate) fn push_callback_call(
        &mut self,
        subprog: usize,
        is_async: bool,
        is_sleepable: bool,
        set_up: impl FnOnce(&mut Self, &Frame, &mut Frame) -> Result<()>,
    ) -> Result<()> {
        let Some(start) = self.learned.subprogs.get(subprog).map(|subprog| subprog.start) else {
            return Err(self.internal("a callback is no function"));
        };
        self.learned.subprogs[subprog].is_callback = true;
        let idx = self.path.insn_idx;
        let caller = self.path.cur.frame().clone();
        if is_async {
            self.learned.subprogs[subprog].is_async_callback = true;
            let mut state = State::new(subprog);
            state.in_sleepable = is_sleepable;
            let mut callee = Frame::new(0, NO_INSN, subprog);
            callee.in_async_callback = true;
            callee.async_entry_count = caller.async_entry_count + 1;
            set_up(self, &caller, &mut callee)?;
            state.frames = vec![callee];
            state.first_insn_idx = start;
            return self.push_pending_state(state, start, NO_INSN);
        }
        let mut callee = self.new_frame(idx, subprog, |_, _| {})?;
        callee.in_callback = true;
        set_up(self, &caller, &mut callee)?;
        let mut state = self.path.cur.clone();
        state.callback_unroll_depth += 1;
        state.frame_mut().callback_depth += 1;
        state.frames.push(callee);
        self.push_pending_state(state, start, idx)?;
        self.path.cur.frame_mut().callback_depth = 0;
        Ok(())
    }

    /// Handles `*_next` of the open-coded iterator at `frame`/`spi`: follows both the drained and
    /// the active iterator. Called after r0 is set for the active case, possibly null.
    pub(crate) fn process_iter_next(&mut self, frame: usize, spi: usize) -> Result<()> {
        let idx = self.path.insn_idx;
        let payload = self.path.cur.slot(frame, spi).map(|slot| slot.reg.payload);
        let Some(Payload::Iter { ty, state, depth }) = payload else {
            return Err(self.internal("an iterator's slot holds no iterator"));
        };
        if state == IterState::Active {
            let mut queued = self.path.cur.clone();
            let active = Payload::Iter { ty, state: IterState::Active, depth: depth + 1 };
            set_iterator(&mut queued, frame, spi, active);
            if let Some(previous) = self.find_previous_entry(self.before_checkpoint(), idx) {
                self.widen_imprecise(previous, &mut queued);
            }
            self.mark_not_null(&mut queued.frame_mut().regs[0]);
            self.push_pending_state(queued, idx + 1, idx)?;
        }
        let drained = Payload::Iter { ty, state: IterState::Drained, depth };
        set_iterator(&mut self.path.cur, frame, spi, drained);
        *self.reg_mut(0) = Reg::constant(0);
        Ok(())
    }
}

fn set_iterator(state: &mut State, frame: usize, spi: usize, payload: Payload) {
    let slot = state.frames.get_mut(frame).and_then(|frame| frame.stack.get_mut(spi));
    if let Some(slot) = slot {
        slot.reg.payload = payload;
    }
}
