//! Where tail calls of compiled code find programs that have no machine code.

use crate::clif::{self, Layout};
use crate::error::CompileError;
use crate::machine_unsafe::Callee;

/// Code to jump to as to a program's entry ([`crate::Program::entry`]); it calls a function of the
/// runtime, which knows from [`crate::Machine::target`] what program that is.
#[derive(Debug)]
pub struct Bridge {
    layout: Layout,
}

impl Bridge {
    /// To `callee`, which gets the frame pointer and the context, and gives r0.
    ///
    /// # Errors
    ///
    /// No memory for code, or a processor that no code can be made for.
    pub fn to(callee: Callee) -> Result<Bridge, CompileError> {
        Ok(Bridge { layout: clif::load(&clif::bridge(callee)?, usize::MAX)? })
    }

    /// Its address.
    pub fn entry(&self) -> u64 {
        self.layout.start()
    }
}
