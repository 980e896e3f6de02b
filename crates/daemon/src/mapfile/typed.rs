//! Keys and values between JSON and bytes, with problems as the map file reports them.

use serde_json::Value as Json;
use towpath_bpf::MapDef;
use towpath_bpf::map::Keys;
use towpath_maps::typed::{self, TypedError};

pub use typed::value_to_json;

/// The bytes of a key that the file has at `path`.
pub(super) fn parse_key(map: &MapDef, path: &str, json: &Json) -> Result<Vec<u8>, String> {
    typed::key_from_json(map, json).map_err(|error| problem(path, &error))
}

/// The bytes of a value that the file has at `path`.
pub(super) fn parse_value(map: &MapDef, path: &str, json: &Json) -> Result<Vec<u8>, String> {
    typed::value_from_json(map, json).map_err(|error| problem(path, &error))
}

/// A key as JSON. Indexes are numbers, also where the object gives them no type.
pub fn key_to_json(map: &MapDef, bytes: &[u8]) -> Json {
    match <[u8; 4]>::try_from(bytes) {
        Ok(index) if map.kind.keys() == Keys::Index => u32::from_le_bytes(index).into(),
        _ => typed::key_to_json(map, bytes),
    }
}

/// The error's own path starts at the key or value; what it starts with is in `path` already.
fn problem(path: &str, error: &TypedError) -> String {
    let below = error.path.trim_start_matches("key").trim_start_matches("value");
    format!("{path}{below}: {}", error.problem)
}
