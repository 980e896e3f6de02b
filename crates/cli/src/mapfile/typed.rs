//! Keys and values between JSON and bytes, with problems as the map file reports them.

use serde_json::Value as Json;
use towpath_bpf::MapDef;
use towpath_maps::typed::{self, TypedError};

pub(super) use typed::{key_to_json, value_to_json};

/// The bytes of a key.
pub(super) fn parse_key(map: &MapDef, json: &Json) -> Result<Vec<u8>, String> {
    typed::key_from_json(map, json).map_err(|error| problem(&error))
}

/// The bytes of a value.
pub(super) fn parse_value(map: &MapDef, json: &Json) -> Result<Vec<u8>, String> {
    typed::value_from_json(map, json).map_err(|error| problem(&error))
}

/// The caller names file, map and entry.
fn problem(error: &TypedError) -> String {
    format!("{}: {}", error.path, error.problem)
}
