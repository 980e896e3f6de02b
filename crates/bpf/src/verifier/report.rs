//! Reports of a verification: rejections with their surroundings, and the kernel-style log of
//! states, instructions and source lines along each path.

use crate::disasm::Disasm;
use crate::errno::Errno;
use crate::insn::REG_COUNT;

use super::env::Verifier;
use super::rejection::{RejectedInsn, Rejection, SourceLine};

impl Verifier<'_> {
    /// A rejection at the current instruction.
    pub(crate) fn reject(&self, errno: Errno, message: impl Into<String>) -> Box<Rejection> {
        self.reject_hint(errno, message, "")
    }

    /// A rejection at the current instruction, with advice.
    pub(crate) fn reject_hint(
        &self,
        errno: Errno,
        message: impl Into<String>,
        hint: &str,
    ) -> Box<Rejection> {
        self.rejection_at(Some(self.path.insn_idx), errno, message.into(), hint)
    }

    /// A rejection at another instruction.
    pub(crate) fn reject_at(
        &self,
        insn_idx: usize,
        errno: Errno,
        message: impl Into<String>,
    ) -> Box<Rejection> {
        self.rejection_at(Some(insn_idx), errno, message.into(), "")
    }

    /// A rejection for a state that no path can have: a defect of the verifier itself.
    pub(crate) fn internal(&self, what: &str) -> Box<Rejection> {
        self.reject(Errno::EFAULT, format!("verifier internal error: {what}"))
    }

    /// Builds a rejection with all its context.
    pub(crate) fn rejection_at(
        &self,
        insn_idx: Option<usize>,
        errno: Errno,
        message: String,
        hint: &str,
    ) -> Box<Rejection> {
        let insn = insn_idx.and_then(|index| self.rejected_insn(index));
        let registers = match insn.as_ref().map(|insn| insn.index) {
            Some(index) if index == self.path.insn_idx => self.used_registers(),
            _ => String::new(),
        };
        Box::new(Rejection { errno, message, hint: hint.to_owned(), insn, registers })
    }

    /// An instruction of the program with its line of C.
    pub(crate) fn rejected_insn(&self, index: usize) -> Option<RejectedInsn> {
        (index < self.input.prog.insns.len()).then(|| RejectedInsn {
            index,
            text: self.insn_text(index),
            source: self.input.prog.line_of(index).map(|line| SourceLine {
                file: line.file.clone(),
                line: line.line,
                column: line.column,
                text: line.text.clone(),
            }),
        })
    }

    fn insn_text(&self, idx: usize) -> String {
        Disasm::of(self.input.prog, idx).map(|text| text.to_string()).unwrap_or_default()
    }

    /// The registers that the current instruction reads.
    fn used_registers(&self) -> String {
        let (used, _) = self.use_def(self.path.insn_idx);
        let frame = self.path.cur.frame();
        let shown = (0..REG_COUNT).filter(|regno| used & (1 << regno) != 0).map(|regno| {
            format!("R{regno}={}", self.show_reg(&frame.regs[regno], self.path.cur.depth()))
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    /// Logs the instruction about to be checked, with its source line and, at level 2, the state.
    pub(crate) fn log_insn(&mut self) {
        if !self.log.wants(1) {
            return;
        }
        let idx = self.path.insn_idx;
        if let Some(line) = self.input.prog.line_of(idx)
            && line.insn as usize == idx
        {
            let source = format!("; {} @ {}:{}\n", line.text, line.file, line.line);
            self.log.push(&source);
        }
        let mut text = format!("{idx}: {}", self.insn_text(idx));
        if self.log.wants(2) {
            text = format!(
                "{text:<48}; {}",
                self.show_frame(self.path.cur.frame(), self.path.cur.depth())
            );
        }
        text.push('\n');
        self.log.push(&text);
    }

    /// Logs that a queued path is continued.
    pub(crate) fn log_path(&mut self) {
        if !self.log.wants(1) {
            return;
        }
        let state = self.show_frame(self.path.cur.frame(), self.path.cur.depth());
        let prev = self.path.prev_insn_idx.cast_signed();
        let text = format!("\nfrom {prev} to {}: {state}\n", self.path.insn_idx);
        self.log.push(&text);
    }

    /// Logs that the path ends in a state that was explored before.
    pub(crate) fn log_safe(&mut self) {
        if self.log.wants(1) {
            let text = format!(
                "from {} to {}: safe\n",
                self.path.prev_insn_idx.cast_signed(),
                self.path.insn_idx
            );
            self.log.push(&text);
        }
    }

    /// Logs the state after an event that changes frames.
    pub(crate) fn log_state(&mut self, what: &str) {
        if self.log.wants(1) {
            let state = self.show_frame(self.path.cur.frame(), self.path.cur.depth());
            let text = format!("{what}: frame{}: {state}\n", self.path.cur.depth());
            self.log.push(&text);
        }
    }

    /// Logs the kernel's last lines.
    pub(crate) fn log_stats(&mut self) {
        if self.log.wants(1) {
            let stats = &self.stats;
            let text = format!(
                "processed {} insns (limit {}) max_states_per_insn {} total_states {} peak_states {}\n",
                stats.insns_processed,
                self.input.options.insns_processed_max,
                stats.max_states_per_insn,
                stats.total_states,
                stats.peak_states
            );
            self.log.push(&text);
        }
    }
}
