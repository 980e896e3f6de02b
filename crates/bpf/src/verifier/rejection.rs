//! Reason why a program was refused, for its author.

use std::fmt;
use std::sync::Arc;

use crate::errno::Errno;

/// A program that was not proved safe: the cause, the place, the state there, and a remedy.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rejection {
    /// Error number that the kernel's `bpf(BPF_PROG_LOAD)` would return.
    pub errno: Errno,
    /// Message in the kernel's wording, e.g. `R1 invalid mem access 'scalar'`.
    pub message: String,
    /// A change that would make the program acceptable, in plain words; empty if there is no
    /// advice.
    pub hint: String,
    /// The instruction, or `None` if the program as a whole is at fault.
    pub insn: Option<RejectedInsn>,
    /// The registers that the instruction uses and their state, in the log's notation.
    pub registers: String,
}

/// The instruction that can't be proved safe.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RejectedInsn {
    /// Index, in slots.
    pub index: usize,
    /// Text as in `bpftool prog dump xlated`.
    pub text: String,
    /// Place in the source, if the object has line information.
    pub source: Option<SourceLine>,
}

/// A line of C.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceLine {
    /// Name of the file, as the compiler wrote it.
    pub file: Arc<str>,
    /// 1-based line number.
    pub line: u32,
    /// 1-based column.
    pub column: u32,
    /// Text of the line.
    pub text: Arc<str>,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(insn) = &self.insn {
            write!(f, "\n  at instruction {}: {}", insn.index, insn.text)?;
            if let Some(source) = &insn.source {
                write!(f, "\n  source {}:{}: {}", source.file, source.line, source.text)?;
            }
        }
        if !self.registers.is_empty() {
            write!(f, "\n  known here: {}", self.registers)?;
        }
        if !self.hint.is_empty() {
            write!(f, "\n  hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Rejection {}

/// A remark on an instruction that is probably a mistake.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Note {
    /// The instruction.
    pub insn: RejectedInsn,
    /// The mistake, and what to do.
    pub message: String,
}
