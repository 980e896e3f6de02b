//! What is in maps, read from ours or from the running kernel's, as JSON.

use serde::Serialize;
use serde::ser::SerializeMap as _;
use serde_json::{Value as Json, json};
use towpath_bpf::MapDef;
use towpath_bpf::program::MapType;
use towpath_maps::{Map, Value};
use towpath_xdp::Program;

use super::parse::{is_per_cpu, is_read_only};
use super::typed;

/// The contents of an object's maps.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(super) maps: Vec<MapContents>,
}

/// The contents of one map.
#[derive(Debug)]
pub(super) struct MapContents {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) max_entries: u32,
    /// Arrays: entries that were never written are all zero, and of no interest to a reader.
    pub(super) has_all_keys: bool,
    pub(super) entries: Vec<Entry>,
}

/// One element.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Json,
    /// One value, or one for each CPU.
    pub(super) values: Vec<Json>,
    pub(super) is_per_cpu: bool,
    pub(super) is_zero: bool,
}

impl Contents {
    /// Of the maps of a program that the interpreter ran.
    pub(crate) fn of(program: &Program) -> Self {
        let maps = program.maps().maps().iter().filter(|map| is_shown(map.def()));
        Contents { maps: maps.map(|map| contents_of(map)).collect() }
    }

    /// Of maps in the running kernel.
    pub(crate) fn of_kernel(defs: &[MapDef], maps: &towpath_kernel::MapSet, cpus: usize) -> Self {
        let pairs = defs.iter().zip(maps.maps()).filter(|(def, _)| is_shown(def));
        let contents = pairs.map(|(def, map)| {
            let entries = map.entries(def.max_entries as usize).unwrap_or_default();
            let entries = entries.into_iter().map(|(key, value)| (key, split(def, &value, cpus)));
            map_contents(def, entries)
        });
        Contents { maps: contents.collect() }
    }
}

impl Serialize for Contents {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.maps.len()))?;
        for map in &self.maps {
            object.serialize_entry(&map.name, &map.entries)?;
        }
        object.end()
    }
}

impl Serialize for Entry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Entry { key, values, is_per_cpu, is_zero: _ } = self;
        let entry = if *is_per_cpu {
            let values = values.iter().enumerate();
            let values: Vec<Json> =
                values.map(|(cpu, value)| json!({ "cpu": cpu, "value": value })).collect();
            json!({ "key": key, "values": values })
        } else {
            json!({ "key": key, "value": values.first() })
        };
        entry.serialize(serializer)
    }
}

/// Constants are in the object file already.
fn is_shown(def: &MapDef) -> bool {
    !def.section.is_some_and(is_read_only)
}

fn contents_of(map: &Map) -> MapContents {
    let user = map.user();
    map_contents(map.def(), user.entries())
}

fn map_contents(def: &MapDef, entries: impl Iterator<Item = (Vec<u8>, Value)>) -> MapContents {
    let entries = entries.map(|(key, value)| Entry {
        key: typed::key_to_json(def, &key),
        values: value.cpus().iter().map(|bytes| typed::value_to_json(def, bytes)).collect(),
        is_per_cpu: is_per_cpu(def.kind),
        is_zero: value.cpus().iter().all(|bytes| bytes.iter().all(|byte| *byte == 0)),
    });
    MapContents {
        name: def.name.clone(),
        kind: def.kind.name(),
        max_entries: def.max_entries,
        has_all_keys: matches!(def.kind, MapType::Array | MapType::PercpuArray),
        entries: entries.collect(),
    }
}

/// The values of an element as the kernel gives them: one after the other, padded to 8 bytes.
fn split(def: &MapDef, value: &[u8], cpus: usize) -> Value {
    let size = def.value_size as usize;
    if !is_per_cpu(def.kind) {
        return Value::One(value.to_vec());
    }
    let stride = size.next_multiple_of(8).max(1);
    Value::PerCpu(
        value.chunks_exact(stride).take(cpus).map(|chunk| chunk[..size].to_vec()).collect(),
    )
}
