//! Names for bytes: members of a structure, and the padding between them.

use towpath_bpf::btf::{Btf, Kind, TypeId};

/// The member of a value at this byte.
pub(super) fn member_at(btf: &Btf, ty: TypeId, offset: u64) -> Option<String> {
    let mut leaves = Vec::new();
    flatten(btf, ty, 0, String::new(), &mut leaves);
    let at = offset.checked_mul(8)?;
    leaves.into_iter().find(|leaf| leaf.start <= at && at < leaf.end).map(|leaf| leaf.path)
}

/// Members that are numbers of several bytes: their offset, size and name.
pub(super) fn numbers(btf: &Btf, ty: TypeId) -> Vec<(usize, usize, String)> {
    let mut leaves = Vec::new();
    flatten(btf, ty, 0, String::new(), &mut leaves);
    let number = |leaf: Leaf| {
        let bits = leaf.end - leaf.start;
        let is_number = leaf.start.is_multiple_of(8) && matches!(bits, 16 | 32 | 64);
        is_number.then_some((leaf.start as usize / 8, bits as usize / 8, leaf.path))
    };
    leaves.into_iter().filter_map(number).collect()
}

/// A piece of a type that has a name, in bits.
struct Leaf {
    start: u64,
    end: u64,
    path: String,
}

/// Names the bytes of a value whose `undefined` bits are set, one element of the slice a byte:
/// ``"`proto`"``, ``"the padding behind `proto`"``.
pub(super) fn names(btf: &Btf, ty: TypeId, undefined: &[u8]) -> Vec<String> {
    let mut leaves = Vec::new();
    flatten(btf, ty, 0, String::new(), &mut leaves);
    leaves.sort_by_key(|leaf| leaf.start);
    let is_undefined =
        |bit: u64| undefined.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 != 0);
    let mut named = Vec::new();
    let mut past = 0;
    let mut last: Option<&str> = None;
    for leaf in &leaves {
        if leaf.start > past && (past..leaf.start).any(is_undefined) {
            named.push(padding(last));
        }
        if (leaf.start..leaf.end).any(is_undefined) && !leaf.path.is_empty() {
            named.push(format!("`{}`", leaf.path));
        }
        past = past.max(leaf.end);
        last = Some(&leaf.path);
    }
    if (past..undefined.len() as u64 * 8).any(is_undefined) && !leaves.is_empty() {
        named.push(padding(last));
    }
    named.dedup();
    named
}

fn padding(last: Option<&str>) -> String {
    match last {
        Some(last) if !last.is_empty() => format!("the padding behind `{last}`"),
        _ => "padding".to_owned(),
    }
}

/// The members of a type; of a union, those of its largest member.
fn flatten(btf: &Btf, ty: TypeId, start: u64, path: String, leaves: &mut Vec<Leaf>) {
    if leaves.len() >= LEAVES_MAX || path.len() > PATH_MAX {
        return;
    }
    let bits = btf.size_of(ty).unwrap_or(0).saturating_mul(8);
    match btf.resolved(ty) {
        Kind::Composite { union, members, .. } => {
            let size = |member: &towpath_bpf::btf::Member| btf.size_of(member.ty).unwrap_or(0);
            let largest = members.iter().max_by_key(|member| size(member));
            let chosen: Vec<_> =
                if *union { largest.into_iter().collect() } else { members.iter().collect() };
            for member in chosen {
                let name = joined(&path, &member.name);
                let at = start + u64::from(member.bit_offset);
                match u64::from(member.bit_size) {
                    0 => flatten(btf, member.ty, at, name, leaves),
                    width => leaves.push(Leaf { start: at, end: at + width, path: name }),
                }
            }
        }
        Kind::Array { elem, count, .. } if is_composite(btf, *elem) => {
            let step = btf.size_of(*elem).unwrap_or(0).saturating_mul(8);
            for index in 0..u64::from(*count).min(ELEMENTS_MAX) {
                flatten(btf, *elem, start + index * step, format!("{path}[{index}]"), leaves);
            }
        }
        _ => leaves.push(Leaf { start, end: start.saturating_add(bits), path }),
    }
}

fn is_composite(btf: &Btf, ty: TypeId) -> bool {
    matches!(btf.resolved(ty), Kind::Composite { .. })
}

fn joined(path: &str, name: &str) -> String {
    match (path.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (false, true) => path.to_owned(),
        (false, false) => format!("{path}.{name}"),
    }
}

/// "byte 1", "bytes 1 to 3", "bytes 1 to 3 and 9" of those that are not 0.
pub(super) fn byte_numbers(undefined: &[u8]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (at, _) in undefined.iter().enumerate().filter(|(_, bits)| **bits != 0) {
        match ranges.last_mut().filter(|(_, last)| last + 1 == at) {
            Some((_, last)) => *last = at,
            None => ranges.push((at, at)),
        }
    }
    let word =
        if matches!(ranges[..], [(first, last)] if first == last) { "byte" } else { "bytes" };
    let text = |&(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first} to {last}"),
    };
    let texts: Vec<String> = ranges.iter().map(text).collect();
    format!("{word} {}", listed(&texts))
}

/// "a, b and c"
pub(super) fn listed(texts: &[String]) -> String {
    match texts {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

const LEAVES_MAX: usize = 1000;
const PATH_MAX: usize = 200;
const ELEMENTS_MAX: u64 = 64;
