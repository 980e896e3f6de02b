//! Why a run ended without a return value.

use std::fmt;

/// A run that did something no verified program can do, with the place in the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("program {program}, instruction {insn}{}: {violation}", Source(source_line))]
pub struct Fault {
    /// Name of the program.
    pub program: String,
    /// Instruction slot.
    pub insn: usize,
    /// `file:line: text` of the C source, when the object carries line information.
    pub source_line: Option<String>,
    /// What was wrong.
    pub violation: Violation,
}

/// What went wrong, before it is known where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A memory access outside what the program may touch.
    #[error("{} of {size} bytes at {addr:#x}: {why}", if *write { "write" } else { "read" })]
    Memory {
        /// First byte.
        addr: u64,
        /// Bytes.
        size: u64,
        /// A store, or an atomic.
        write: bool,
        /// Which rule it breaks, e.g. `"packet access outside [data_meta, data_end)"`.
        why: &'static str,
    },
    /// A helper got an argument that the verifier should have refused.
    #[error("{function}: argument {argument} ({value:#x}): {why}")]
    Argument {
        /// The helper or kfunc.
        function: &'static str,
        /// 1-based, as the registers r1..r5.
        argument: u8,
        /// What the register held.
        value: u64,
        /// What was expected.
        why: &'static str,
    },
    /// An encoding RFC 9669 does not define.
    #[error("unknown instruction (code {code:#04x}, src {src}, off {off}, imm {imm})")]
    UnknownInstruction {
        /// Operation code.
        code: u8,
        /// Source field.
        src: u8,
        /// Offset field.
        off: i16,
        /// Immediate field.
        imm: i32,
    },
    /// Control left the program.
    #[error("jump to slot {target}, outside the program's {len} slots")]
    OutsideProgram {
        /// Where it went.
        target: i64,
        /// Slots the program has.
        len: usize,
    },
    /// No such helper here.
    #[error("helper {id} is not known")]
    UnknownHelper {
        /// Its number.
        id: u32,
    },
    /// No such kfunc here (a weak one that was called all the same).
    #[error("kfunc {name} is not known")]
    UnknownKfunc {
        /// Its name, or number.
        name: String,
    },
    /// A callback address that is not a function of the program.
    #[error("{addr:#x} is not the address of a function of this program")]
    NotAFunction {
        /// What was called.
        addr: u64,
    },
    /// More nested calls than [`super::MAX_CHAIN_FRAMES`].
    #[error("more than {limit} nested calls")]
    CallDepth {
        /// The limit.
        limit: usize,
    },
    /// Compiled code did what the machine does not allow.
    #[error("{signal} in compiled code, at address {addr:#x}")]
    Machine {
        /// Name of the signal that the process would have ended by.
        signal: &'static str,
        /// What it wanted to access, if it was that.
        addr: u64,
    },
    /// What the verifier proved of an instruction does not hold.
    #[error("the proof says otherwise: {claim}")]
    Disproved {
        /// What was proved, and what is.
        claim: String,
    },
    /// The run ended with something in hand that a verified program gives back.
    #[error("{what} was not given back")]
    Kept {
        /// What it is.
        what: &'static str,
    },
    /// It was asked to end, because it kept its worker for too long ([`super::Runtime::look`]).
    #[error("it did not return, and was stopped")]
    Stopped,
    /// [`super::Limits::insns`] were executed.
    #[error("{limit} instructions executed without an exit (raise the limit to go on)")]
    Budget {
        /// The limit.
        limit: u64,
    },
}

/// Why a helper call did not return to the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The run is over: something that must not happen did. Boxed, so that results of helpers
    /// travel in registers.
    Violation(Box<Violation>),
    /// `bpf_throw`: the running program's frames are unwound, and it returns this cookie (or what
    /// its exception callback makes of it).
    Throw(u64),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Stop::Violation(Box::new(violation))
    }
}

impl From<Box<Violation>> for Stop {
    fn from(violation: Box<Violation>) -> Self {
        Stop::Violation(violation)
    }
}

impl From<Box<Violation>> for Violation {
    #[cold]
    fn from(violation: Box<Violation>) -> Self {
        *violation
    }
}

/// Prints a source line, when there is one, as an appendix.
struct Source<'a>(&'a Option<String>);

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, " ({line})"),
            None => Ok(()),
        }
    }
}
