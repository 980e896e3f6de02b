//! JSON to bytes.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map as Object, Value as Json};
use towpath_bpf::btf::{Btf, FoundMember, Kind, TypeId};

use super::network::{Network, Tag};
use super::{HEX_PREFIX, bits, is_char};

/// A mistake, and its place below the root.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) path: String,
    pub(super) text: String,
}

type Parsed = Result<(), Problem>;

/// Writes a value of a type. `out` has the type's size and is zero.
pub(super) fn parse(btf: &Btf, id: TypeId, json: &Json, out: &mut [u8]) -> Parsed {
    parse_tagged(btf, id, None, json, out)
}

/// `said` is the tag of this place.
fn parse_tagged(btf: &Btf, id: TypeId, said: Option<Tag>, json: &Json, out: &mut [u8]) -> Parsed {
    let tag = Tag::of(btf, id, said);
    if let Json::String(text) = json
        && raw(text, is_char(btf, elem_of(btf, id)), out)?
    {
        return Ok(());
    }
    match btf.resolved(id) {
        Kind::Int { size, .. } if *size <= 8 && Network::of(btf, id, tag).is_some() => {
            Network::write_number(integer(json, size * 8, false, false)?, out);
            Ok(())
        }
        Kind::Int { size, bits, offset, signed, boolean, .. } if *size <= 8 => {
            let width = u32::from(*bits);
            let value = integer(json, width, *signed, *boolean)?;
            bits::write(out, u32::from(*offset), width, value);
            Ok(())
        }
        Kind::Enum { size, signed, values, .. } => {
            bits::write(out, 0, size * 8, enumerator(json, size * 8, *signed, values)?);
            Ok(())
        }
        Kind::Ptr(_) => {
            bits::write(out, 0, 64, integer(json, 64, false, false)?);
            Ok(())
        }
        Kind::Float(size) => float(json, *size, out),
        Kind::Array { elem, count, .. } => array(btf, (*elem, *count, tag), json, out),
        Kind::Composite { .. } => composite(btf, id, json, out),
        Kind::Datasec { vars, .. } => {
            let object = object(json)?;
            for (name, json) in object {
                let var = vars.iter().find(|var| btf.name(var.ty) == name);
                let var =
                    var.ok_or_else(|| unknown(name, &mut vars.iter().map(|var| btf.name(var.ty))))?;
                let from = var.offset as usize;
                let part = out.get_mut(from..from + var.size as usize);
                let part = part.ok_or_else(|| problem("it lies outside its section"))?;
                parse(btf, var.ty, json, part).map_err(|inner| inner.below(&format!(".{name}")))?;
            }
            Ok(())
        }
        Kind::Var { ty, .. } => parse_tagged(btf, *ty, tag, json, out),
        _ => untyped(json, out),
    }
}

/// Writes bytes without a type: hex, an address, or a number if it fits.
pub(super) fn untyped(json: &Json, out: &mut [u8]) -> Parsed {
    match json {
        Json::String(text) if raw(text, false, out)? => Ok(()),
        Json::Number(_) if out.len() <= 8 => {
            let width = out.len() as u32 * 8;
            let signed = json.as_u64().is_none();
            bits::write(out, 0, width, integer(json, width, signed, false)?);
            Ok(())
        }
        other => {
            let size = out.len();
            let found = shown(other);
            Err(problem(format!("{found}; expected \"{HEX_PREFIX}...\" of {size} bytes")))
        }
    }
}

/// Strings that mean bytes whatever the type: hex, and addresses of the right size. Text for a
/// `char` array is only taken as hex.
fn raw(text: &str, is_text: bool, out: &mut [u8]) -> Result<bool, Problem> {
    if let Some(digits) = text.strip_prefix(HEX_PREFIX) {
        let bytes = from_hex(digits)
            .ok_or_else(|| problem(format!("{text:?}; expected pairs of hex digits")))?;
        let size = out.len();
        if bytes.len() != size {
            return Err(problem(format!("{} bytes in hex; expected {size}", bytes.len())));
        }
        out.copy_from_slice(&bytes);
        return Ok(true);
    }
    if is_text {
        return Ok(false);
    }
    let address: Option<Vec<u8>> = match out.len() {
        4 => text.parse::<Ipv4Addr>().ok().map(|address| address.octets().to_vec()),
        16 => text.parse::<IpAddr>().ok().map(|address| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        }),
        6 => mac(text).map(Vec::from),
        _ => None,
    };
    if let Some(address) = &address {
        out.copy_from_slice(address);
    }
    Ok(address.is_some())
}

/// The bytes that pairs of digits stand for.
pub fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let [high, low] = pair else { return None };
            let digit = |digit: u8| char::from(digit).to_digit(16);
            Some((digit(*high)? << 4 | digit(*low)?) as u8)
        })
        .collect()
}

/// Six bytes in hex, `02:00:00:00:00:01`.
pub fn mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

fn integer(json: &Json, width: u32, signed: bool, boolean: bool) -> Result<u64, Problem> {
    let kind = if signed { "signed" } else { "unsigned" };
    let number: i128 = match json {
        Json::Bool(value) if boolean || width == 1 => i128::from(*value),
        Json::Number(number) => {
            let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
            whole.ok_or_else(|| problem(format!("{number}; expected a whole number")))?
        }
        Json::String(text) => number_in(text).ok_or_else(|| expected(json, "a number"))?,
        _ if boolean => return Err(expected(json, "true or false")),
        _ => return Err(expected(json, "a number")),
    };
    let (min, max) = range(width, signed);
    if number < min || number > max {
        return Err(problem(format!(
            "{number} does not fit {width} {kind} bits; expected {min} to {max}"
        )));
    }
    Ok(number as u64)
}

/// The least and the greatest number of `width` bits.
fn range(width: u32, signed: bool) -> (i128, i128) {
    let width = width.clamp(1, 64);
    if signed { (-(1 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) }
}

fn number_in(text: &str) -> Option<i128> {
    let (text, sign) = text.strip_prefix('-').map_or((text, 1), |rest| (rest, -1));
    let magnitude = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    Some(sign * i128::from(magnitude))
}

fn enumerator<N: AsRef<str>>(
    json: &Json,
    width: u32,
    signed: bool,
    names: &[(N, i64)],
) -> Result<u64, Problem> {
    if let Json::String(text) = json
        && number_in(text).is_none()
    {
        let known = names.iter().find(|(name, _)| name.as_ref() == text);
        return known
            .map(|(_, value)| *value as u64)
            .ok_or_else(|| unknown(text, &mut names.iter().map(|(name, _)| name.as_ref())));
    }
    integer(json, width, signed, false)
}

fn float(json: &Json, size: u32, out: &mut [u8]) -> Parsed {
    let number = json.as_f64().ok_or_else(|| expected(json, "a number"))?;
    match size {
        4 => out.copy_from_slice(&(number as f32).to_le_bytes()),
        8 => out.copy_from_slice(&number.to_le_bytes()),
        _ => return untyped(json, out),
    }
    Ok(())
}

fn array(
    btf: &Btf,
    (elem, count, tag): (TypeId, u32, Option<Tag>),
    json: &Json,
    out: &mut [u8],
) -> Parsed {
    if let Json::String(text) = json
        && is_char(btf, elem)
    {
        if text.len() > out.len() {
            let (found, room) = (text.len(), out.len());
            return Err(problem(format!("{found} bytes of text; expected at most {room}")));
        }
        out[..text.len()].copy_from_slice(text.as_bytes());
        return Ok(());
    }
    let Json::Array(elements) = json else {
        return Err(expected(json, &format!("an array of {count} elements")));
    };
    let size = btf.size_of(elem).unwrap_or(0) as usize;
    if elements.len() > count as usize || (size == 0 && !elements.is_empty()) {
        let found = elements.len();
        return Err(problem(format!("{found} elements; expected at most {count}")));
    }
    for (index, json) in elements.iter().enumerate() {
        let from = index.saturating_mul(size);
        let part = out.get_mut(from..from.saturating_add(size));
        let part = part.ok_or_else(|| problem("it lies outside its array"))?;
        let parsed = parse_tagged(btf, elem, tag, json, part);
        parsed.map_err(|inner| inner.below(&format!("[{index}]")))?;
    }
    Ok(())
}

fn composite(btf: &Btf, id: TypeId, json: &Json, out: &mut [u8]) -> Parsed {
    for (name, json) in object(json)? {
        let found = btf.member(id, name);
        let found = found.ok_or_else(|| {
            let mut names = Vec::new();
            names_of(btf, id, &mut names, &mut Vec::new());
            unknown(name, &mut names.into_iter())
        })?;
        member_from(btf, found, json, out).map_err(|inner| inner.below(&format!(".{name}")))?;
    }
    Ok(())
}

fn member_from(btf: &Btf, found: FoundMember<'_>, json: &Json, out: &mut [u8]) -> Parsed {
    let FoundMember { member, bit_offset, owner, index } = found;
    let width = member.bit_size;
    if width > 0 {
        let value = match btf.resolved(member.ty) {
            Kind::Enum { signed, values, .. } => enumerator(json, width, *signed, values)?,
            Kind::Int { signed, boolean, .. } => integer(json, width, *signed, *boolean)?,
            _ => integer(json, width, false, false)?,
        };
        bits::write(out, bit_offset, width, value);
        return Ok(());
    }
    let from = bit_offset as usize / 8;
    let size = btf.size_of(member.ty).unwrap_or(0) as usize;
    let part = out.get_mut(from..from.saturating_add(size));
    let part = part.ok_or_else(|| problem("it lies outside its struct"))?;
    parse_tagged(btf, member.ty, Tag::of_member(btf, owner, index), json, part)
}

/// Names of members, those of anonymous ones included; each type in `seen` only once.
fn names_of<'a>(btf: &'a Btf, id: TypeId, names: &mut Vec<&'a str>, seen: &mut Vec<TypeId>) {
    for member in btf.members(id) {
        if names.len() >= NAMES_MAX {
            return;
        }
        if !member.name.is_empty() {
            names.push(&member.name);
        } else if !seen.contains(&member.ty) {
            seen.push(member.ty);
            names_of(btf, member.ty, names, seen);
        }
    }
}

/// The type that decides whether a string is text: an array's element.
fn elem_of(btf: &Btf, id: TypeId) -> TypeId {
    match btf.resolved(id) {
        Kind::Array { elem, .. } => *elem,
        _ => 0,
    }
}

fn object(json: &Json) -> Result<&Object<String, Json>, Problem> {
    json.as_object().ok_or_else(|| expected(json, "an object"))
}

fn unknown(name: &str, known: &mut dyn Iterator<Item = &str>) -> Problem {
    let known: Vec<&str> = known.take(NAMES_MAX).collect();
    problem(format!("unknown name {name:?}; known: {}", known.join(", ")))
}

fn expected(json: &Json, what: &str) -> Problem {
    problem(format!("{}; expected {what}", shown(json)))
}

/// JSON short enough for a message.
fn shown(json: &Json) -> String {
    let mut text = json.to_string();
    if text.chars().count() > SHOWN_CHARS {
        text = text.chars().take(SHOWN_CHARS).collect();
        text.push_str("...");
    }
    text
}

fn problem(text: impl Into<String>) -> Problem {
    Problem { path: String::new(), text: text.into() }
}

impl Problem {
    fn below(mut self, step: &str) -> Self {
        self.path.insert_str(0, step);
        self
    }
}

/// Most names a message lists.
const NAMES_MAX: usize = 32;
/// Most characters of JSON a message shows.
const SHOWN_CHARS: usize = 60;
