//! Bytes to JSON.

use serde_json::{Map as Object, Value as Json};
use towpath_bpf::btf::{Btf, Kind, TypeId};

use super::network::{Network, Tag};
use super::{HEX_PREFIX, bits, hex, is_char};

/// A value of a type. `bytes` has the type's size.
pub(super) fn format(btf: &Btf, id: TypeId, bytes: &[u8]) -> Json {
    // Limits the output, because unions inside unions can show the same bytes any number of times,
    // without end for a damaged file.
    let fuel = FUEL + bytes.len().saturating_mul(FUEL_PER_BYTE);
    let mut formatter = Formatter { btf, fuel };
    let json = formatter.value(id, None, bytes);
    if formatter.fuel == 0 { hex(bytes) } else { json }
}

/// Parts of a value that are shown at most, whatever its size.
const FUEL: usize = 4096;
/// More of them for each byte.
const FUEL_PER_BYTE: usize = 16;

struct Formatter<'a> {
    btf: &'a Btf,
    fuel: usize,
}

impl Formatter<'_> {
    /// `said` is the tag of this place.
    fn value(&mut self, id: TypeId, said: Option<Tag>, bytes: &[u8]) -> Json {
        if self.fuel == 0 {
            return Json::Null;
        }
        self.fuel -= 1;
        let btf = self.btf;
        let tag = Tag::of(btf, id, said);
        if let Some(json) = Network::of(btf, id, tag).and_then(|it| it.to_json(bytes)) {
            return json;
        }
        match btf.resolved(id) {
            Kind::Int { size, bits, offset, signed, boolean, .. } if *size <= 8 => {
                let value = bits::read(bytes, u32::from(*offset), u32::from(*bits));
                integer(value, u32::from(*bits), *signed, *boolean)
            }
            Kind::Enum { size, signed, values, .. } => {
                enumerator(bits::read(bytes, 0, size * 8), size * 8, *signed, values)
            }
            Kind::Ptr(_) => Json::from(bits::read(bytes, 0, 64)),
            Kind::Float(4) => float(bytes.first_chunk().map(|b| f64::from(f32::from_le_bytes(*b)))),
            Kind::Float(8) => float(bytes.first_chunk().map(|b| f64::from_le_bytes(*b))),
            Kind::Array { elem, count, .. } => self.array(*elem, *count, tag, bytes),
            Kind::Composite { .. } => {
                let mut object = Object::new();
                self.members(id, bytes, &mut object);
                Json::Object(object)
            }
            Kind::Datasec { vars, .. } => {
                let shown = vars.iter().map(|var| {
                    let from = var.offset as usize;
                    let part = bytes.get(from..from + var.size as usize).unwrap_or(&[]);
                    (btf.name(var.ty).to_owned(), self.value(var.ty, None, part))
                });
                Json::Object(shown.collect())
            }
            Kind::Var { ty, .. } => self.value(*ty, tag, bytes),
            _ => hex(bytes),
        }
    }

    /// Members of a struct or union; those of anonymous ones become its own.
    fn members(&mut self, id: TypeId, bytes: &[u8], object: &mut Object<String, Json>) {
        let btf = self.btf;
        let owner = btf.resolve(id);
        for (index, member) in btf.members(id).iter().enumerate() {
            if self.fuel == 0 {
                return;
            }
            self.fuel -= 1;
            let part = bytes.get(member.bit_offset as usize / 8..).unwrap_or(&[]);
            let size = btf.size_of(member.ty).unwrap_or(0) as usize;
            let part = part.get(..size).unwrap_or(part);
            if member.name.is_empty() && member.bit_size == 0 {
                self.members(member.ty, part, object);
            } else if member.bit_size > 0 {
                let value = bits::read(bytes, member.bit_offset, member.bit_size);
                object.insert(
                    member.name.to_string(),
                    bit_field(btf, member.ty, value, member.bit_size),
                );
            } else {
                let tag = Tag::of_member(btf, owner, index as i32);
                object.insert(member.name.to_string(), self.value(member.ty, tag, part));
            }
        }
    }

    fn array(&mut self, elem: TypeId, count: u32, tag: Option<Tag>, bytes: &[u8]) -> Json {
        if is_char(self.btf, elem)
            && let Some(text) = text_of(bytes)
        {
            return Json::from(text);
        }
        let size = self.btf.size_of(elem).unwrap_or(0) as usize;
        if size == 0 {
            return hex(bytes);
        }
        let parts = bytes.chunks_exact(size).take(count as usize);
        parts.map(|part| self.value(elem, tag, part)).collect()
    }
}

fn bit_field(btf: &Btf, ty: TypeId, value: u64, width: u32) -> Json {
    match btf.resolved(ty) {
        Kind::Enum { signed, values, .. } => enumerator(value, width, *signed, values),
        Kind::Int { signed, boolean, .. } => integer(value, width, *signed, *boolean),
        _ => Json::from(value),
    }
}

fn integer(value: u64, width: u32, signed: bool, boolean: bool) -> Json {
    match (boolean, value) {
        (true, 0) => Json::Bool(false),
        (true, 1) => Json::Bool(true),
        _ if signed => Json::from(bits::sign_extend(value, width)),
        _ => Json::from(value),
    }
}

fn enumerator<N: AsRef<str>>(value: u64, width: u32, signed: bool, names: &[(N, i64)]) -> Json {
    let number = if signed { bits::sign_extend(value, width) } else { value as i64 };
    match names.iter().find(|(_, known)| *known == number) {
        Some((name, _)) => Json::from(name.as_ref()),
        None if signed => Json::from(number),
        None => Json::from(value),
    }
}

/// Printable text that ends at the first NUL, with nothing behind it.
fn text_of(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at(end);
    let text = str::from_utf8(text).ok()?;
    let plain = rest.iter().all(|&byte| byte == 0)
        && !text.chars().any(char::is_control)
        && !text.starts_with(HEX_PREFIX);
    plain.then_some(text)
}

fn float(value: Option<f64>) -> Json {
    value.map_or(Json::Null, Json::from)
}
