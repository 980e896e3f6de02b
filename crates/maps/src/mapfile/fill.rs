//! Stores the contents of a map file in maps.

use crate::{CreateOptions, Map, MapSet, Value};
use towpath_bpf::map::Values;
use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};

use super::parse::{Step, Stored};

/// Finds, or loads, a program by name for a map of some kind.
pub type Programs<'a> = &'a dyn Fn(&str, MapType) -> Result<u32, String>;

/// Stores an element. `siblings` are the maps of the object, which maps of maps name by index;
/// `program` returns the number by which a map of this kind knows a program of that name.
///
/// # Errors
///
/// Fails with the map's error, or with the reason why a program or map is missing.
pub fn store(
    siblings: &MapSet,
    program: Programs<'_>,
    map: &Map,
    step: &Step,
) -> Result<(), String> {
    let key = step.key.as_deref().unwrap_or_default();
    match &step.stored {
        Stored::Value(value) => map.user().update(key, value, 0).map_err(said_map),
        Stored::Program(name) => {
            let value = Value::One(program(name, map.kind())?.to_le_bytes().to_vec());
            map.user().update(key, &value, 0).map_err(said_map)
        }
        Stored::Target(number, name) => {
            let runs = name.as_deref().map(|name| program(name, map.kind())).transpose()?;
            let value = Value::One(target_bytes(map.def(), *number, runs.unwrap_or(0)));
            map.user().update(key, &value, 0).map_err(said_map)
        }
        Stored::Map(index) => {
            let Some(inner) = siblings.map(*index) else {
                return Err("the object has no such map".to_owned());
            };
            map.insert_inner(key, inner, 0).map_err(said_map)
        }
        Stored::Inner(steps) => {
            let Some(template) = &map.def().inner else {
                return Err("the object does not define the inner maps".to_owned());
            };
            let options = CreateOptions::new(map.domain().clone());
            let inner = Map::create(template, &options).map_err(|error| error.to_string())?;
            for step in steps {
                store(siblings, program, &inner, step)
                    .map_err(|error| format!("{}: {error}", step.path))?;
            }
            map.insert_inner(key, &inner, 0).map_err(said_map)
        }
    }
}

/// `struct bpf_devmap_val` and `bpf_cpumap_val`, or the number alone in a map of 4-byte values.
fn target_bytes(def: &MapDef, number: u32, program: u32) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    if def.kind.values() != Values::Socket && def.value_size == 8 {
        bytes.extend(program.to_le_bytes());
    }
    bytes
}

fn said_map(errno: Errno) -> String {
    format!("the map refuses it: {errno}")
}
