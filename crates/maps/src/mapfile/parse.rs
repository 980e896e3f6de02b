//! Parses a map file into elements to be stored in maps, and names every mistake by its path.

use serde_json::{Map as Object, Value as Json};
use towpath_bpf::MapDef;
use towpath_bpf::map::{Keys, Refers};
use towpath_bpf::program::DataSection;
use towpath_bpf::suggest;

use crate::Value;
use crate::typed::{self, TypedError};

/// One element to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its place in the file, e.g. `counters[3]`.
    pub path: String,
    /// `None` for kinds without keys.
    pub key: Option<Vec<u8>>,
    /// The stored value.
    pub stored: Stored,
}

/// The content of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// Bytes.
    Value(Value),
    /// A program by name, in a program array.
    Program(String),
    /// A number (ifindex, queue size) and the program that runs there, in a map of targets.
    Target(u32, Option<String>),
    /// Another map of the object, in a map of maps.
    Map(usize),
    /// A map of its own, in a map of maps.
    Inner(Vec<Step>),
}

/// A map to be filled.
#[derive(Debug, PartialEq, Eq)]
pub struct Filling {
    /// Index in the object's maps.
    pub map: usize,
    /// Its contents.
    pub steps: Vec<Step>,
}

/// Reads a whole document.
///
/// # Errors
///
/// Fails if the JSON is invalid, or with the first mistake, by its path.
pub fn parse_text(text: &str, maps: &[MapDef], cpus: usize) -> Result<Vec<Filling>, String> {
    let document: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Json::Object(document) = document else {
        return Err(format!("{}: expected an object of maps by name", kind_of(&document)));
    };
    parse(&document, maps, cpus)
}

/// Reads an object of maps by name.
///
/// # Errors
///
/// Fails with the first mistake, by its path.
pub fn parse(
    document: &Object<String, Json>,
    maps: &[MapDef],
    cpus: usize,
) -> Result<Vec<Filling>, String> {
    let parser = Parser { maps, cpus };
    let fillings = document.iter().map(|(name, contents)| {
        let found = maps.iter().position(|map| map.name == *name);
        let Some(map) = found else {
            let names = maps.iter().map(|map| map.name.as_str());
            return Err(format!("no map {name:?}{}", suggest::among(name, names)));
        };
        Ok(Filling { map, steps: parser.contents(&maps[map], name, contents)? })
    });
    fillings.collect()
}

/// Reads one element of a map: its key, and a value if there is one to store.
///
/// # Errors
///
/// Fails with the first mistake, by its path: `key` or `value`.
pub fn parse_element(
    map: &MapDef,
    key: &Json,
    value: Option<&Json>,
    cpus: usize,
) -> Result<(Option<Vec<u8>>, Option<Stored>), String> {
    let parser = Parser { maps: &[], cpus };
    let key = match map.kind.keys() == Keys::None {
        true => None,
        false => Some(parse_key(map, "key", key)?),
    };
    let stored = value.map(|value| parser.stored(map, "value", value)).transpose()?;
    Ok((key, stored))
}

#[derive(Clone, Copy)]
struct Parser<'a> {
    maps: &'a [MapDef],
    cpus: usize,
}

impl Parser<'_> {
    /// The contents of a map.
    fn contents(self, map: &MapDef, path: &str, json: &Json) -> Result<Vec<Step>, String> {
        if map.section.is_some_and(DataSection::is_constant) {
            return Err(format!("{path}: read-only data; set its variables with --set"));
        }
        match json {
            Json::Array(list) if map.kind.keys() == Keys::None => {
                self.values_in_a_row(map, path, list)
            }
            Json::Array(list) if list.iter().all(is_entry) => self.entries(map, path, list),
            Json::Array(list) if map.kind.keys() == Keys::Index => {
                self.values_by_index(map, path, list)
            }
            Json::Object(object) if map.section.is_some() => {
                let value = self.bytes_of_value(map, path, &Json::Object(object.clone()))?;
                let key = Some(0_u32.to_le_bytes().to_vec());
                Ok(vec![Step { path: path.to_owned(), key, stored: Stored::Value(value) }])
            }
            Json::Object(object) if map.kind.keys() != Keys::None => self.by_key(map, path, object),
            other => Err(format!(
                "{path}: {}, expected {}",
                kind_of(other),
                if map.kind.keys() == Keys::None {
                    "a list of values"
                } else {
                    "a list of {\"key\": ..., \"value\": ...}"
                }
            )),
        }
    }

    fn values_in_a_row(self, map: &MapDef, path: &str, list: &[Json]) -> Result<Vec<Step>, String> {
        let steps = list.iter().enumerate().map(|(index, json)| {
            let path = format!("{path}[{index}]");
            let stored = Stored::Value(self.bytes_of_value(map, &path, json)?);
            Ok(Step { path, key: None, stored })
        });
        steps.collect()
    }

    fn values_by_index(self, map: &MapDef, path: &str, list: &[Json]) -> Result<Vec<Step>, String> {
        let mut steps = Vec::with_capacity(list.len());
        for (index, json) in list.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if index >= map.max_entries as usize {
                return Err(format!("{path}: the map has {} entries", map.max_entries));
            }
            let key = Some((index as u32).to_le_bytes().to_vec());
            steps.push(Step { stored: self.stored(map, &path, json)?, path, key });
        }
        Ok(steps)
    }

    /// `[{"key": K, "value": V}, ...]`
    fn entries(self, map: &MapDef, path: &str, list: &[Json]) -> Result<Vec<Step>, String> {
        let steps = list.iter().enumerate().map(|(index, entry)| {
            let path = format!("{path}[{index}]");
            let Json::Object(entry) = entry else { return Err(format!("{path}: not an entry")) };
            self.entry(map, path, entry)
        });
        steps.collect()
    }

    fn entry(
        self,
        map: &MapDef,
        path: String,
        entry: &Object<String, Json>,
    ) -> Result<Step, String> {
        const NAMES: [&str; 3] = ["key", "value", "values"];
        if let Some(unknown) = entry.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(format!("{path}: unknown {unknown:?}{}", suggest::among(unknown, NAMES)));
        }
        let Some(key) = entry.get("key") else { return Err(format!("{path}: no \"key\"")) };
        let key = parse_key(map, &format!("{path}.key"), key)?;
        let stored = match (entry.get("value"), entry.get("values")) {
            (Some(value), None) => self.stored(map, &format!("{path}.value"), value)?,
            (None, Some(values)) => {
                Stored::Value(self.per_cpu(map, &format!("{path}.values"), values)?)
            }
            (Some(_), Some(_)) => return Err(format!("{path}: both \"value\" and \"values\"")),
            (None, None) => return Err(format!("{path}: no \"value\"")),
        };
        Ok(Step { path, key: Some(key), stored })
    }

    /// `{"K": V, ...}`: keys are numbers or `hex:` in the quotes that JSON wants.
    fn by_key(
        self,
        map: &MapDef,
        path: &str,
        object: &Object<String, Json>,
    ) -> Result<Vec<Step>, String> {
        let steps = object.iter().map(|(name, json)| {
            let path = format!("{path}[{name:?}]");
            let key = serde_json::from_str::<Json>(name)
                .ok()
                .filter(|key| !key.is_string())
                .unwrap_or_else(|| Json::String(name.clone()));
            let key = parse_key(map, &path, &key)?;
            Ok(Step { stored: self.stored(map, &path, json)?, path, key: Some(key) })
        });
        steps.collect()
    }

    fn stored(self, map: &MapDef, path: &str, json: &Json) -> Result<Stored, String> {
        match map.kind.values().refers() {
            Some(Refers::Program) => match json {
                Json::String(name) => Ok(Stored::Program(name.clone())),
                other => Err(format!("{path}: {}, expected a program's name", kind_of(other))),
            },
            Some(Refers::Map) => self.inner_map(map, path, json),
            Some(Refers::Device) => target(path, json, "ifindex"),
            Some(Refers::Cpu) => target(path, json, "qsize"),
            Some(Refers::Socket) => target(path, json, "socket"),
            None => Ok(Stored::Value(self.bytes_of_value(map, path, json)?)),
        }
    }

    fn inner_map(self, map: &MapDef, path: &str, json: &Json) -> Result<Stored, String> {
        if let Json::String(name) = json {
            let found = self.maps.iter().position(|map| map.name == *name);
            let names = self.maps.iter().map(|map| map.name.as_str());
            return found
                .map(Stored::Map)
                .ok_or_else(|| format!("{path}: no map {name:?}{}", suggest::among(name, names)));
        }
        let Some(inner) = &map.inner else {
            return Err(format!("{path}: the object does not define the inner maps"));
        };
        self.contents(inner, path, json).map(Stored::Inner)
    }

    fn bytes_of_value(self, map: &MapDef, path: &str, json: &Json) -> Result<Value, String> {
        let bytes = parse_value(map, path, json)?;
        // One value for a per-CPU element is the value of every CPU, as bpftool has it.
        Ok(if map.kind.is_percpu() {
            Value::PerCpu(vec![bytes; self.cpus])
        } else {
            Value::One(bytes)
        })
    }

    /// `[{"cpu": N, "value": V}, ...]`; CPUs that are not named get zeroes.
    fn per_cpu(self, map: &MapDef, path: &str, json: &Json) -> Result<Value, String> {
        if !map.kind.is_percpu() {
            return Err(format!("{path}: only per-CPU maps have one value for each CPU"));
        }
        let Json::Array(list) = json else {
            return Err(format!("{path}: {}, expected a list", kind_of(json)));
        };
        let mut values = vec![vec![0; map.value_size as usize]; self.cpus];
        for (index, entry) in list.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let (cpu, value) = (entry.get("cpu").and_then(Json::as_u64), entry.get("value"));
            let (Some(cpu), Some(value)) = (cpu, value) else {
                return Err(format!("{path}: expected {{\"cpu\": N, \"value\": ...}}"));
            };
            let bytes = parse_value(map, &format!("{path}.value"), value)?;
            let slot = usize::try_from(cpu).ok().and_then(|cpu| values.get_mut(cpu));
            let Some(slot) = slot else {
                let count = self.cpus;
                return Err(format!("{path}.cpu: {cpu}, but there are {count} (see --cpus)"));
            };
            *slot = bytes;
        }
        Ok(Value::PerCpu(values))
    }
}

/// `3`, or `{"ifindex": 3, "prog": "name"}`.
fn target(path: &str, json: &Json, word: &'static str) -> Result<Stored, String> {
    let wanted = || format!("{path}: expected a number, or {{\"{word}\": N, \"prog\": NAME}}");
    let number = |json: &Json| json.as_u64().and_then(|number| u32::try_from(number).ok());
    if let Json::Object(object) = json {
        let known = [word, "prog"];
        if let Some(unknown) = object.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("{path}: unknown {unknown:?}{}", suggest::among(unknown, known)));
        }
        let first = object.get(word).and_then(number).ok_or_else(wanted)?;
        let program = match object.get("prog") {
            None | Some(Json::Null) => None,
            Some(Json::String(name)) => Some(name.clone()),
            Some(_) => return Err(format!("{path}.prog: expected a program's name")),
        };
        return Ok(Stored::Target(first, program));
    }
    number(json).map(|number| Stored::Target(number, None)).ok_or_else(wanted)
}

fn is_entry(json: &Json) -> bool {
    let Json::Object(object) = json else { return false };
    object.contains_key("key") || object.contains_key("values")
}

/// The kind of a JSON value, in words.
fn kind_of(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// The bytes of a key that the file has at `path`.
fn parse_key(map: &MapDef, path: &str, json: &Json) -> Result<Vec<u8>, String> {
    typed::key_from_json(map, json).map_err(|error| problem(path, &error))
}

/// The bytes of a value that the file has at `path`.
fn parse_value(map: &MapDef, path: &str, json: &Json) -> Result<Vec<u8>, String> {
    typed::value_from_json(map, json).map_err(|error| problem(path, &error))
}

/// The error's own path starts at the key or value; what it starts with is in `path` already.
fn problem(path: &str, error: &TypedError) -> String {
    let below = error.path.trim_start_matches("key").trim_start_matches("value");
    format!("{path}{below}: {}", error.problem)
}
