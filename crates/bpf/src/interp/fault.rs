//! Reasons why a run ended without a return value.

use std::fmt;

/// A violation of a rule that holds for every verified program, with its place in the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("program {program}, instruction {insn}{}: {violation}", Source(source_line))]
pub struct Fault {
    /// Name of the program.
    pub program: String,
    /// Slot of the instruction.
    pub insn: usize,
    /// `file:line: text` of the C source, if the object carries line information.
    pub source_line: Option<String>,
    /// The violated rule.
    pub violation: Violation,
}

/// A violated rule, without a place in the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A memory access outside the memory of the program.
    #[error("{} of {size} bytes at {addr:#x}: {why}", if *write { "write" } else { "read" })]
    Memory {
        /// Address of the first byte.
        addr: u64,
        /// Size of the access, in bytes.
        size: u64,
        /// Whether the access is a store or an atomic operation.
        write: bool,
        /// The violated rule, e.g. `"packet access outside [data_meta, data_end)"`.
        why: &'static str,
    },
    /// A helper got an argument that the verifier should have refused.
    #[error("{function}: argument {argument} ({value:#x}): {why}")]
    Argument {
        /// The helper or kfunc.
        function: &'static str,
        /// Number of the argument, from 1 as in the registers r1..r5.
        argument: u8,
        /// Value of the register.
        value: u64,
        /// Expected value.
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
        /// Target slot of the jump.
        target: i64,
        /// Number of slots of the program.
        len: usize,
    },
    /// A call of an unknown helper.
    #[error("helper {id} is not known")]
    UnknownHelper {
        /// Number of the helper.
        id: u32,
    },
    /// A call of an unknown kfunc (for example a weak one that is called without a check).
    #[error("kfunc {name} is not known")]
    UnknownKfunc {
        /// Name of the kfunc, or its number.
        name: String,
    },
    /// A callback address that is not a function of the program.
    #[error("{addr:#x} is not the address of a function of this program")]
    NotAFunction {
        /// Called address.
        addr: u64,
    },
    /// More nested calls than [`super::MAX_CHAIN_FRAMES`].
    #[error("more than {limit} nested calls")]
    CallDepth {
        /// The limit.
        limit: usize,
    },
    /// Compiled code caused a signal.
    #[error("{signal} in compiled code, at address {addr:#x}")]
    Machine {
        /// Name of the signal that would have ended the process.
        signal: &'static str,
        /// Accessed address, for signals about memory.
        addr: u64,
    },
    /// A fact that the verifier proved for an instruction does not hold.
    #[error("the proof says otherwise: {claim}")]
    Disproved {
        /// The proved fact, and the observed one.
        claim: String,
    },
    /// The program ended with a resource that every verified program releases.
    #[error("{what} was not given back")]
    Kept {
        /// Name of the resource.
        what: &'static str,
    },
    /// The run was stopped, because it kept its worker for too long ([`super::Runtime::look`]).
    #[error("it did not return, and was stopped")]
    Stopped,
    /// [`super::Limits::insns`] were executed.
    #[error("{limit} instructions executed without an exit (raise the limit to go on)")]
    Budget {
        /// The limit.
        limit: u64,
    },
}

/// Reason why a helper call did not return to the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The run is over because of a violation. Boxed, so that results of helpers travel in
    /// registers.
    Violation(Box<Violation>),
    /// `bpf_throw`: the running program's frames are unwound, and it returns this cookie (or the
    /// result of its exception callback for the cookie).
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

/// Formats a source line, if there is one, as an appendix.
struct Source<'a>(&'a Option<String>);

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, " ({line})"),
            None => Ok(()),
        }
    }
}
