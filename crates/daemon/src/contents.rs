//! What is in a map, through its types, from any thread while programs run.

use serde_json::{Value as Json, json};
use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};
use towpath_maps::{Map, Value, flags};

use crate::api::error::ApiError;
use crate::api::types::{EntryRequest, EntryView};
use crate::mapfile::{self, Stored, is_per_cpu, is_without_keys, typed};
use crate::suggest;

/// Everything in a map, in the map's order. What has no elements to list (ring buffers, arenas,
/// queues, bloom filters) is empty.
pub(crate) fn entries(map: &Map) -> Vec<EntryView> {
    match map.kind() {
        MapType::Queue | MapType::Stack | MapType::BloomFilter => Vec::new(),
        MapType::Devmap | MapType::DevmapHash | MapType::Cpumap | MapType::Xskmap => {
            let targets = map.targets();
            targets.into_iter().map(|(key, it)| target(map, key, it.number, it.id)).collect()
        }
        MapType::ProgArray => (0..map.max_entries())
            .filter_map(|index| Some((index, map.program(index)?)))
            .map(|(index, id)| one(index.into(), id.into()))
            .collect(),
        _ => {
            let user = map.user();
            user.entries().map(|(key, value)| entry(map.def(), &key, &value)).collect()
        }
    }
}

/// One element; of queues and stacks the next one.
pub(crate) fn lookup(map: &Map, request: &EntryRequest) -> Result<EntryView, ApiError> {
    let (key, _) = parse(map, request)?;
    let key = key.unwrap_or_default();
    if matches!(map.kind(), MapType::Devmap | MapType::DevmapHash | MapType::Cpumap)
        && let Ok(index) = <[u8; 4]>::try_from(key.as_slice())
    {
        let index = u32::from_ne_bytes(index);
        let found = map.target(index).ok_or_else(|| said(map, Errno::ENOENT))?;
        return Ok(target(map, index, found.number, found.id));
    }
    let value = map.user().lookup(&key, 0).map_err(|errno| said(map, errno))?;
    Ok(entry(map.def(), &key, &value))
}

/// Puts an element. Kinds without keys push.
pub(crate) fn update(map: &Map, request: &EntryRequest) -> Result<(), ApiError> {
    let flags = match request.flags.as_deref() {
        None | Some("any") => flags::BPF_ANY,
        Some("noexist") => flags::BPF_NOEXIST,
        Some("exist") => flags::BPF_EXIST,
        Some(other) => {
            let hint = suggest::among(other, ["any", "noexist", "exist"]);
            return Err(ApiError::bad(format!("flags: no flag \"{other}\"{hint}")));
        }
    };
    let Some(value) = &request.value else { return Err(ApiError::bad("value: it is missing")) };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let (key, value) = match (map.kind(), number) {
        // Programs of arrays are named by id.
        (MapType::ProgArray, Some(id)) => {
            let (key, _) = parse(map, &EntryRequest { value: None, ..request.clone() })?;
            (key, Value::One(id.to_ne_bytes().to_vec()))
        }
        _ => bytes_of(map, request)?,
    };
    let Some(key) = key else {
        return map.push(value.bytes(), flags).map_err(|errno| said(map, errno));
    };
    map.user().update(&key, &value, flags).map_err(|errno| said(map, errno))
}

/// Deletes an element.
pub(crate) fn delete(map: &Map, request: &EntryRequest) -> Result<(), ApiError> {
    let (key, _) = parse(map, &EntryRequest { value: None, ..request.clone() })?;
    map.user().delete(&key.unwrap_or_default()).map_err(|errno| said(map, errno))
}

type Bytes = (Option<Vec<u8>>, Value);

fn bytes_of(map: &Map, request: &EntryRequest) -> Result<Bytes, ApiError> {
    let (key, stored) = parse(map, request)?;
    let value = match stored {
        Some(Stored::Value(value)) => value,
        Some(Stored::Target(number, None)) => {
            let mut bytes = number.to_ne_bytes().to_vec();
            bytes.resize(map.value_size() as usize, 0);
            Value::One(bytes)
        }
        _ => {
            let kind = map.kind().name();
            let message = format!("value: a map of kind {kind} takes no such value here");
            return Err(ApiError::bad(message));
        }
    };
    Ok((key, value))
}

fn parse(map: &Map, request: &EntryRequest) -> Result<(Option<Vec<u8>>, Option<Stored>), ApiError> {
    let key_is_missing = request.key.is_null() && !is_without_keys(map.kind());
    if key_is_missing {
        return Err(ApiError::bad("key: it is missing"));
    }
    mapfile::parse_element(map.def(), &request.key, request.value.as_ref(), map.cpus())
        .map_err(ApiError::bad)
}

fn entry(def: &MapDef, key: &[u8], value: &Value) -> EntryView {
    let key = if key.is_empty() { Json::Null } else { typed::key_to_json(def, key) };
    let mut values: Vec<Json> =
        value.cpus().iter().map(|bytes| typed::value_to_json(def, bytes)).collect();
    if is_per_cpu(def.kind) {
        return EntryView { key, value: None, values: Some(values) };
    }
    EntryView { key, value: values.pop(), values: None }
}

fn one(key: Json, value: Json) -> EntryView {
    EntryView { key, value: Some(value), values: None }
}

fn target(map: &Map, key: u32, number: u32, program: u32) -> EntryView {
    let word = match map.kind() {
        MapType::Cpumap => "qsize",
        MapType::Xskmap => "queue",
        _ => "ifindex",
    };
    let mut value = json!({ word: number });
    if program != 0 {
        value["prog_id"] = program.into();
    }
    one(key.into(), value)
}

fn said(map: &Map, errno: Errno) -> ApiError {
    let message = format!("map {}: {errno}", map.name());
    match errno {
        Errno::ENOENT => ApiError::missing(message),
        _ => ApiError::refused(message),
    }
}
