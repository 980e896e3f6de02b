//! Entry points through which tail calls of compiled code reach programs without machine code.

use crate::clif::{self, Layout};
use crate::error::CompileError;
use crate::machine_unsafe::Callee;

/// Code to jump to as to a program's entry ([`crate::Program::entry`]); it calls a function of the
/// runtime, which finds the program by [`crate::Machine::target`].
#[derive(Debug)]
pub struct Bridge {
    layout: Layout,
}

impl Bridge {
    /// Makes a bridge to `callee`, which gets the frame pointer and the context, and gives r0.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for code, or if there is no compiler for this processor.
    pub fn to(callee: Callee) -> Result<Bridge, CompileError> {
        Ok(Bridge { layout: clif::load(&clif::bridge(callee)?, usize::MAX)? })
    }

    /// Address of the code.
    pub fn entry(&self) -> u64 {
        self.layout.start()
    }
}
