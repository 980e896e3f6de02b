//! Findings of the sanitizer.

use std::fmt;
use std::sync::Arc;

/// A mistake in a program, or a suspicious place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The kind of mistake.
    pub kind: Kind,
    /// Name of the program.
    pub program: String,
    /// Slot of the instruction.
    pub insn: usize,
    /// File and line, when the object carries line information.
    pub line: Option<(Arc<str>, u32)>,
    /// The text of that line.
    pub text: Arc<str>,
    /// The mistake, in one sentence.
    pub message: String,
    /// Further lines: related instructions, and where they are.
    pub related: Vec<String>,
    /// The remedy.
    pub advice: String,
}

/// The severity of the finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// May be intended.
    Note,
    /// The program does not do what its source says.
    Error,
}

/// The kinds of mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A key of a map has unset bytes.
    Key,
    /// A value stored in a map has unset bytes.
    Value,
    /// A record for user space has unset bytes.
    Record,
    /// A leaving packet, or the metadata in front of it, has unset bytes.
    Packet,
    /// An argument of a helper or kfunc, or memory that it reads, has unset bytes.
    Argument,
    /// A branch depends on unset bytes.
    Branch,
    /// The return value depends on unset bytes.
    Return,
    /// The address of an access depends on unset bytes.
    Address,
    /// `XDP_REDIRECT` was returned without a target.
    Redirect,
    /// A packet leaves with a wrong checksum, and arrived with a right one.
    Checksum,
    /// A packet leaves with a length in its headers that it does not have, and arrived with the
    /// right one.
    Length,
    /// A value that all workers share is read, changed and written back.
    LostUpdate,
    /// No look-up of a call finds anything.
    NeverFound,
    /// Elements are added to a map, and none is ever deleted.
    NeverDeleted,
    /// A counter has too few bits for the packets that it will count.
    WrappingCounter,
    /// Packets are dropped on a path that does not count them.
    Uncounted,
    /// A target of a redirect was set, and another verdict returned.
    UnusedRedirect,
    /// The target of a redirect is interface 0.
    RedirectToNothing,
}

impl Kind {
    /// Its name in JSON, and the heading of its section in docs/sanitizer.md.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Key => "undefined-key",
            Kind::Value => "undefined-value",
            Kind::Record => "undefined-record",
            Kind::Packet => "undefined-packet",
            Kind::Argument => "undefined-argument",
            Kind::Branch => "undefined-branch",
            Kind::Return => "undefined-return",
            Kind::Address => "undefined-address",
            Kind::Redirect => "redirect-target",
            Kind::Checksum => "wrong-checksum",
            Kind::Length => "wrong-length",
            Kind::LostUpdate => "lost-update",
            Kind::NeverFound => "never-found",
            Kind::NeverDeleted => "never-deleted",
            Kind::WrappingCounter => "wrapping-counter",
            Kind::Uncounted => "uncounted-drop",
            Kind::UnusedRedirect => "unused-redirect",
            Kind::RedirectToNothing => "redirect-to-nothing",
        }
    }

    /// The severity of the finding.
    pub fn severity(self) -> Severity {
        match self {
            Kind::LostUpdate
            | Kind::NeverFound
            | Kind::NeverDeleted
            | Kind::WrappingCounter
            | Kind::Uncounted
            | Kind::UnusedRedirect
            | Kind::RedirectToNothing => Severity::Note,
            _ => Severity::Error,
        }
    }
}

impl Finding {
    /// Whether the program does not do what its source says; otherwise the finding may be intended.
    pub fn is_error(&self) -> bool {
        self.kind.severity() == Severity::Error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, insn) = (&self.program, self.insn);
        match &self.line {
            Some((file, line)) => write!(f, "{file}:{line}: {}", self.message)?,
            None => write!(f, "{program}, instruction {insn}: {}", self.message)?,
        }
        write!(f, " [{}]", self.kind.name())?;
        if !self.text.is_empty() {
            write!(f, "\n  {}", self.text)?;
        }
        for related in &self.related {
            write!(f, "\n  {related}")?;
        }
        if !self.advice.is_empty() {
            write!(f, "\n  hint: {}", self.advice)?;
        }
        Ok(())
    }
}
