//! Why a program was refused, for the person who wrote it.

use std::fmt;
use std::sync::Arc;

use crate::errno::Errno;

/// A program that was not proved safe: what, where, in which state, and what would fix it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rejection {
    /// What the kernel's `bpf(BPF_PROG_LOAD)` would return.
    pub errno: Errno,
    /// The kernel's wording, e.g. `R1 invalid mem access 'scalar'`.
    pub message: String,
    /// In plain words, what would make the program acceptable; empty when there is no advice.
    pub hint: String,
    /// The instruction, or none when the program as a whole is at fault.
    pub insn: Option<RejectedInsn>,
    /// The registers the instruction uses and what was known of them, in the log's notation.
    pub registers: String,
}

/// The instruction that can't be proved safe.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RejectedInsn {
    /// Index, in slots.
    pub index: usize,
    /// As `bpftool prog dump xlated` shows it.
    pub text: String,
    /// Where it comes from, when the object has line information.
    pub source: Option<SourceLine>,
}

/// A line of C.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceLine {
    /// File, as the compiler wrote it.
    pub file: Arc<str>,
    /// 1-based line number.
    pub line: u32,
    /// 1-based column.
    pub column: u32,
    /// The line itself.
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

/// Something worth a look at an instruction.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Note {
    /// The instruction.
    pub insn: RejectedInsn,
    /// The mistake, and what to do.
    pub message: String,
}
