//! Compatibility of a type of the object and one of the kernel.
//!
//! Three degrees: fields (`bpf_core_fields_are_compat`) look at the outermost kind only, types
//! (`bpf_core_types_are_compat`) follow pointers and prototypes, and matching
//! (`bpf_core_types_match`) compares members too.

use super::Budget;
use crate::btf::{Btf, Kind, TypeId, essential_name};

/// Whether two kinds are compatible: enums of both widths are (`btf_kind_core_compat`).
pub(super) fn same_kind(a: &Kind, b: &Kind) -> bool {
    match (a, b) {
        (Kind::Composite { union: a, .. }, Kind::Composite { union: b, .. }) => a == b,
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

/// Whether a member of one type can be read as a member of the other.
pub(super) fn fields_are_compatible(
    local: &Btf,
    mut local_id: TypeId,
    target: &Btf,
    mut target_id: TypeId,
) -> bool {
    loop {
        (local_id, target_id) = (local.resolve(local_id), target.resolve(target_id));
        let (a, b) = (local.kind(local_id), target.kind(target_id));
        if let (Kind::Composite { .. }, Kind::Composite { .. }) = (a, b) {
            return true;
        }
        if !same_kind(a, b) {
            return false;
        }
        match (a, b) {
            (Kind::Ptr(_) | Kind::Float(_), _) => return true,
            (Kind::Fwd { .. } | Kind::Enum { .. }, _) => {
                let a = essential_name(local.name(local_id));
                let b = essential_name(target.name(target_id));
                return a.is_empty() || b.is_empty() || a == b;
            }
            (Kind::Int { offset: a, .. }, Kind::Int { offset: b, .. }) => {
                return *a == 0 && *b == 0;
            }
            (Kind::Array { elem: a, .. }, Kind::Array { elem: b, .. }) => {
                (local_id, target_id) = (*a, *b);
            }
            _ => return false,
        }
    }
}

/// Whether two types of the same name are compatible, down to pointers and prototypes.
pub(super) fn types_are_compatible(
    (local, local_id): (&Btf, TypeId),
    (target, target_id): (&Btf, TypeId),
    budget: &Budget,
) -> Result<bool, String> {
    if !same_kind(local.kind(local_id), target.kind(target_id)) {
        return Ok(false);
    }
    Comparison { local, target, budget }.compatible(local_id, target_id, DEPTH_MAX)
}

/// Whether the target has all members of the local type.
pub(super) fn types_match(
    (local, local_id): (&Btf, TypeId),
    (target, target_id): (&Btf, TypeId),
    budget: &Budget,
) -> Result<bool, String> {
    Comparison { local, target, budget }.matches(local_id, target_id, false, DEPTH_MAX)
}

/// One comparison.
struct Comparison<'a> {
    local: &'a Btf,
    target: &'a Btf,
    budget: &'a Budget,
}

impl Comparison<'_> {
    fn compatible(
        &self,
        mut local_id: TypeId,
        mut target_id: TypeId,
        depth: u32,
    ) -> Result<bool, String> {
        for depth in (0..depth).rev() {
            self.budget.burn()?;
            local_id = self.local.resolve(local_id);
            target_id = self.target.resolve(target_id);
            let (a, b) = (self.local.kind(local_id), self.target.kind(target_id));
            if !same_kind(a, b) {
                return Ok(false);
            }
            match (a, b) {
                (Kind::Void | Kind::Composite { .. } | Kind::Enum { .. } | Kind::Fwd { .. }, _) => {
                    return Ok(true);
                }
                (Kind::Int { offset: a, .. }, Kind::Int { offset: b, .. }) => {
                    return Ok(*a == 0 && *b == 0);
                }
                (Kind::Ptr(a), Kind::Ptr(b)) => (local_id, target_id) = (*a, *b),
                (Kind::Array { elem: a, .. }, Kind::Array { elem: b, .. }) => {
                    (local_id, target_id) = (*a, *b);
                }
                (
                    Kind::FuncProto { ret: a, params: own },
                    Kind::FuncProto { ret: b, params: other },
                ) => {
                    if own.len() != other.len() {
                        return Ok(false);
                    }
                    for ((_, own), (_, other)) in own.iter().zip(other) {
                        if !self.compatible(*own, *other, depth)? {
                            return Ok(false);
                        }
                    }
                    (local_id, target_id) = (*a, *b);
                }
                _ => return Ok(false),
            }
        }
        Err("types are nested too deep to compare".to_owned())
    }

    fn matches(
        &self,
        mut local_id: TypeId,
        mut target_id: TypeId,
        mut behind_pointer: bool,
        depth: u32,
    ) -> Result<bool, String> {
        for depth in (0..depth).rev() {
            self.budget.burn()?;
            local_id = self.local.resolve(local_id);
            target_id = self.target.resolve(target_id);
            if !names_match(self.local.name(local_id), self.target.name(target_id)) {
                return Ok(false);
            }
            match (self.local.kind(local_id), self.target.kind(target_id)) {
                (Kind::Void, Kind::Void) => return Ok(true),
                (Kind::Fwd { union: a }, Kind::Fwd { union: b }) => return Ok(a == b),
                (Kind::Fwd { union: a }, Kind::Composite { union: b, .. })
                | (Kind::Composite { union: a, .. }, Kind::Fwd { union: b }) => {
                    return Ok(behind_pointer && a == b);
                }
                (a @ Kind::Enum { .. }, b @ Kind::Enum { .. }) => return Ok(enums_match(a, b)),
                (Kind::Composite { union: a, .. }, Kind::Composite { union: b, .. }) => {
                    return Ok(a == b
                        && (behind_pointer || self.members_match(local_id, target_id, depth)?));
                }
                (
                    Kind::Int { size: a, signed: a_signed, .. },
                    Kind::Int { size: b, signed: b_signed, .. },
                ) => return Ok(a == b && a_signed == b_signed),
                (Kind::Ptr(a), Kind::Ptr(b)) => {
                    behind_pointer = true;
                    (local_id, target_id) = (*a, *b);
                }
                (Kind::Array { elem: a, count: n, .. }, Kind::Array { elem: b, count: m, .. }) => {
                    if n != m {
                        return Ok(false);
                    }
                    (local_id, target_id) = (*a, *b);
                }
                (
                    Kind::FuncProto { ret: a, params: own },
                    Kind::FuncProto { ret: b, params: other },
                ) => {
                    if own.len() != other.len() {
                        return Ok(false);
                    }
                    for ((_, own), (_, other)) in own.iter().zip(other) {
                        if !self.matches(*own, *other, behind_pointer, depth)? {
                            return Ok(false);
                        }
                    }
                    (local_id, target_id) = (*a, *b);
                }
                _ => return Ok(false),
            }
        }
        Err("types are nested too deep to compare".to_owned())
    }

    /// Whether each local member has a matching one of its name (`bpf_core_composites_match`).
    fn members_match(
        &self,
        local_id: TypeId,
        target_id: TypeId,
        depth: u32,
    ) -> Result<bool, String> {
        let (local, target) = (self.local, self.target);
        let (own, other) = (local.members(local_id), target.members(target_id));
        if own.len() > other.len() {
            return Ok(false);
        }
        for member in own {
            let mut found = false;
            for candidate in other {
                self.budget.burn()?;
                if names_match(&member.name, &candidate.name)
                    && self.matches(member.ty, candidate.ty, false, depth)?
                {
                    found = true;
                    break;
                }
            }
            if !found {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether the sizes are equal, and each local enumerator has one of its name
/// (`bpf_core_enums_match`).
fn enums_match(local: &Kind, target: &Kind) -> bool {
    let (Kind::Enum { size: a, values: own, .. }, Kind::Enum { size: b, values: other, .. }) =
        (local, target)
    else {
        return false;
    };
    a == b
        && own.len() <= other.len().min(ENUMERATORS_MAX)
        && own.iter().all(|(name, _)| other.iter().any(|(found, _)| names_match(name, found)))
}

/// Compares names without flavours; an anonymous target needs an anonymous local
/// (`bpf_core_names_match`).
fn names_match(local: &str, target: &str) -> bool {
    essential_name(local) == essential_name(target)
}

/// Largest depth: `BPF_CORE_TYPES_MATCH_MAX_DEPTH` and libbpf's depth for compatibility.
const DEPTH_MAX: u32 = 32;
/// Largest number of enumerators: the kernel's largest enum has under 2,000.
const ENUMERATORS_MAX: usize = 4096;
