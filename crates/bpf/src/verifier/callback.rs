//! Functions of the program that helpers and kfuncs call, and iterators' loops.

use super::env::{Result, Verifier};
use super::state::Frame;

impl Verifier<'_> {
    /// The current call instruction calls `subprog` back, any number of times
    /// (`push_callback_call`). Synchronous: the callback is followed from a copy of the current
    /// state, and the call returns as well. `set_up` fills the callee's registers from the
    /// caller's (`set_callee_state_cb`); `in_callback` and the frame numbers are already set.
    /// Asynchronous (`is_async`): the callback is followed on its own with no caller's frame.
    pub(crate) fn push_callback_call(
        &mut self,
        subprog: usize,
        is_async: bool,
        is_sleepable: bool,
        set_up: impl FnOnce(&mut Self, &Frame, &mut Frame) -> Result<()>,
    ) -> Result<()> {
        let _ = (subprog, is_async, is_sleepable, set_up);
        Err(self.internal("callbacks are not followed yet"))
    }

    /// `*_next` of the open-coded iterator at `frame`/`spi`: follows both the drained and the
    /// active iterator (`process_iter_next_call`). Call after r0 is set for the active case.
    pub(crate) fn process_iter_next(&mut self, frame: usize, spi: usize) -> Result<()> {
        let _ = (frame, spi);
        Err(self.internal("iterators are not followed yet"))
    }

    /// Nothing may be held here (`check_resource_leak`): at exit (`exit`), or before calling a
    /// thing named by `prefix` that can't run with locks.
    pub(crate) fn check_resource_leak(&mut self, exit: bool, prefix: &str) -> Result<()> {
        let _ = (exit, prefix);
        Err(self.internal("resource leaks are not checked yet"))
    }
}
