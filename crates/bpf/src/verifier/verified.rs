//! A program proved safe, with what the proof learned.

use crate::program::Linked;

use super::facts::{InsnFacts, StackBytes};
use super::options::Stats;

/// The only thing that may be run or compiled. Made by [`super::verify`] alone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Verified {
    linked: Linked,
    facts: Vec<InsnFacts>,
    subprograms: Vec<SubprogramFacts>,
    changes_packet: bool,
    stats: Stats,
}

/// What is known of one function of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubprogramFacts {
    /// First instruction slot.
    pub start: usize,
    /// Exclusive end slot.
    pub end: usize,
    /// Bytes of stack it uses (0..=512), callees not counted.
    pub stack_bytes: u32,
    /// How it is entered.
    pub kind: SubprogramKind,
    /// Some path reaches it.
    pub reachable: bool,
    /// A tail call can run in it or in a callee.
    pub tail_call_reachable: bool,
    /// Bytes of its stack that are touched by other means than its own loads and stores at constant
    /// offsets and the calls it makes itself ([`InsnFacts::stack_args`]): at variable offsets, by
    /// callees and callbacks, through pointers that are something else on another path.
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
    pub(crate) fn new(
        linked: Linked,
        facts: Vec<InsnFacts>,
        subprograms: Vec<SubprogramFacts>,
        changes_packet: bool,
        stats: Stats,
    ) -> Self {
        Verified { linked, facts, subprograms, changes_packet, stats }
    }

    /// The program.
    pub fn linked(&self) -> &Linked {
        &self.linked
    }

    /// Facts by instruction slot; as many as there are slots.
    pub fn facts(&self) -> &[InsnFacts] {
        &self.facts
    }

    /// The function (by first slot) that `bpf_throw` calls before the program returns.
    pub fn exception_callback(&self) -> Option<u32> {
        let is_one = |sub: &&SubprogramFacts| sub.kind == SubprogramKind::ExceptionCallback;
        let found = self.subprograms.iter().find(is_one)?;
        u32::try_from(found.start).ok()
    }

    /// The functions, by start; the first is the entry.
    pub fn subprograms(&self) -> &[SubprogramFacts] {
        &self.subprograms
    }

    /// Whether some path may change what the packet says, or where it begins and ends; metadata in
    /// front of it is no part of it.
    pub fn changes_packet(&self) -> bool {
        self.changes_packet
    }

    /// What the proof took.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}
