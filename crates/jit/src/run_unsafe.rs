//! Entering compiled code.

#![expect(unsafe_code, reason = "this is the door from Rust into machine code of our own making")]

use crate::fault_unsafe::CodeFault;
use crate::machine_unsafe::{Batch, Machine};
use crate::program::{Body, Program};

impl Program {
    /// Runs the program for the frames from `first` on, one after the other. Gives their number, or
    /// the index of the one that stopped the run: its `returned` is not written.
    ///
    /// # Errors
    ///
    /// The code did what the machine does not allow. Frames in front of that have what they
    /// returned, the one it was about and those behind it 0, if that was there before.
    ///
    /// # Safety
    ///
    /// The program was compiled for the maps and callees it now runs with. There are as many frames
    /// as places for what they return; `machine` describes a context and a stack of
    /// [`towpath_bpf::insn::STACK_BYTES`] bytes for each of 8 nested functions. All stay valid for
    /// the run, are this thread's alone, and no Rust reference to them is used meanwhile;
    /// `machine.runtime` is what the callees expect.
    pub unsafe fn run_batch(
        &self,
        machine: *mut Machine,
        batch: Batch,
        first: usize,
    ) -> Result<usize, CodeFault> {
        if first == 0
            && batch.returned.len() > 1
            && let Some(ahead) = self.ahead()
        {
            for stage in &ahead.stages {
                // SAFETY: the caller's promise; a slice writes no memory but the stack and what
                // frames return.
                let looked = unsafe { stage.run_batch(machine, batch, 0) };
                // SAFETY: the caller's promise. What is not 0 was returned by the program.
                unsafe { (&mut *batch.returned).fill(0) };
                looked?;
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
    /// # Errors
    ///
    /// It did what the machine does not allow.
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
    ) -> Result<Option<u64>, CodeFault> {
        let Some(function) = self.function(reference) else { return Ok(None) };
        // SAFETY: a function of this program, and the caller's promise.
        unsafe {
            match self.body() {
                Body::Clif(layout) => match layout.address(function) {
                    None => Ok(None),
                    Some(address) => layout.call_back(machine, address, frame, args).map(Some),
                },
                Body::Llvm(layout, _) => layout.call_back(machine, function, frame, args),
            }
        }
    }
}
