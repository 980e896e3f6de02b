//! The verifier: proves that a linked program is safe to run, by following every path it can take.
//!
//! It is path-sensitive with state pruning, like the kernel's `kernel/bpf/verifier.c`: the kernel
//! is the reference, so that programs that load there load here. `follow.rs` follows a path
//! instruction by instruction, `prune.rs` ends it at a state equal to an earlier one, and
//! `precision.rs` finds the numbers that mattered, so that most states are equal.

use std::time::Instant;

use crate::insn::{BPF_ALU, BPF_ALU64};
use crate::program::Linked;

use env::Verifier;
use info::Subprog;

mod access;
mod alu;
mod arena;
mod args;
mod backtrack;
mod call;
mod callback;
mod cfg;
mod compare;
mod depth;
mod env;
mod equal;
mod exception;
mod facts;
mod fastcall;
mod follow;
mod hints;
mod info;
mod jump;
mod ksym;
mod liveness;
mod log;
mod loops;
mod notes;
mod options;
mod pointer;
mod precision;
mod prune;
mod reg;
mod rejection;
mod report;
mod rights;
mod scalar;
mod scc;
mod show;
mod speculation;
mod stack;
mod state;
mod structure;
mod subprog;
#[cfg(test)]
mod tests;
mod tnum;
mod verified;

pub use call::field::{FieldKind, SpecialField};
pub use call::record::{special_fields, special_fields_of};
pub use facts::{
    AccessFact, BranchFact, ConstantKey, InsnFacts, MapFact, Range, StackArg, StackBytes,
};
pub use options::{Options, Stats};
pub use rejection::{Note, RejectedInsn, Rejection, SourceLine};
pub use verified::{SubprogramFacts, SubprogramKind, Verified};

/// The outcome of a verification with a log.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// The accepted program, or the reason why it was rejected.
    pub result: Result<Verified, Box<Rejection>>,
    /// Kernel-style log, as far as `Options` asked for one.
    pub log: String,
    /// Cost of the verification, also of a rejected program.
    pub stats: Stats,
    /// Likely mistakes, by instruction, in the part of the program that was followed.
    pub notes: Vec<Note>,
}

/// Proves `linked` safe, or returns the reason why that fails.
///
/// # Errors
///
/// Fails with a [`Rejection`] if the program breaks a rule, or a limit of `options` was reached.
pub fn verify(linked: Linked, options: &Options) -> Result<Verified, Box<Rejection>> {
    verify_with_log(linked, options).result
}

/// As [`verify`], with the log and statistics for any outcome.
pub fn verify_with_log(linked: Linked, options: &Options) -> Report {
    let start = Instant::now();
    let mut verifier = Verifier::new(&linked, options);
    let outcome = verifier.run();
    verifier.stats.elapsed = start.elapsed();
    if let Err(rejection) = &outcome {
        verifier.log.push(&format!("{}\n", rejection.message));
    }
    verifier.log_stats();
    let stats = verifier.stats.clone();
    let log = verifier.log.take();
    let mut notes = std::mem::take(&mut verifier.learned.notes);
    notes.sort_by_key(|note| note.insn.index);
    let subprograms = verifier.subprogram_facts();
    let facts = verifier.facts();
    let of_arena = verifier.of_arena();
    let changes_packet = verifier.learned.changes_packet;
    let context_bytes = verifier.learned.context_bytes;
    let result = outcome.map(|()| {
        let linked = with_low_halves(linked, &of_arena);
        let stats = stats.clone();
        Verified { linked, facts, subprograms, changes_packet, context_bytes, stats }
    });
    Report { result, log, stats, notes }
}

/// Makes 64-bit arithmetic in these slots arithmetic of 32 bits (`bpf_do_misc_fixups`).
fn with_low_halves(mut linked: Linked, slots: &[usize]) -> Linked {
    for &slot in slots {
        linked.insns[slot].code = linked.insns[slot].code - BPF_ALU64 + BPF_ALU;
    }
    linked
}

impl Verifier<'_> {
    /// Runs all passes, in the kernel's order (`bpf_check`).
    fn run(&mut self) -> env::Result<()> {
        self.check_structure()?;
        self.check_rights()?;
        self.check_cfg()?;
        self.mark_fastcall_spills();
        self.path.insn_idx = 0;
        self.follow_function(0)?;
        self.follow_global_functions()?;
        self.check_stack_depth()
    }

    /// Follows global functions that are called from reached code, until there are no new ones
    /// (`do_check_subprogs`).
    fn follow_global_functions(&mut self) -> env::Result<()> {
        let mut done = vec![false; self.learned.subprogs.len()];
        loop {
            let next = (1..self.learned.subprogs.len())
                .find(|&index| self.learned.subprogs[index].called && !done[index]);
            let Some(index) = next else { return Ok(()) };
            done[index] = true;
            self.follow_function(index)?;
        }
    }

    fn facts(&mut self) -> Vec<InsnFacts> {
        self.learned.aux.iter_mut().map(|aux| std::mem::take(&mut aux.facts)).collect()
    }

    /// Slots of arithmetic with arena pointers; in most programs there are none.
    fn of_arena(&self) -> Vec<usize> {
        let slots = self.learned.aux.iter().enumerate().filter(|(_, aux)| aux.of_arena);
        slots.map(|(slot, _)| slot).collect()
    }

    fn subprogram_facts(&self) -> Vec<SubprogramFacts> {
        let kind = |index: usize, subprog: &Subprog| match subprog {
            _ if index == 0 => SubprogramKind::Entry,
            subprog if subprog.is_exception_callback => SubprogramKind::ExceptionCallback,
            subprog if subprog.is_async_callback => SubprogramKind::AsyncCallback,
            subprog if subprog.is_callback => SubprogramKind::Callback,
            subprog if subprog.global => SubprogramKind::Global,
            _ => SubprogramKind::Static,
        };
        let facts =
            self.learned.subprogs.iter().enumerate().map(|(index, subprog)| SubprogramFacts {
                start: subprog.start,
                end: subprog.end,
                stack_bytes: subprog.stack_depth,
                kind: kind(index, subprog),
                reachable: self.learned.aux.get(subprog.start).is_some_and(|aux| aux.seen),
                tail_call_reachable: subprog.tail_call_reachable,
                reached: self.reached(subprog),
            });
        facts.collect()
    }

    /// Stack bytes reached at the end of the verification: if the paths of an instruction do not
    /// agree on one offset, also the bytes that it accessed at a constant one.
    fn reached(&self, subprog: &Subprog) -> StackBytes {
        let mut reached = subprog.reached;
        let own = self.learned.aux.get(subprog.start..subprog.end).unwrap_or_default();
        for facts in own.iter().map(|aux| &aux.facts).filter(|facts| !facts.is_own_stack()) {
            if let Some((offset, len)) = facts.own_stack {
                reached.add(offset.into(), i64::from(offset) + i64::from(len));
            }
        }
        reached
    }
}
