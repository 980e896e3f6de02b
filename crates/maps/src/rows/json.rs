//! Rows as JSON objects.

use std::io::BufRead;

use serde_json::{Map as Object, Value as Json};
use towpath_bpf::MapDef;
use towpath_bpf::map::Keys;
use towpath_bpf::suggest;

use super::cut::{Objects, at};
use super::{RowsError, Unsorted, wrong};
use crate::typed::{self, TypedError};

/// Reads all rows.
pub(super) fn read(rows: &mut Unsorted<'_>, from: &mut dyn BufRead) -> Result<(), RowsError> {
    // `"0x00", ` with indents around it is the longest that a byte takes, but for names.
    let most = TEXT_BYTES_MIN + rows.row_bytes() * TEXT_BYTES_PER_BYTE;
    let mut objects = Objects::new(from, most);
    while let Some((line, text)) = objects.next()? {
        let object = serde_json::from_slice(text).map_err(|error| {
            let text = error.to_string();
            let problem = text.split(" at line ").next().unwrap_or(&text).to_owned();
            wrong(at(line), problem)
        })?;
        put(rows, &object, line)?;
    }
    Ok(())
}

/// Adds a row.
pub(super) fn put(
    rows: &mut Unsorted<'_>,
    object: &Object<String, Json>,
    line: u64,
) -> Result<(), RowsError> {
    let (def, cpus) = (rows.map.def(), rows.rows.cpus);
    let key_bytes = rows.rows.key_bytes;
    let is_percpu = rows.rows.is_percpu;
    let row = rows.next(|_| at(line))?;
    let (key, values) = row.split_at_mut(key_bytes);
    let filled = fill(def, object, key, values, is_percpu.then_some(cpus));
    let checked = filled.and_then(|()| rows.check());
    checked.map_err(|problem| wrong(at(line), problem))
}

fn fill(
    def: &MapDef,
    object: &Object<String, Json>,
    key: &mut [u8],
    values: &mut [u8],
    cpus: Option<usize>,
) -> Result<(), String> {
    const NAMES: [&str; 3] = ["key", "value", "values"];
    // As `map dump` writes rows, for people and as bytes.
    let is_known = |name: &str| NAMES.contains(&name) || name == "formatted" || name == "bytes";
    if let Some(unknown) = object.keys().find(|name| !is_known(name)) {
        return Err(format!("unknown {unknown:?}{}", suggest::among(unknown, NAMES)));
    }
    if def.kind.keys() != Keys::None {
        let json = object.get("key").ok_or("no \"key\"")?;
        key.copy_from_slice(&bytes_or(json, key.len(), |json| typed::key_from_json(def, json))?);
    }
    let size = def.value_size as usize;
    match (object.get("value"), object.get("values")) {
        (Some(value), None) => {
            let bytes = bytes_or(value, size, |json| typed::value_from_json(def, json))?;
            // One value for a per-CPU element is the value of every CPU, as bpftool has it.
            values.chunks_mut(size.max(1)).for_each(|each| each.copy_from_slice(&bytes));
            Ok(())
        }
        (None, Some(list)) => match cpus {
            Some(cpus) => per_cpu(def, list, values, cpus),
            None => Err("values: only per-CPU maps have one value for each CPU".to_owned()),
        },
        (Some(_), Some(_)) => Err("both \"value\" and \"values\"".to_owned()),
        (None, None) => Err("no \"value\"".to_owned()),
    }
}

/// `[{"cpu": N, "value": V}, ...]`, or values in the order of CPUs; others get zeroes.
fn per_cpu(def: &MapDef, list: &Json, values: &mut [u8], cpus: usize) -> Result<(), String> {
    let Json::Array(list) = list else { return Err("values: expected a list".to_owned()) };
    let size = def.value_size as usize;
    for (index, entry) in list.iter().enumerate() {
        let (cpu, value) = match entry.as_object() {
            Some(named) if named.len() == 2 && named.contains_key("cpu") => {
                let cpu = named.get("cpu").and_then(Json::as_u64);
                let cpu = cpu.ok_or_else(|| format!("values[{index}].cpu: expected a number"))?;
                let value = named.get("value");
                (cpu, value.ok_or_else(|| format!("values[{index}]: no \"value\""))?)
            }
            _ => (index as u64, entry),
        };
        let bytes = bytes_or(value, size, |json| typed::value_from_json(def, json))
            .map_err(|problem| format!("values[{index}]: {problem}"))?;
        let slot = usize::try_from(cpu).ok().filter(|cpu| *cpu < cpus);
        let slot = slot.and_then(|cpu| values.get_mut(cpu * size..(cpu + 1) * size));
        let none = || format!("values[{index}]: CPU {cpu}, and the map has values of {cpus}");
        slot.ok_or_else(none)?.copy_from_slice(&bytes);
    }
    Ok(())
}

/// The bytes as bpftool writes them (`["0x0a", "0x00"]`), or a value of the type.
fn bytes_or(
    json: &Json,
    size: usize,
    parse: impl FnOnce(&Json) -> Result<Vec<u8>, TypedError>,
) -> Result<Vec<u8>, String> {
    if let Json::Array(list) = json
        && list.len() == size
        && let Some(bytes) = list.iter().map(byte).collect::<Option<Vec<u8>>>()
    {
        return Ok(bytes);
    }
    parse(json).map_err(|TypedError { path, problem, .. }| format!("{path}: {problem}"))
}

fn byte(json: &Json) -> Option<u8> {
    let digits = json.as_str()?.strip_prefix("0x")?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// Bytes for names and marks, for any size of row.
const TEXT_BYTES_MIN: usize = 1 << 20;
const TEXT_BYTES_PER_BYTE: usize = 64;
