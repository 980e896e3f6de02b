//! The path of a relocation through a type: in the object's types by the recorded indices, in the
//! kernel's types by the names of the members.

use super::{Budget, Question, compat};
use crate::btf::{Btf, Kind, Name, TypeId, essential_name};

/// A place inside a type (`struct bpf_core_spec`).
#[derive(Debug, Clone, Default)]
pub(super) struct Path {
    /// The type at the start of the path.
    pub(super) root: TypeId,
    /// Steps by name or index: members and array elements.
    pub(super) steps: Vec<Step>,
    /// Number of all indices, those through anonymous members included.
    raw_len: usize,
    /// Offset from the start of the root, in bits.
    pub(super) bit_offset: u64,
}

/// One step (`struct bpf_core_accessor`).
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// The struct or union that contains the member, or the type of an array's element.
    pub(super) ty: TypeId,
    /// Index of the member, element or enumerator.
    pub(super) index: usize,
    /// Name of the member or enumerator; `None` for an array element.
    pub(super) name: Option<Name>,
}

/// Reads a recorded path, e.g. `0:1:2` (`bpf_core_parse_spec`).
pub(super) fn parse(
    btf: &Btf,
    question: Question,
    type_id: TypeId,
    access: &str,
) -> Result<Path, String> {
    if access.len() > ACCESS_BYTES_MAX {
        return Err(format!("an access path of {} characters", access.len()));
    }
    let indices: Vec<usize> = access
        .split(':')
        .map(|index| index.parse::<u32>().map(|index| index as usize))
        .collect::<Result<_, _>>()
        .map_err(|_cause| "the access path isn't numbers separated by colons".to_owned())?;
    if indices.len() > STEPS_MAX {
        return Err(format!("the access path has more than {STEPS_MAX} steps"));
    }
    if btf.get(type_id).is_none() {
        return Err(format!("type {type_id} doesn't exist"));
    }
    let mut path = Path { root: type_id, raw_len: indices.len(), ..Path::default() };
    if question.is_about_type() {
        return if access == "0" { Ok(path) } else { Err("the path must be 0".to_owned()) };
    }
    let first = indices[0];
    let id = btf.resolve(type_id);
    if question.is_about_enumerator() {
        let Kind::Enum { values, .. } = btf.kind(id) else {
            return Err("not an enum".to_owned());
        };
        let name = values.get(first).filter(|_| indices.len() == 1).map(|(name, _)| name.clone());
        let name = name.ok_or("no such enumerator")?;
        path.steps.push(Step { ty: id, index: first, name: Some(name) });
        return Ok(path);
    }
    path.steps.push(Step { ty: id, index: first, name: None });
    path.bit_offset = element_offset(btf, id, first)?;
    follow(btf, id, &indices[1..], &mut path)?;
    Ok(path)
}

/// Follows the indices after the first.
fn follow(btf: &Btf, mut id: TypeId, indices: &[usize], path: &mut Path) -> Result<(), String> {
    for &index in indices {
        id = btf.resolve(id);
        match btf.kind(id) {
            Kind::Composite { members, .. } => {
                let member = members
                    .get(index)
                    .ok_or_else(|| format!("{} has no member number {index}", btf.c_name(id)))?;
                path.bit_offset = add(path.bit_offset, member.bit_offset.into())?;
                if !member.name.is_empty() {
                    path.steps.push(Step { ty: id, index, name: Some(member.name.clone()) });
                }
                id = member.ty;
            }
            &Kind::Array { elem, count, .. } => {
                let elem = btf.resolve(elem);
                if index >= count as usize && !is_flexible(btf, path.steps.last(), count) {
                    return Err(format!("index {index} is outside {}", btf.c_name(id)));
                }
                path.steps.push(Step { ty: elem, index, name: None });
                path.bit_offset = add(path.bit_offset, element_offset(btf, elem, index)?)?;
                id = elem;
            }
            _ => return Err(format!("{} has no parts", btf.c_name(id))),
        }
    }
    Ok(())
}

/// Whether an array is the flexible one at the end of a struct (`is_flex_array`).
fn is_flexible(btf: &Btf, step: Option<&Step>, count: u32) -> bool {
    let Some(Step { ty, index, name: Some(_) }) = step else { return false };
    matches!(btf.kind(*ty), Kind::Composite { members, .. } if *index + 1 == members.len())
        && count == 0
}

fn element_offset(btf: &Btf, id: TypeId, index: usize) -> Result<u64, String> {
    let size = btf.size_of(id).ok_or_else(|| format!("{} has no size", btf.c_name(id)))?;
    size.checked_mul(8)
        .and_then(|bits| bits.checked_mul(index as u64))
        .ok_or_else(|| "the offset doesn't fit 64 bits".to_owned())
}

fn add(a: u64, b: u64) -> Result<u64, String> {
    a.checked_add(b).ok_or_else(|| "the offset doesn't fit 64 bits".to_owned())
}

/// The two sets of types that a path leads through.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) local: &'a Btf,
    pub(super) target: &'a Btf,
}

/// Follows `local`'s names in another type; `None` if it lacks one (`bpf_core_spec_match`).
pub(super) fn find(
    places: Places<'_>,
    local: &Path,
    question: Question,
    target_id: TypeId,
    budget: &Budget,
) -> Result<Option<Path>, String> {
    let target_btf = places.target;
    let mut path = Path { root: target_id, ..Path::default() };
    if question.is_about_type() {
        let (own, other) = ((places.local, local.root), (target_btf, target_id));
        let same = if question == Question::TypeMatches {
            compat::types_match(own, other, budget)
        } else {
            compat::types_are_compatible(own, other, budget)
        };
        return Ok(same?.then_some(path));
    }
    if question.is_about_enumerator() {
        return Ok(find_enumerator(local, target_btf, target_id, path));
    }
    let mut id = target_id;
    for (at, step) in local.steps.iter().enumerate() {
        id = target_btf.resolve(id);
        if step.name.is_some() {
            let search = Search { places, step, budget };
            match search.member(id, &mut path)? {
                Some(next) => id = next,
                None => return Ok(None),
            }
            continue;
        }
        // At the first step the type itself is the element.
        if at > 0 {
            let Kind::Array { elem, count, .. } = *target_btf.kind(id) else { return Ok(None) };
            if step.index >= count as usize && !is_flexible(target_btf, path.steps.last(), count) {
                return Ok(None);
            }
            id = target_btf.resolve(elem);
        }
        path.push_raw()?;
        path.steps.push(Step { ty: id, index: step.index, name: None });
        path.bit_offset = add(path.bit_offset, element_offset(target_btf, id, step.index)?)?;
    }
    Ok(Some(path))
}

fn find_enumerator(
    local: &Path,
    target_btf: &Btf,
    target_id: TypeId,
    mut path: Path,
) -> Option<Path> {
    let id = target_btf.resolve(target_id);
    let Kind::Enum { values, .. } = target_btf.kind(id) else { return None };
    let wanted = essential_name(local.steps.first()?.name.as_ref()?);
    let index = values.iter().position(|(name, _)| essential_name(name) == wanted)?;
    path.steps.push(Step { ty: id, index, name: Some(values[index].0.clone()) });
    Some(path)
}

/// The search for one member, through anonymous structs and unions.
struct Search<'a> {
    places: Places<'a>,
    step: &'a Step,
    budget: &'a Budget,
}

impl Search<'_> {
    /// Adds the member to `path` and returns its type (`bpf_core_match_member`).
    fn member(&self, id: TypeId, path: &mut Path) -> Result<Option<TypeId>, String> {
        let id = self.places.target.resolve(id);
        let Kind::Composite { members, .. } = self.places.target.kind(id) else { return Ok(None) };
        for (index, member) in members.iter().enumerate() {
            self.budget.burn()?;
            let before = path.bit_offset;
            path.bit_offset = add(before, member.bit_offset.into())?;
            path.push_raw()?;
            if member.name.is_empty() {
                if let Some(found) = self.member(member.ty, path)? {
                    return Ok(Some(found));
                }
            } else if self.step.name.as_deref() == Some(&*member.name) {
                if !self.is_compatible(member.ty) {
                    return Ok(None);
                }
                path.steps.push(Step { ty: id, index, name: Some(member.name.clone()) });
                return Ok(Some(member.ty));
            }
            path.bit_offset = before;
            path.raw_len -= 1;
        }
        Ok(None)
    }

    fn is_compatible(&self, target_member: TypeId) -> bool {
        let Places { local, target } = self.places;
        local.members(self.step.ty).get(self.step.index).is_some_and(|member| {
            compat::fields_are_compatible(local, member.ty, target, target_member)
        })
    }
}

impl Path {
    fn push_raw(&mut self) -> Result<(), String> {
        self.raw_len += 1;
        if self.raw_len > STEPS_MAX {
            return Err(format!("the path has more than {STEPS_MAX} steps"));
        }
        Ok(())
    }

    /// The steps after the root as C writes them, e.g. `.rxq[0].dev`; an enumerator as `::NAME`.
    pub(super) fn label(&self, btf: &Btf) -> String {
        let mut text = String::new();
        for (at, step) in self.steps.iter().enumerate() {
            match &step.name {
                Some(name) if matches!(btf.kind(step.ty), Kind::Enum { .. }) => {
                    text += &format!("::{name}");
                }
                Some(name) => text += &format!(".{name}"),
                None if at > 0 || step.index > 0 => text += &format!("[{}]", step.index),
                None => {}
            }
        }
        text
    }

    /// The last step: the field that a question is about.
    pub(super) fn last(&self) -> Option<&Step> {
        self.steps.last()
    }
}

/// `BPF_CORE_SPEC_MAX_LEN` of libbpf.
const STEPS_MAX: usize = 64;
/// Longest access string: 64 numbers of ten digits with colons.
const ACCESS_BYTES_MAX: usize = 704;
