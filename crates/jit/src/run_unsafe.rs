//! Entering compiled code.

#![expect(unsafe_code, reason = "this is the door from Rust into machine code of our own making")]

use crate::fault_unsafe::CodeFault;
use crate::machine_unsafe::{Batch, Machine};
use crate::program::{Body, Program};

impl Program {
    /// Runs the program for the frames from `first` on, one after the other. Gives their number, or
    /// the index of the frame that stopped the run: its `returned` is not written.
    ///
    /// # Errors
    ///
    /// Fails if the code did something that the machine does not allow. Earlier frames have their
    /// results, the faulting frame and those behind it 0, if they had 0 before.
    ///
    /// # Safety
    ///
    /// The program was compiled for the maps and callees that it now runs with. There are as many
    /// frames as slots for results; `machine` describes a context and a stack of
    /// [`towpath_bpf::insn::STACK_BYTES`] bytes for each of 8 nested functions. All stay valid for
    /// the run, belong to this thread alone, and no Rust reference to them is used meanwhile;
    /// `machine.runtime` has the type that the callees expect.
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
                // SAFETY: the caller's promise; a slice writes only to the stack and the frames'
                // results.
                let looked = unsafe { stage.run_batch(machine, batch, 0) };
                // SAFETY: the caller's promise. A value other than 0 would be taken for the
                // program's result.
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
    /// if `reference` is not a function of this program.
    ///
    /// # Errors
    ///
    /// Fails if the code did something that the machine does not allow.
    ///
    /// # Safety
    ///
    /// As for [`Program::run_batch`]; below `frame` is the stack that the verifier allowed the
    /// callback.
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
