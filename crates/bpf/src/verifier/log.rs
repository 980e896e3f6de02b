//! The kernel-style log: states, instructions and source lines along each path.

use std::fmt::Write as _;

use crate::errno::Errno;

use super::env::Verifier;
use super::rejection::{RejectedInsn, Rejection, SourceLine};

/// Text up to a limit.
#[derive(Debug)]
pub(crate) struct Log {
    level: u32,
    bytes_max: usize,
    text: String,
    full: bool,
}

impl Log {
    pub(crate) fn new(level: u32, bytes_max: usize) -> Self {
        Log { level, bytes_max, text: String::new(), full: false }
    }

    /// Whether lines of `level` are wanted at all.
    pub(crate) fn wants(&self, level: u32) -> bool {
        self.level >= level && !self.full
    }

    /// Appends, up to the limit.
    pub(crate) fn push(&mut self, text: std::fmt::Arguments<'_>) {
        if self.level == 0 || self.full {
            return;
        }
        if self.text.write_fmt(text).is_err() || self.text.len() > self.bytes_max {
            self.full = true;
            self.text.push_str("\n(log cut here: its limit is reached)\n");
        }
    }

    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

impl Verifier<'_> {
    /// Builds a rejection with everything a reader needs around it.
    pub(crate) fn rejection_at(
        &self,
        insn_idx: Option<usize>,
        errno: Errno,
        message: String,
        hint: &str,
    ) -> Box<Rejection> {
        let insn = insn_idx.filter(|&idx| idx < self.prog.insns.len()).map(|index| RejectedInsn {
            index,
            text: String::new(),
            source: self.prog.line_of(index).map(|line| SourceLine {
                file: line.file.clone(),
                line: line.line,
                column: line.column,
                text: line.text.clone(),
            }),
        });
        Box::new(Rejection {
            errno,
            message,
            hint: hint.to_owned(),
            insn,
            registers: String::new(),
        })
    }
}
