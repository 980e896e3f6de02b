//! CO-RE: instructions that depend on the layout of kernel types, completed for one kernel.
//!
//! The compiler records what an immediate or offset stands for ("the byte offset of `task->pid`").
//! For each record, the linker finds the same type in the kernel's BTF, follow the same path
//! through it, compute the value there and patch the instruction. All rules are libbpf's
//! (`relo_core.c`), so that a program means here what it means there.

mod compat;
mod patch;
mod path;
mod value;

use std::cell::Cell;
use std::collections::HashMap;

use super::ext::CoreRelocation;
use crate::btf::{Btf, TypeId, essential_name};
use crate::insn::Insn;

pub use patch::POISON_CALL;
use path::Path;
use value::Outcome;

/// Question of a relocation (`enum bpf_core_relo_kind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    FieldByteOffset,
    FieldByteSize,
    FieldExists,
    FieldSigned,
    FieldLeftShift,
    FieldRightShift,
    TypeIdLocal,
    TypeIdTarget,
    TypeExists,
    TypeSize,
    EnumeratorExists,
    EnumeratorValue,
    TypeMatches,
}

impl Question {
    fn from_number(number: u32) -> Option<Self> {
        const ALL: [Question; 13] = [
            Question::FieldByteOffset,
            Question::FieldByteSize,
            Question::FieldExists,
            Question::FieldSigned,
            Question::FieldLeftShift,
            Question::FieldRightShift,
            Question::TypeIdLocal,
            Question::TypeIdTarget,
            Question::TypeExists,
            Question::TypeSize,
            Question::EnumeratorExists,
            Question::EnumeratorValue,
            Question::TypeMatches,
        ];
        ALL.get(number as usize).copied()
    }

    fn is_about_type(self) -> bool {
        matches!(
            self,
            Question::TypeIdLocal
                | Question::TypeIdTarget
                | Question::TypeExists
                | Question::TypeSize
                | Question::TypeMatches
        )
    }

    fn is_about_enumerator(self) -> bool {
        matches!(self, Question::EnumeratorExists | Question::EnumeratorValue)
    }
}

/// The outcome of a relocation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// The answer was written into the instruction.
    Written,
    /// There is no answer: the instruction was replaced by a call that is refused if it is reached.
    /// Contains the relocation in words.
    Poisoned(String),
}

/// Relocates the instructions of one program against one kernel.
pub(super) struct Relocator<'a> {
    local: &'a Btf,
    target: &'a Btf,
    /// By local type: the kernel's types of the same name that matched every relocation so far,
    /// narrowed as in libbpf. A type that lacks one field can't be the type of the next relocation.
    candidates: HashMap<TypeId, Vec<TypeId>>,
    budget: Budget,
}

/// Number of members and types that may still be visited for one program, so that a damaged object
/// ends.
#[derive(Debug)]
struct Budget(Cell<u32>);

impl Budget {
    fn new() -> Self {
        Budget(Cell::new(STEPS_MAX))
    }

    fn burn(&self) -> Result<(), String> {
        let left = self.0.get().checked_sub(1);
        self.0.set(left.ok_or_else(|| format!("more than {STEPS_MAX} comparisons of types"))?);
        Ok(())
    }
}

impl<'a> Relocator<'a> {
    pub(super) fn new(local: &'a Btf, target: &'a Btf) -> Self {
        Relocator { local, target, candidates: HashMap::new(), budget: Budget::new() }
    }

    /// Applies one relocation to the instruction at `at`.
    pub(super) fn apply(
        &mut self,
        relocation: &CoreRelocation,
        insns: &mut [Insn],
        at: usize,
    ) -> Result<Applied, String> {
        let poisoned = self
            .outcome(relocation)
            .and_then(|outcome| patch::patch(&outcome, insns, at))
            .map_err(|what| format!("CO-RE relocation {}: {what}", self.label(relocation)))?;
        Ok(if poisoned { Applied::Poisoned(self.label(relocation)) } else { Applied::Written })
    }

    fn outcome(&mut self, relocation: &CoreRelocation) -> Result<Outcome, String> {
        let question = Question::from_number(relocation.kind)
            .ok_or_else(|| format!("unknown kind {}", relocation.kind))?;
        let path = path::parse(self.local, question, relocation.type_id, &relocation.access)?;
        if question == Question::TypeIdLocal {
            return Ok(Outcome::unchecked(u64::from(relocation.type_id)));
        }
        let candidates = match self.candidates.remove(&path.root) {
            Some(candidates) => candidates,
            None => self.candidates_for(path.root)?,
        };
        let (outcome, matching) = self.decide(question, &path, &candidates)?;
        // If nothing matched, the answer was "not there", which rules out no candidate.
        let remaining = if matching.is_empty() { candidates } else { matching };
        self.candidates.insert(path.root, remaining);
        Ok(outcome)
    }

    /// Types of the kernel with the same name and of the same kind (`bpf_core_find_cands`).
    fn candidates_for(&self, root: TypeId) -> Result<Vec<TypeId>, String> {
        let name = essential_name(self.local.name(root));
        if name.is_empty() {
            return Err("a type without a name can't be found in the kernel".to_owned());
        }
        let kind = self.local.kind(root);
        let of_name = self.target.candidates(name);
        let candidates: Vec<TypeId> = of_name
            .filter(|&id| compat::same_kind(kind, self.target.kind(id)))
            .take(CANDIDATES_MAX + 1)
            .collect();
        if candidates.len() > CANDIDATES_MAX {
            return Err(format!("the kernel has more than {CANDIDATES_MAX} types of this name"));
        }
        Ok(candidates)
    }

    /// Follows the path in every candidate: all candidates that have it must agree on the answer.
    fn decide(
        &self,
        question: Question,
        local: &Path,
        candidates: &[TypeId],
    ) -> Result<(Outcome, Vec<TypeId>), String> {
        let mut decided: Option<(Outcome, u64)> = None;
        let mut matching = Vec::new();
        for &candidate in candidates {
            self.budget.burn()?;
            let places = path::Places { local: self.local, target: self.target };
            let Some(found) = path::find(places, local, question, candidate, &self.budget)? else {
                continue;
            };
            matching.push(candidate);
            let outcome =
                value::compute(question, (self.local, local), Some((self.target, &found)))?;
            match &decided {
                None => decided = Some((outcome, found.bit_offset)),
                Some((_, offset)) if *offset != found.bit_offset => {
                    return Err("types of this name in the kernel disagree on the offset".into());
                }
                Some((first, _)) if !first.agrees(&outcome) => {
                    return Err("types of this name in the kernel disagree on the value".into());
                }
                Some(_) => {}
            }
        }
        let outcome = match decided {
            Some((outcome, _)) => outcome,
            None => value::compute(question, (self.local, local), None)?,
        };
        Ok((outcome, matching))
    }

    /// A relocation in words, e.g. `FieldByteOffset of struct xdp_buff.rxq (access 0:1)`.
    fn label(&self, relocation: &CoreRelocation) -> String {
        let question = Question::from_number(relocation.kind);
        let kind = question.map_or_else(|| relocation.kind.to_string(), |kind| format!("{kind:?}"));
        let path = question.and_then(|question| {
            path::parse(self.local, question, relocation.type_id, &relocation.access).ok()
        });
        let ty = self.local.c_name(relocation.type_id);
        let names = path.map_or_else(String::new, |path| path.label(self.local));
        format!("{kind} of {ty}{names} (access {})", relocation.access)
    }
}

/// Whether a typed ksym of the object has the type of the kernel's variable.
pub(super) fn types_are_compatible(
    local: &Btf,
    local_id: TypeId,
    target: &Btf,
    target_id: TypeId,
) -> bool {
    compat::types_are_compatible((local, local_id), (target, target_id), &Budget::new())
        .unwrap_or(false)
}

/// Limit of candidates: kernels have a handful of types of one name; in a damaged blob all could
/// share one.
const CANDIDATES_MAX: usize = 256;
/// Limit of steps: thousands of relocations, each in the kernel's largest struct.
const STEPS_MAX: u32 = 50_000_000;
