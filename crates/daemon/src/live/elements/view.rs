//! Elements of maps and their errors, as the API shows them.

use serde_json::{Value as Json, json};
use towpath_bpf::btf::Kind;
use towpath_bpf::map::Values;
use towpath_bpf::{Errno, MapDef};
use towpath_maps::{Map, Value, number, typed};

use crate::model::globals::hex;
use crate::model::messages::{BytesView, EntryView};
use crate::model::refusal::Refusal;

/// An element as shown to clients; `None` for an empty slot of an array.
pub(super) fn element(
    map: &Map,
    key: &[u8],
    value: Option<&Value>,
    with_bytes: bool,
) -> Option<EntryView> {
    let mut view = match map.kind().values() {
        Values::Device | Values::Cpu | Values::Socket => {
            let index = number(key);
            let found = map.target(index)?;
            target(map, index, found.number, found.id)
        }
        Values::Program => one(number(key).into(), number(value?.bytes()).into()),
        // Inner maps from an object file have no ids.
        Values::Map => entry(map.def(), key, &map.user().lookup(key, 0).ok()?),
        _ => entry(map.def(), key, value?),
    };
    if with_bytes {
        view.bytes = value.map(|value| bytes_of_entry(map.def(), key, value));
        name_target(map, &mut view);
    }
    Some(view)
}

/// An element's raw bytes, and its value formatted as bpftool does, which shows the variables of a
/// section as a list.
pub(super) fn bytes_of_entry(def: &MapDef, key: &[u8], value: &Value) -> BytesView {
    let values: Vec<String> = value.cpus().into_iter().map(hex).collect();
    let typed: Vec<Json> = value.cpus().iter().map(|bytes| bpftool_value(def, bytes)).collect();
    let has_types = def.btf.is_some() && def.value_type != 0;
    let mut formatted = json!({});
    if def.key_type != 0 {
        formatted["key"] = typed::key_to_json(def, key);
    }
    let mut view = BytesView { key: hex(key), ..BytesView::default() };
    if def.kind.is_percpu() {
        let each = typed.into_iter().enumerate();
        let each = each.map(|(cpu, value)| json!({ "cpu": cpu, "value": value }));
        formatted["values"] = each.collect();
        view.values = Some(values);
    } else {
        formatted["value"] = typed.into_iter().next().unwrap_or_default();
        view.value = values.into_iter().next();
    }
    view.formatted = has_types.then_some(formatted);
    view
}

/// Formats the entry of a device map, cpumap or xskmap by its meaning in place of its types.
fn name_target(map: &Map, entry: &mut EntryView) {
    let is_target = matches!(map.kind().values(), Values::Device | Values::Cpu | Values::Socket);
    if let Some(bytes) = entry.bytes.as_mut().filter(|_| is_target) {
        bytes.formatted = Some(json!({ "key": entry.key, "value": entry.value }));
    }
}

fn bpftool_value(def: &MapDef, bytes: &[u8]) -> Json {
    let value = typed::value_to_json(def, bytes);
    let section =
        def.btf.as_deref().filter(|btf| matches!(btf.kind(def.value_type), Kind::Datasec { .. }));
    match (section, value) {
        (Some(btf), Json::Object(variables)) => {
            let each = variables.into_iter().map(|(name, value)| json!({ name: value }));
            json!({ btf.name(def.value_type): each.collect::<Vec<_>>() })
        }
        (_, value) => value,
    }
}

pub(super) fn entry(def: &MapDef, key: &[u8], value: &Value) -> EntryView {
    let key = if key.is_empty() { Json::Null } else { typed::key_to_json(def, key) };
    let mut values: Vec<Json> =
        value.cpus().iter().map(|bytes| typed::value_to_json(def, bytes)).collect();
    if def.kind.is_percpu() {
        return EntryView { key, value: None, values: Some(values), bytes: None };
    }
    EntryView { key, value: values.pop(), values: None, bytes: None }
}

fn one(key: Json, value: Json) -> EntryView {
    EntryView { key, value: Some(value), values: None, bytes: None }
}

fn target(map: &Map, key: u32, number: u32, program: u32) -> EntryView {
    let word = match map.kind().values() {
        Values::Cpu => "qsize",
        Values::Socket => "queue",
        _ => "ifindex",
    };
    let mut value = json!({ word: number });
    if program != 0 {
        value["prog_id"] = program.into();
    }
    one(key.into(), value)
}

pub(super) fn said(map: &Map, errno: Errno) -> Refusal {
    let message = format!("map {}: {errno}", map.name());
    match errno {
        Errno::ENOENT => Refusal::missing(message),
        _ => Refusal::refused(message),
    }
}

/// Converts an error of the object registry.
pub(super) fn refused(map: &Map, error: &towpath_objects::ApiError) -> Refusal {
    match error {
        towpath_objects::ApiError::Refused { errno, .. } => said(map, *errno),
        error => Refusal::missing(format!("map {}: {error} (ENOENT)", map.name())),
    }
}
