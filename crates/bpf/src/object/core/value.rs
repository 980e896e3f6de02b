//! The answer to a relocation's question, in the object's types and in the kernel's.

use super::Question;
use super::path::Path;
use crate::btf::{Btf, Kind, TypeId};

/// Value to write into an instruction (`struct bpf_core_relo_res`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The compiler's value, if `check`.
    pub(super) old: u64,
    pub(super) new: u64,
    /// Whether the instruction must hold `old` before.
    pub(super) check: bool,
    /// Whether there is no answer: the instruction must not be reached.
    pub(super) poison: bool,
    /// Size of the field in the object, and below in the kernel, in bytes, if a load or store may
    /// have to change.
    pub(super) old_bytes: u64,
    pub(super) new_bytes: u64,
    /// Whether the sizes differ in a way that no other load can make up for.
    pub(super) width_differs: bool,
}

impl Outcome {
    pub(super) fn unchecked(value: u64) -> Self {
        Outcome {
            old: value,
            new: value,
            check: false,
            poison: false,
            old_bytes: 0,
            new_bytes: 0,
            width_differs: false,
        }
    }

    /// Whether two candidates of the kernel lead to the same instruction.
    pub(super) fn agrees(&self, other: &Outcome) -> bool {
        self.poison == other.poison && self.new == other.new
    }
}

/// Computes the answer; without a target, the answer "not there" (`bpf_core_calc_relo`).
pub(super) fn compute(
    question: Question,
    local: (&Btf, &Path),
    target: Option<(&Btf, &Path)>,
) -> Result<Outcome, String> {
    if question.is_about_type() {
        let old = about_type(question, Some(local))?;
        let new = about_type(question, target)?;
        // Ids change when objects are linked, so the old id is meaningless.
        let check = question != Question::TypeIdTarget;
        return Ok(Outcome { old, new, check, ..Outcome::unchecked(0) });
    }
    if question.is_about_enumerator() {
        let old = about_enumerator(question, Some(local)).unwrap_or(0);
        return Ok(match about_enumerator(question, target) {
            Some(new) => Outcome { old, new, check: true, ..Outcome::unchecked(0) },
            None => Outcome { poison: true, ..Outcome::unchecked(0) },
        });
    }
    let Some(old) = about_field(question, Some(local))? else {
        return Err("the path leads to no field".to_owned());
    };
    let Some(new) = about_field(question, target)? else {
        return Ok(Outcome { poison: true, ..Outcome::unchecked(0) });
    };
    let width_differs = match (old.ty, new.ty, target) {
        (Some(a), Some(b), Some((target_btf, _))) if old.bytes != new.bytes => {
            !is_adjustable(local.0.resolved(a), target_btf.resolved(b))
        }
        _ => false,
    };
    Ok(Outcome {
        old: old.value,
        new: new.value,
        check: old.check,
        poison: false,
        old_bytes: old.bytes,
        new_bytes: new.bytes,
        width_differs,
    })
}

/// Whether a load can be widened or narrowed: only of pointers and unsigned integers.
fn is_adjustable(local: &Kind, target: &Kind) -> bool {
    match (local, target) {
        (Kind::Ptr(_), Kind::Ptr(_)) => true,
        (Kind::Int { signed: a, .. }, Kind::Int { signed: b, .. }) => !a && !b,
        _ => false,
    }
}

fn about_type(question: Question, place: Option<(&Btf, &Path)>) -> Result<u64, String> {
    let Some((btf, path)) = place else { return Ok(0) };
    Ok(match question {
        Question::TypeIdTarget => path.root.into(),
        Question::TypeSize => btf
            .size_of(path.root)
            .ok_or_else(|| format!("{} has no size", btf.c_name(path.root)))?,
        _ => 1,
    })
}

/// Answer about an enumerator; `None` asks for poison.
fn about_enumerator(question: Question, place: Option<(&Btf, &Path)>) -> Option<u64> {
    if question == Question::EnumeratorExists {
        return Some(place.is_some().into());
    }
    let (btf, path) = place?;
    let step = path.last()?;
    match btf.kind(step.ty) {
        // libbpf takes the value as a signed 32-bit one unless the enum is a 64-bit one.
        Kind::Enum { values, wide, .. } => values
            .get(step.index)
            .map(|(_, value)| if *wide { *value as u64 } else { i64::from(*value as i32) as u64 }),
        _ => None,
    }
}

/// An answer about a field.
struct Field {
    value: u64,
    /// Whether the compiler's own value must equal the computed one.
    check: bool,
    /// Size and type of a load from the field; 0 if irrelevant.
    bytes: u64,
    ty: Option<TypeId>,
}

impl Field {
    fn plain(value: u64, check: bool) -> Self {
        Field { value, check, bytes: 0, ty: None }
    }
}

/// Answer about a field; `None` asks for poison (`bpf_core_calc_field_relo`).
fn about_field(question: Question, place: Option<(&Btf, &Path)>) -> Result<Option<Field>, String> {
    if question == Question::FieldExists {
        return Ok(Some(Field::plain(place.is_some().into(), true)));
    }
    let Some((btf, path)) = place else { return Ok(None) };
    let step = path.last().ok_or("the path has no steps")?;
    if step.name.is_none() {
        return about_element(question, btf, path, step.ty).map(Some);
    }
    let Some(member) = btf.members(step.ty).get(step.index) else {
        return Err("the path leads to no member".to_owned());
    };
    let span = Span::of(btf, path.bit_offset, member.ty, member.bit_size)?;
    let ty = btf.resolved(member.ty);
    let check = !span.is_bitfield;
    let field = match question {
        Question::FieldByteOffset if span.is_bitfield => Field::plain(span.byte_offset, false),
        Question::FieldByteOffset => Field {
            value: span.byte_offset,
            check,
            bytes: scalar_size(btf, member.ty)?,
            ty: Some(member.ty),
        },
        Question::FieldByteSize => Field::plain(span.bytes, check),
        Question::FieldSigned => {
            let signed =
                matches!(ty, Kind::Int { signed: true, .. } | Kind::Enum { signed: true, .. });
            Field::plain(signed.into(), true)
        }
        Question::FieldLeftShift => {
            let used = span.bit_offset + span.bits - span.byte_offset * 8;
            Field::plain(64u64.checked_sub(used).ok_or("wider than 64 bits")?, check)
        }
        _ => Field::plain(64u64.checked_sub(span.bits).ok_or("wider than 64 bits")?, true),
    };
    Ok(Some(field))
}

fn about_element(question: Question, btf: &Btf, path: &Path, ty: TypeId) -> Result<Field, String> {
    match question {
        Question::FieldByteOffset => Ok(Field {
            value: path.bit_offset / 8,
            check: true,
            bytes: scalar_size(btf, ty)?,
            ty: Some(ty),
        }),
        Question::FieldByteSize => Ok(Field::plain(size(btf, ty)?, true)),
        _ => Err("this can't be asked about an array element".to_owned()),
    }
}

/// The bytes that hold a field.
struct Span {
    bit_offset: u64,
    bits: u64,
    byte_offset: u64,
    bytes: u64,
    is_bitfield: bool,
}

impl Span {
    fn of(btf: &Btf, bit_offset: u64, ty: TypeId, bitfield: u32) -> Result<Self, String> {
        let mut bytes = size(btf, ty)?;
        if bitfield == 0 {
            let byte_offset = bit_offset / 8;
            let bits = bytes.checked_mul(8).ok_or("the field is too large")?;
            return Ok(Span { bit_offset, bits, byte_offset, bytes, is_bitfield: false });
        }
        // The smallest aligned integer that holds all bits.
        let bits = u64::from(bitfield);
        let bytes_at = |bytes: u64| (bit_offset / 8).checked_div(bytes).map(|at| at * bytes);
        let mut byte_offset = bytes_at(bytes).ok_or("a bit-field in a type without a size")?;
        while bit_offset + bits - byte_offset * 8 > bytes * 8 {
            if bytes >= 8 {
                return Err("a bit-field that no 64-bit load can read".to_owned());
            }
            bytes *= 2;
            byte_offset = bit_offset / 8 / bytes * bytes;
        }
        Ok(Span { bit_offset, bits, byte_offset, bytes, is_bitfield: true })
    }
}

fn size(btf: &Btf, ty: TypeId) -> Result<u64, String> {
    btf.size_of(ty).ok_or_else(|| format!("{} has no size", btf.c_name(ty)))
}

/// Size of a type, or of one element if it is an array.
fn scalar_size(btf: &Btf, mut ty: TypeId) -> Result<u64, String> {
    while let Kind::Array { elem, .. } = *btf.resolved(ty) {
        ty = elem;
    }
    size(btf, ty)
}
