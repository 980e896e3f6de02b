//! Entering compiled code.

#![expect(unsafe_code, reason = "this is the door from Rust into machine code of our own making")]

use crate::machine_unsafe::Machine;
use crate::program::Program;

impl Program {
    /// Runs the program from its start; gives r0 (0, `XDP_ABORTED`, when the run was stopped).
    ///
    /// # Safety
    ///
    /// The program was compiled for the maps and callees it now runs with. `machine` describes a
    /// frame, a context and a stack of [`towpath_bpf::insn::STACK_BYTES`] bytes for each of 8
    /// nested functions that stay valid for the run, are this thread's alone, and to which no Rust
    /// reference is used meanwhile; `machine.runtime` is what the callees expect.
    pub unsafe fn run(&self, machine: *mut Machine) -> u64 {
        // SAFETY: the caller's promise.
        let (frame, ctx) = unsafe { ((*machine).stack_top, (*machine).ctx) };
        // SAFETY: the entry function's address, and the caller's promise.
        unsafe { self.layout().enter(machine, self.entry(), frame, ctx) }
    }

    /// Runs one function of the program on behalf of a helper, with its stack below `frame`. `None`
    /// when `reference` is no function of this program.
    ///
    /// # Safety
    ///
    /// As [`Program::run`]; `frame` leaves as much stack as the verifier allowed the callback.
    pub unsafe fn call(
        &self,
        machine: *mut Machine,
        reference: u64,
        frame: u64,
        args: [u64; 5],
    ) -> Option<u64> {
        let target = self.function(reference)?;
        // SAFETY: a function of this program; callbacks take all five arguments.
        Some(unsafe { self.layout().call_back(machine, target, frame, args) })
    }
}
