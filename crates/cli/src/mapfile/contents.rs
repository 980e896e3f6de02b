//! Contents of maps of this process or the running kernel, element by element: of a full map of a
//! million elements, only the keys are in memory a second time.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use towpath_bpf::MapDef;
use towpath_bpf::map::{Keys, Values};
use towpath_bpf::program::{DataSection, MapType};
use towpath_bpf::suggest;
use towpath_maps::{Map, Value, typed};
use towpath_xdp::Program;

use crate::error::CliError;

/// The contents of an object's maps.
#[derive(Debug)]
pub(crate) struct Contents {
    maps: Vec<MapContents>,
}

/// The contents of one map.
#[derive(Debug)]
pub(super) struct MapContents {
    def: MapDef,
    source: Source,
}

/// Source of the elements.
#[derive(Debug)]
enum Source {
    Ours(Arc<Map>, Program),
    /// Elements copied out of the kernel before its map was closed.
    Kernel(Vec<(Vec<u8>, Value)>),
}

/// One element.
#[derive(Debug)]
pub(super) struct Entry {
    /// Key; `None` in a queue or stack.
    pub(super) key: Option<Json>,
    /// Key as people write it, if that differs from the JSON.
    pub(super) label: Option<String>,
    pub(super) held: Held,
}

/// Value of an element.
#[derive(Debug)]
pub(super) enum Held {
    One(Json),
    /// One value for each CPU.
    PerCpu(Vec<Json>),
    Map(Box<MapContents>),
}

/// An element that is formatted on demand: most elements are only counted.
pub(super) struct Element<'a> {
    /// Whether all bytes are zero, as in an element of an array that was never written.
    pub(super) is_zero: bool,
    /// Formats the element.
    pub(super) read: &'a dyn Fn() -> Entry,
}

/// Callback for each element; a break ends the visit.
pub(super) type Visit<'a> = &'a mut dyn FnMut(Element<'_>) -> ControlFlow<()>;

impl Contents {
    /// Contents of the maps of a program in this process. Reading queues and stacks empties them.
    pub(crate) fn of(program: &Program, names: &[String]) -> Self {
        let maps = program.maps().maps().iter().filter(|map| is_shown(map.def(), names));
        Contents { maps: maps.map(|map| MapContents::ours(map, program)).collect() }
    }

    /// Contents of maps in the running kernel.
    pub(crate) fn of_kernel(
        defs: &[MapDef],
        maps: &towpath_kernel::MapSet,
        cpus: usize,
        names: &[String],
    ) -> Self {
        let pairs = defs.iter().zip(maps.maps()).filter(|(def, _)| is_shown(def, names));
        let contents = pairs.map(|(def, map)| {
            let mut entries = map.entries(def.max_entries as usize).unwrap_or_default();
            sort(def, &mut entries, |(key, _value)| key);
            let entries = entries.into_iter().map(|(key, value)| (key, split(def, &value, cpus)));
            MapContents { def: def.clone(), source: Source::Kernel(entries.collect()) }
        });
        Contents { maps: contents.collect() }
    }

    pub(super) fn maps(&self) -> &[MapContents] {
        &self.maps
    }
}

/// Whether a map is shown: if `names` is empty all but constants, which the object file has
/// already.
fn is_shown(def: &MapDef, names: &[String]) -> bool {
    if names.is_empty() {
        !def.section.is_some_and(DataSection::is_constant)
    } else {
        names.contains(&def.name)
    }
}

/// Fails if a name has no map, so that a long run does not start in vain.
pub(crate) fn check_names(names: &[String], maps: &[MapDef]) -> Result<(), CliError> {
    for name in names {
        if !maps.iter().any(|map| map.name == *name) {
            let hint = suggest::among(name, maps.iter().map(|map| map.name.as_str()));
            return Err(CliError::NoMap { name: name.clone(), hint });
        }
    }
    Ok(())
}

impl MapContents {
    fn ours(map: &Arc<Map>, program: &Program) -> Self {
        let source = Source::Ours(Arc::clone(map), program.clone());
        MapContents { def: map.def().clone(), source }
    }

    pub(super) fn name(&self) -> &str {
        &self.def.name
    }

    pub(super) fn kind(&self) -> MapType {
        self.def.kind
    }

    pub(super) fn max_entries(&self) -> u32 {
        self.def.max_entries
    }

    /// Visits the elements: of a hash map in the order of their keys, else in the map's order.
    pub(super) fn for_each(&self, visit: Visit<'_>) {
        let (map, program) = match &self.source {
            Source::Ours(map, program) => (map, program),
            Source::Kernel(entries) => {
                let mut entries = entries.iter();
                let _end = entries.try_for_each(|(key, value)| plain(&self.def, key, value, visit));
                return;
            }
        };
        match map.kind().values() {
            Values::Map => inner_maps(map, program, visit),
            Values::Device => targets(map, "ifindex", program, visit),
            Values::Cpu => targets(map, "qsize", program, visit),
            Values::Program => programs(map, program, visit),
            Values::Queued => queue(map, visit),
            Values::Bytes
            | Values::PerCpu
            | Values::Ranked
            | Values::Packets
            | Values::Members
            | Values::Records
            | Values::Pages
            | Values::Events
            | Values::Socket
            | Values::Host(_) => {
                let user = map.user();
                if map.kind().keys() == Keys::Bytes {
                    let _end = keys(map).iter().try_for_each(|key| match user.lookup(key, 0) {
                        Ok(value) => plain(&self.def, key, &value, visit),
                        Err(_gone) => ControlFlow::Continue(()),
                    });
                    return;
                }
                let mut entries = user.entries();
                let _end =
                    entries.try_for_each(|(key, value)| plain(&self.def, &key, &value, visit));
            }
        }
    }
}

/// Keys of a map, in the order in which they are shown.
fn keys(map: &Map) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = map.user().keys().collect();
    sort(map.def(), &mut keys, |key| key);
    keys
}

/// Sorts elements of a hash map by their formatted keys: the map's own order changes each time it
/// is made.
fn sort<T>(def: &MapDef, elements: &mut [T], key: impl Fn(&T) -> &[u8]) {
    if def.kind.keys() == Keys::Bytes {
        elements.sort_by_cached_key(|element| Said(typed::key_to_json(def, key(element))));
    }
}

/// A formatted key, ordered as people read it.
#[derive(PartialEq, Eq)]
struct Said(Json);

impl Ord for Said {
    fn cmp(&self, other: &Said) -> Ordering {
        typed::key_order(&self.0, &other.0)
    }
}

impl PartialOrd for Said {
    fn partial_cmp(&self, other: &Said) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn plain(def: &MapDef, key: &[u8], value: &Value, visit: Visit<'_>) -> ControlFlow<()> {
    let read = || {
        let mut values: Vec<Json> =
            value.cpus().iter().map(|bytes| typed::value_to_json(def, bytes)).collect();
        Entry {
            key: Some(typed::key_to_json(def, key)),
            label: typed::prefix_to_text(key).filter(|_| def.kind.keys() == Keys::Prefix),
            held: match def.kind.is_percpu() {
                true => Held::PerCpu(values),
                false => Held::One(values.pop().unwrap_or(Json::Null)),
            },
        }
    };
    let is_zero = value.cpus().iter().all(|bytes| bytes.iter().all(|byte| *byte == 0));
    visit(Element { is_zero, read: &read })
}

fn special(visit: Visit<'_>, read: &dyn Fn() -> Entry) -> ControlFlow<()> {
    visit(Element { is_zero: false, read })
}

fn keyed(key: Json, held: Held) -> Entry {
    Entry { key: Some(key), label: None, held }
}

fn inner_maps(map: &Map, program: &Program, visit: Visit<'_>) {
    let _end = keys(map).iter().try_for_each(|key| {
        let Some(inner) = map.inner(key) else { return ControlFlow::Continue(()) };
        special(visit, &|| {
            let inner = Box::new(MapContents::ours(&inner, program));
            keyed(typed::key_to_json(map.def(), key), Held::Map(inner))
        })
    });
}

fn targets(map: &Map, word: &str, program: &Program, visit: Visit<'_>) {
    let _end = map.targets().into_iter().try_for_each(|(key, target)| {
        special(visit, &|| {
            let mut value = json!({ word: target.number });
            if let Some(name) = program_name(program, target.id) {
                value["prog"] = name.into();
            }
            keyed(key.into(), Held::One(value))
        })
    });
}

fn programs(map: &Map, program: &Program, visit: Visit<'_>) {
    let mut slots = (0..map.max_entries()).filter_map(|slot| Some((slot, map.program(slot)?)));
    let _end = slots.try_for_each(|(slot, id)| {
        special(visit, &|| {
            let name = program_name(program, id).map_or(Json::Null, Json::String);
            keyed(slot.into(), Held::One(name))
        })
    });
}

fn program_name(program: &Program, id: u32) -> Option<String> {
    Some(program.surroundings().programs.get(id)?.name.clone())
}

/// Pops every element of a queue or stack, and visits them in the order in which pushing them would
/// restore it.
fn queue(map: &Map, visit: Visit<'_>) {
    let mut values = Vec::new();
    let mut bytes = vec![0; map.value_size() as usize];
    while values.len() < map.max_entries() as usize && map.pop(&mut bytes).is_ok() {
        values.push(typed::value_to_json(map.def(), &bytes));
    }
    if map.kind() == MapType::Stack {
        values.reverse();
    }
    let _end = values.iter().try_for_each(|value: &Json| {
        special(visit, &|| Entry { key: None, label: None, held: Held::One(value.clone()) })
    });
}

/// Values of an element from the kernel's form: one after the other, padded to 8 bytes.
fn split(def: &MapDef, value: &[u8], cpus: usize) -> Value {
    if !def.kind.is_percpu() {
        return Value::One(value.to_vec());
    }
    let size = def.value_size as usize;
    let stride = size.next_multiple_of(8).max(1);
    let values = value.chunks_exact(stride).take(cpus);
    Value::PerCpu(values.map(|chunk| chunk[..size].to_vec()).collect())
}
