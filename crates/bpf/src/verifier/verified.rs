//! A program proved safe, with the facts of the proof.

use crate::program::Linked;

use super::facts::{InsnFacts, StackBytes};
use super::options::Stats;

/// A proved program: the only form that may be run or compiled. Only [`super::verify`] makes it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Verified {
    pub(super) linked: Linked,
    pub(super) facts: Vec<InsnFacts>,
    pub(super) subprograms: Vec<SubprogramFacts>,
    pub(super) changes_packet: bool,
    pub(super) context_bytes: u32,
    pub(super) stats: Stats,
}

/// Facts about one function of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubprogramFacts {
    /// First instruction slot.
    pub start: usize,
    /// Exclusive end slot.
    pub end: usize,
    /// Bytes of stack that it uses (0..=512), without its callees.
    pub stack_bytes: u32,
    /// How the function is entered.
    pub kind: SubprogramKind,
    /// Whether some path reaches it.
    pub reachable: bool,
    /// Whether a tail call can run in it or in a callee.
    pub tail_call_reachable: bool,
    /// Bytes of its stack that are accessed otherwise than by its own loads and stores at constant
    /// offsets and its own calls ([`InsnFacts::stack_args`]): at variable offsets, by callees and
    /// callbacks, or through pointers that have another type on another path.
    pub reached: StackBytes,
}

/// How a function is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubprogramKind {
    /// The program itself.
    Entry,
    /// Called; verified at each call.
    Static,
    /// Called; verified once for all arguments of its types.
    Global,
    /// Called by a helper or kfunc while it runs.
    Callback,
    /// Called later, by a timer or work queue.
    AsyncCallback,
    /// Run when the program throws.
    ExceptionCallback,
}

impl Verified {
    /// The program.
    pub fn linked(&self) -> &Linked {
        &self.linked
    }

    /// Facts by instruction slot; their number equals that of the slots.
    pub fn facts(&self) -> &[InsnFacts] {
        &self.facts
    }

    /// First slot of the function that `bpf_throw` calls before the program returns.
    pub fn exception_callback(&self) -> Option<u32> {
        let is_one = |sub: &&SubprogramFacts| sub.kind == SubprogramKind::ExceptionCallback;
        let found = self.subprograms.iter().find(is_one)?;
        u32::try_from(found.start).ok()
    }

    /// The functions, by start; the first is the entry.
    pub fn subprograms(&self) -> &[SubprogramFacts] {
        &self.subprograms
    }

    /// Whether some path may change the packet's contents, or its start and end; metadata in front
    /// of the packet doesn't count.
    pub fn changes_packet(&self) -> bool {
        self.changes_packet
    }

    /// For programs that users call: the bytes that the user has to give at least.
    pub fn context_bytes(&self) -> u32 {
        self.context_bytes
    }

    /// Cost of the proof.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}
