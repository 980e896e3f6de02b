//! CO-RE: instructions that depend on the layout of kernel types, completed for one kernel.
//!
//! The compiler records what an immediate or offset stands for ("the byte offset of `task->pid`").
//! For each record we find the same type in the kernel's BTF, follow the same path through it,
//! compute the value there and patch the instruction. All rules are libbpf's (`relo_core.c`), so
//! that a program means here what it means there.

mod compat;
mod patch;
mod path;
mod value;

use std::collections::HashMap;

use super::ext::CoreRelocation;
use crate::btf::{Btf, TypeId, essential_name};
use crate::insn::Insn;

pub use patch::POISON_CALL;
use path::Path;
use value::Outcome;

/// What a relocation asks for (`enum bpf_core_relo_kind`).
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

/// Relocates against one kernel; remembers what it found for each local type.
pub(super) struct Relocator<'a> {
    local: &'a Btf,
    target: &'a Btf,
    outcomes: HashMap<(TypeId, String, u32), Outcome>,
}

impl<'a> Relocator<'a> {
    pub(super) fn new(local: &'a Btf, target: &'a Btf) -> Self {
        Relocator { local, target, outcomes: HashMap::new() }
    }

    /// Applies one relocation to the instruction at `at`.
    pub(super) fn apply(
        &mut self,
        relocation: &CoreRelocation,
        insns: &mut [Insn],
        at: usize,
    ) -> Result<(), String> {
        let key = (relocation.type_id, relocation.access.to_string(), relocation.kind);
        let outcome = match self.outcomes.get(&key) {
            Some(outcome) => outcome.clone(),
            None => {
                let outcome =
                    self.outcome(relocation).map_err(|what| self.explain(relocation, &what))?;
                self.outcomes.insert(key, outcome.clone());
                outcome
            }
        };
        patch::patch(&outcome, insns, at).map_err(|what| self.explain(relocation, &what))
    }

    fn outcome(&self, relocation: &CoreRelocation) -> Result<Outcome, String> {
        let question = Question::from_number(relocation.kind)
            .ok_or_else(|| format!("unknown kind {}", relocation.kind))?;
        let path = path::parse(self.local, question, relocation.type_id, &relocation.access)?;
        if question == Question::TypeIdLocal {
            return Ok(Outcome::unchecked(u64::from(relocation.type_id)));
        }
        let name = self.local.name(path.root);
        if name.is_empty() {
            return Err("a type without a name can't be found in the kernel".to_owned());
        }
        self.decide(question, &path, essential_name(name))
    }

    /// Compares all types of that name in the kernel: those that match must agree.
    fn decide(&self, question: Question, local: &Path, name: &str) -> Result<Outcome, String> {
        let root_kind = self.local.kind(local.root);
        let mut decided: Option<(Outcome, u64)> = None;
        for (tried, candidate) in self.target.candidates(name).enumerate() {
            if tried >= CANDIDATES_MAX {
                return Err(format!(
                    "the kernel has more than {CANDIDATES_MAX} types of this name"
                ));
            }
            if !compat::same_kind(root_kind, self.target.kind(candidate)) {
                continue;
            }
            let Some(found) = path::find(self.local, local, question, self.target, candidate)?
            else {
                continue;
            };
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
        match decided {
            Some((outcome, _)) => Ok(outcome),
            None => value::compute(question, (self.local, local), None),
        }
    }

    fn explain(&self, relocation: &CoreRelocation, what: &str) -> String {
        let ty = self.local.c_name(relocation.type_id);
        let kind = Question::from_number(relocation.kind);
        let kind = kind.map_or_else(|| relocation.kind.to_string(), |kind| format!("{kind:?}"));
        format!("CO-RE relocation {kind} of {ty}, access {}: {what}", relocation.access)
    }
}

/// Whether a typed ksym of the object has the type that the kernel's variable has.
pub(super) fn types_are_compatible(
    local: &Btf,
    local_id: TypeId,
    target: &Btf,
    target_id: TypeId,
) -> bool {
    compat::types_are_compatible(local, local_id, target, target_id).unwrap_or(false)
}

/// Kernels have a handful of types of one name; a damaged blob could have all of one name.
const CANDIDATES_MAX: usize = 256;
