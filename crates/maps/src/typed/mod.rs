//! Keys and values as JSON, through the types that the object file carries.
//!
//! ```text
//! integers, pointers      numbers; "0x1f" and "17" are accepted too; _Bool: true, false
//! enumerations            the enumerator's name, or a number
//! structs, unions         objects; members of anonymous ones belong to the outer object;
//!                         members left out are 0
//! char[N]                 text, up to the first NUL
//! other arrays            arrays; elements left out are 0
//! __be16, __be64          numbers, as people write them
//! __be32, in_addr         "10.0.0.1"; or a number
//! in6_addr                "2001:db8::1"; an IPv4-mapped address as "10.0.0.1"
//! unsigned char[6]        "02:00:00:00:00:01"
//! __u32 and others         as the four above, where a tag says "ipv4", "ipv6", "mac", "be16",
//!                         "be32" or "be64": btf_decl_tag("ipv4"); elements of arrays, too
//! addresses               the three forms are accepted where anything has 4, 16 or 6 bytes
//! anything                "hex:0a0b": the bytes themselves
//! ```
//!
//! Values without a type, or with a type of another size than the map's, are shown in hex. What is
//! shown can be read back.

mod bits;
mod format;
pub mod leaves;
mod network;
mod order;
mod parse;

use std::net::IpAddr;

pub use order::key_order;
pub use parse::{from_hex, mac};
use serde_json::Value as Json;
use towpath_bpf::MapDef;
use towpath_bpf::btf::{Btf, TypeId};
use towpath_bpf::map::Keys;

/// The start of a JSON string of bytes.
pub const HEX_PREFIX: &str = "hex:";

/// JSON that isn't a key or value of a map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("map {map:?}, {path}: {problem}")]
#[non_exhaustive]
pub struct TypedError {
    /// The map's name.
    pub map: String,
    /// The place in the key or value: `value.counters[2].bytes`.
    pub path: String,
    /// The found and the expected value.
    pub problem: String,
}

/// A key as JSON. Indexes are numbers, also where the object gives them no type.
pub fn key_to_json(def: &MapDef, bytes: &[u8]) -> Json {
    match <[u8; 4]>::try_from(bytes) {
        Ok(index) if def.kind.keys() == Keys::Index => u32::from_le_bytes(index).into(),
        _ => to_json(sides(def).0, bytes),
    }
}

/// A value (of one CPU) as JSON.
pub fn value_to_json(def: &MapDef, bytes: &[u8]) -> Json {
    let (_key, value) = sides(def);
    to_json(value, bytes)
}

/// The start of bytes as a value of a type; `None` if there are too few. Records may be longer than
/// their contents.
pub fn type_to_json(btf: &Btf, id: TypeId, bytes: &[u8]) -> Option<Json> {
    let size = usize::try_from(btf.size_of(id)?).ok()?;
    Some(format::format(btf, id, bytes.get(..size)?))
}

/// The bytes of a key. Those of a trie may be text, as they are shown: `"10.0.0.0/8"`.
pub fn key_from_json(def: &MapDef, json: &Json) -> Result<Vec<u8>, TypedError> {
    if let Some(text) = json.as_str().filter(|_| def.kind.keys() == Keys::Prefix)
        && let Some(key) = prefix_key(text).filter(|key| key.len() == def.key_size as usize)
    {
        return Ok(key);
    }
    let (key, _value) = sides(def);
    from_json(def, key, "key", json)
}

/// A key of a longest-prefix trie as people write it, when it has the size of an address:
/// `10.0.0.0/8`.
pub fn prefix_to_text(key: &[u8]) -> Option<String> {
    let (length, address) = key.split_first_chunk::<4>()?;
    let address = match address.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
        _ => return None,
    };
    Some(format!("{address}/{}", u32::from_le_bytes(*length)))
}

/// `struct bpf_lpm_trie_key_u8` with an address behind the length.
fn prefix_key(text: &str) -> Option<Vec<u8>> {
    let (address, bits) = text.split_once('/')?;
    let address = match address.parse().ok()? {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let bits = bits.parse::<u32>().ok().filter(|&bits| bits as usize <= 8 * address.len())?;
    Some([&bits.to_le_bytes()[..], &address].concat())
}

/// The bytes of a value (of one CPU).
pub fn value_from_json(def: &MapDef, json: &Json) -> Result<Vec<u8>, TypedError> {
    let (_key, value) = sides(def);
    from_json(def, value, "value", json)
}

/// A key or a value: its size, and its type if there is a fitting one.
#[derive(Clone, Copy)]
struct Side<'a> {
    size: usize,
    ty: Option<(&'a Btf, TypeId)>,
}

fn sides(def: &MapDef) -> (Side<'_>, Side<'_>) {
    let side = |size: u32, id: TypeId| {
        let btf = def.btf.as_deref().filter(|btf| id != 0 && btf.size_of(id) == Some(size.into()));
        Side { size: size as usize, ty: btf.map(|btf| (btf, id)) }
    };
    (side(def.key_size, def.key_type), side(def.value_size, def.value_type))
}

fn to_json(side: Side<'_>, bytes: &[u8]) -> Json {
    match side.ty {
        Some((btf, id)) if bytes.len() == side.size => format::format(btf, id, bytes),
        _ => hex(bytes),
    }
}

fn from_json(def: &MapDef, side: Side<'_>, root: &str, json: &Json) -> Result<Vec<u8>, TypedError> {
    let mut bytes = vec![0; side.size];
    let result = match side.ty {
        Some((btf, id)) => parse::parse(btf, id, json, &mut bytes),
        None => parse::untyped(json, &mut bytes),
    };
    result.map_err(|problem| TypedError {
        map: def.name.clone(),
        path: format!("{root}{}", problem.path),
        problem: problem.text,
    })?;
    Ok(bytes)
}

/// Bytes as a JSON string.
fn hex(bytes: &[u8]) -> Json {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Json::String(format!("{HEX_PREFIX}{digits}"))
}

/// `char`, whose arrays are text. Compilers mark it by name only.
fn is_char(btf: &Btf, id: TypeId) -> bool {
    use towpath_bpf::btf::Kind;
    let id = btf.resolve(id);
    match btf.kind(id) {
        Kind::Int { size: 1, char, .. } => *char || btf.name(id) == "char",
        _ => false,
    }
}

#[cfg(test)]
mod tests;
