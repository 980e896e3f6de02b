//! What is in maps, read from ours or from the running kernel's, as JSON.

use std::net::IpAddr;

use serde::Serialize;
use serde::ser::SerializeMap as _;
use serde_json::{Value as Json, json};
use towpath_bpf::MapDef;
use towpath_bpf::program::MapType;
use towpath_maps::{Map, Value};
use towpath_xdp::Program;

use super::parse::{is_per_cpu, is_read_only};
use super::typed;
use crate::error::CliError;
use crate::suggest;

/// The contents of an object's maps.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(super) maps: Vec<MapContents>,
}

/// The contents of one map.
#[derive(Debug)]
pub(super) struct MapContents {
    pub(super) name: String,
    pub(super) kind: MapType,
    pub(super) max_entries: u32,
    /// Arrays: entries that were never written are all zero, and of no interest to a reader.
    pub(super) has_all_keys: bool,
    pub(super) entries: Vec<Entry>,
}

/// One element.
#[derive(Debug)]
pub(super) struct Entry {
    /// `None` in a queue or stack.
    pub(super) key: Option<Json>,
    /// The key as people write it, when that is not what the JSON says.
    pub(super) label: Option<String>,
    pub(super) held: Held,
    pub(super) is_zero: bool,
}

/// What an element holds.
#[derive(Debug)]
pub(super) enum Held {
    One(Json),
    /// One value for each CPU.
    PerCpu(Vec<Json>),
    Map(MapContents),
}

impl Contents {
    /// Of the maps of a program that the interpreter ran. Queues and stacks are emptied by this.
    pub(crate) fn of(program: &Program, names: &[String]) -> Self {
        let maps = program.maps().maps().iter().filter(|map| is_shown(map.def(), names));
        Contents { maps: maps.map(|map| contents_of(map, program)).collect() }
    }

    /// Of maps in the running kernel.
    pub(crate) fn of_kernel(
        defs: &[MapDef],
        maps: &towpath_kernel::MapSet,
        cpus: usize,
        names: &[String],
    ) -> Self {
        let pairs = defs.iter().zip(maps.maps()).filter(|(def, _)| is_shown(def, names));
        let contents = pairs.map(|(def, map)| {
            let entries = map.entries(def.max_entries as usize).unwrap_or_default();
            let entries = entries
                .into_iter()
                .map(|(key, value)| plain_entry(def, &key, &split(def, &value, cpus)));
            map_contents(def, entries.collect())
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
        let Entry { key, label: _, held, is_zero: _ } = self;
        let (name, value) = match held {
            Held::One(value) if key.is_none() => return value.serialize(serializer),
            Held::One(value) => ("value", value.clone()),
            Held::Map(inner) => ("value", json!(inner.entries)),
            Held::PerCpu(values) => {
                let values = values.iter().enumerate();
                (
                    "values",
                    values.map(|(cpu, value)| json!({ "cpu": cpu, "value": value })).collect(),
                )
            }
        };
        let mut object = serializer.serialize_map(Some(2))?;
        object.serialize_entry("key", key)?;
        object.serialize_entry(name, &value)?;
        object.end()
    }
}

/// The maps that were named; without names all but constants, which the object file has already.
fn is_shown(def: &MapDef, names: &[String]) -> bool {
    if names.is_empty() {
        !def.section.is_some_and(is_read_only)
    } else {
        names.contains(&def.name)
    }
}

/// Refuses names that no map has, before a long run.
pub(crate) fn check_names(names: &[String], maps: &[MapDef]) -> Result<(), CliError> {
    for name in names {
        if !maps.iter().any(|map| map.name == *name) {
            let hint = suggest::among(name, maps.iter().map(|map| map.name.as_str()));
            return Err(CliError::NoMap { name: name.clone(), hint });
        }
    }
    Ok(())
}

fn contents_of(map: &Map, program: &Program) -> MapContents {
    let def = map.def();
    let entries = match def.kind {
        MapType::ArrayOfMaps | MapType::HashOfMaps => inner_entries(map, program),
        MapType::Devmap | MapType::DevmapHash => target_entries(map, "ifindex", program),
        MapType::Cpumap => target_entries(map, "qsize", program),
        MapType::ProgArray => program_entries(map, program),
        MapType::Queue | MapType::Stack => queue_entries(map),
        _ => map.user().entries().map(|(key, value)| plain_entry(def, &key, &value)).collect(),
    };
    map_contents(def, entries)
}

fn map_contents(def: &MapDef, entries: Vec<Entry>) -> MapContents {
    MapContents {
        name: def.name.clone(),
        kind: def.kind,
        max_entries: def.max_entries,
        has_all_keys: matches!(def.kind, MapType::Array | MapType::PercpuArray),
        entries,
    }
}

fn plain_entry(def: &MapDef, key: &[u8], value: &Value) -> Entry {
    let mut values: Vec<Json> =
        value.cpus().iter().map(|bytes| typed::value_to_json(def, bytes)).collect();
    Entry {
        key: Some(typed::key_to_json(def, key)),
        label: if def.kind == MapType::LpmTrie { prefix(key) } else { None },
        is_zero: value.cpus().iter().all(|bytes| bytes.iter().all(|byte| *byte == 0)),
        held: match is_per_cpu(def.kind) {
            true => Held::PerCpu(values),
            false => Held::One(values.pop().unwrap_or(Json::Null)),
        },
    }
}

/// A key of a longest-prefix trie: `10.0.0.0/8`, when it has the size of an address.
fn prefix(key: &[u8]) -> Option<String> {
    let (length, address) = key.split_first_chunk::<4>()?;
    let address = match address.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
        _ => return None,
    };
    Some(format!("{address}/{}", u32::from_le_bytes(*length)))
}

fn inner_entries(map: &Map, program: &Program) -> Vec<Entry> {
    let keys: Vec<Vec<u8>> = map.user().entries().map(|(key, _id)| key).collect();
    let entries = keys.iter().filter_map(|key| {
        let inner = map.inner(key)?;
        Some(Entry {
            key: Some(typed::key_to_json(map.def(), key)),
            label: None,
            held: Held::Map(contents_of(&inner, program)),
            is_zero: false,
        })
    });
    entries.collect()
}

fn target_entries(map: &Map, word: &str, program: &Program) -> Vec<Entry> {
    let entries = map.targets().into_iter().map(|(key, target)| {
        let mut value = json!({ word: target.number });
        if let Some(name) = program_name(program, target.id) {
            value["prog"] = name.into();
        }
        Entry { key: Some(key.into()), label: None, held: Held::One(value), is_zero: false }
    });
    entries.collect()
}

fn program_entries(map: &Map, program: &Program) -> Vec<Entry> {
    let slots = (0..map.max_entries()).filter_map(|slot| Some((slot, map.program(slot)?)));
    let entries = slots.map(|(slot, id)| {
        let name = program_name(program, id).map_or(Json::Null, Json::String);
        Entry { key: Some(slot.into()), label: None, held: Held::One(name), is_zero: false }
    });
    entries.collect()
}

fn program_name(program: &Program, id: u32) -> Option<String> {
    Some(program.surroundings().programs.get(id)?.name.clone())
}

/// Everything in a queue or stack, in the order in which pushing it would make it again.
fn queue_entries(map: &Map) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut bytes = vec![0; map.value_size() as usize];
    while entries.len() < map.max_entries() as usize && map.pop(&mut bytes).is_ok() {
        let value = typed::value_to_json(map.def(), &bytes);
        entries.push(Entry { key: None, label: None, held: Held::One(value), is_zero: false });
    }
    if map.kind() == MapType::Stack {
        entries.reverse();
    }
    entries
}

/// The values of an element as the kernel gives them: one after the other, padded to 8 bytes.
fn split(def: &MapDef, value: &[u8], cpus: usize) -> Value {
    if !is_per_cpu(def.kind) {
        return Value::One(value.to_vec());
    }
    let size = def.value_size as usize;
    let stride = size.next_multiple_of(8).max(1);
    let values = value.chunks_exact(stride).take(cpus);
    Value::PerCpu(values.map(|chunk| chunk[..size].to_vec()).collect())
}
