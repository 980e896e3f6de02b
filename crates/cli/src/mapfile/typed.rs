//! Keys and values between JSON and bytes: through BTF where there is some, else in hex.

use serde_json::Value as Json;
use towpath_bpf::MapDef;

use super::parse::kind_of;

/// The bytes of a key.
pub(super) fn parse_key(map: &MapDef, json: &Json) -> Result<Vec<u8>, String> {
    parse(json, map.key_size)
}

/// The bytes of a value.
pub(super) fn parse_value(map: &MapDef, json: &Json) -> Result<Vec<u8>, String> {
    parse(json, map.value_size)
}

/// A key as JSON.
pub(super) fn key_to_json(_map: &MapDef, bytes: &[u8]) -> Json {
    hex(bytes)
}

/// A value as JSON.
pub(super) fn value_to_json(_map: &MapDef, bytes: &[u8]) -> Json {
    hex(bytes)
}

fn parse(json: &Json, size: u32) -> Result<Vec<u8>, String> {
    match json {
        Json::String(text) if text.starts_with(HEX) => {
            let bytes = crate::program::parse_hex(&text[HEX.len()..])
                .ok_or_else(|| format!("{text:?}: expected pairs of hex digits"))?;
            check_size(bytes, size)
        }
        Json::Number(number) if size <= 8 => {
            let value = number
                .as_u64()
                .or_else(|| number.as_i64().map(|signed| signed as u64))
                .ok_or_else(|| format!("{number}: expected an integer"))?;
            let bytes = value.to_le_bytes();
            let (kept, cut) = bytes.split_at(size as usize);
            if cut.iter().any(|byte| *byte != 0 && *byte != 0xff) {
                return Err(format!("{number} does not fit {size} bytes"));
            }
            Ok(kept.to_vec())
        }
        other => Err(format!("{}, expected \"hex:...\" of {size} bytes", kind_of(other))),
    }
}

fn check_size(bytes: Vec<u8>, size: u32) -> Result<Vec<u8>, String> {
    if bytes.len() == size as usize {
        Ok(bytes)
    } else {
        Err(format!("{} bytes, expected {size}", bytes.len()))
    }
}

fn hex(bytes: &[u8]) -> Json {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Json::String(format!("{HEX}{digits}"))
}

const HEX: &str = "hex:";
