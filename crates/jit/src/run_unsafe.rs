//! Entering compiled code.

#![expect(unsafe_code, reason = "this is the door from Rust into machine code of our own making")]

use crate::machine_unsafe::{Batch, Machine};
use crate::program::{Body, Program};

impl Program {
    /// Runs the program for the frames from `first` on, one after the other. Gives their number, or
    /// the index of the one that stopped the run: its `returned` is not written.
    ///
    /// # Safety
    ///
    /// The program was compiled for the maps and callees it now runs with. There are as many frames
    /// as places for what they return; `machine` describes a context and a stack of
    /// [`towpath_bpf::insn::STACK_BYTES`] bytes for each of 8 nested functions. All stay valid for
    /// the run, are this thread's alone, and no Rust reference to them is used meanwhile;
    /// `machine.runtime` is what the callees expect.
    pub unsafe fn run_batch(&self, machine: *mut Machine, batch: Batch, first: usize) -> usize {
        if first == 0
            && batch.returned.len() > 1
            && let Some(ahead) = self.ahead()
        {
            for stage in &ahead.stages {
                // SAFETY: the caller's promise; a slice writes no memory but the stack and what
                // frames return.
                unsafe { stage.run_batch(machine, batch, 0) };
            }
        }
        // SAFETY: the caller's promise.
        unsafe {
            match self.body() {
                Body::Clif(layout) => layout.run_batch(machine, batch, first),
                Body::Llvm(layout, _) => layout.run_batch(machine, batch, first),
            }
        }
    }

    /// Runs one function of the program on behalf of a helper, with its stack below `frame`. `None`
    /// when `reference` is no function of this program.
    ///
    /// # Safety
    ///
    /// As [`Program::run_batch`]; `frame` leaves the stack that the verifier allowed the callback.
    pub unsafe fn call(
        &self,
        machine: *mut Machine,
        reference: u64,
        frame: u64,
        args: [u64; 5],
    ) -> Option<u64> {
        let function = self.function(reference)?;
        // SAFETY: a function of this program, and the caller's promise.
        unsafe {
            match self.body() {
                Body::Clif(layout) => {
                    Some(layout.call_back(machine, layout.address(function)?, frame, args))
                }
                Body::Llvm(layout, _) => layout.call_back(machine, function, frame, args),
            }
        }
    }
}
