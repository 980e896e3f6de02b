//! Stores what a file says into the maps of a program that the interpreter will run.

use std::path::Path;

use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};
use towpath_maps::{CreateOptions, Map, Value};
use towpath_xdp::{Loader, Select};

use super::parse::{Filling, Step, Stored, parse};
use crate::error::CliError;
use crate::files;

/// Fills the maps of an object that the interpreter will run.
pub(crate) fn fill(path: &Path, loader: &Loader<'_>) -> Result<(), CliError> {
    let maps = loader.maps();
    let defs: Vec<MapDef> = maps.maps().iter().map(|map| map.def().clone()).collect();
    for Filling { map, steps } in read(path, &defs, maps.domain().workers())? {
        let Some(map) = maps.map(map) else { continue };
        for step in &steps {
            store(loader, map, step).map_err(|message| refused(path, &step.path, &message))?;
        }
    }
    Ok(())
}

/// Reads a file of map contents for these maps.
pub(crate) fn read(path: &Path, defs: &[MapDef], cpus: usize) -> Result<Vec<Filling>, CliError> {
    let refused = |message: String| CliError::Text { path: path.to_owned(), message };
    let bytes = files::read(path, "map contents", FILE_BYTES_MAX)?;
    let text = String::from_utf8(bytes)
        .map_err(|error| refused(format!("not text: byte {}", error.utf8_error().valid_up_to())))?;
    parse(&text, defs, cpus).map_err(refused)
}

fn refused(path: &Path, place: &str, message: &str) -> CliError {
    CliError::Text { path: path.to_owned(), message: format!("{place}: {message}") }
}

fn store(loader: &Loader<'_>, map: &Map, step: &Step) -> Result<(), String> {
    let key = step.key.as_deref().unwrap_or_default();
    match &step.stored {
        Stored::Value(value) if step.key.is_none() => map.push(value.bytes(), 0).map_err(said_map),
        Stored::Value(value) => map.user().update(key, value, 0).map_err(said_map),
        Stored::Program(name) => {
            let value = Value::One(program_id(loader, name)?.to_le_bytes().to_vec());
            map.user().update(key, &value, 0).map_err(said_map)
        }
        Stored::Target(number, program) => {
            let program = program.as_deref().map(|name| program_id(loader, name)).transpose()?;
            let program = program.unwrap_or(0);
            let value = Value::One(target_bytes(map.def(), *number, program));
            map.user().update(key, &value, 0).map_err(said_map)
        }
        Stored::Map(index) => {
            let Some(inner) = loader.maps().map(*index) else {
                return Err("the object has no such map".to_owned());
            };
            map.insert_inner(key, inner, 0).map_err(said_map)
        }
        Stored::Inner(steps) => {
            let Some(template) = &map.def().inner else {
                return Err("the object does not say what the inner maps are".to_owned());
            };
            let options = CreateOptions::new(map.domain().clone());
            let inner = Map::create(template, &options).map_err(|error| error.to_string())?;
            for step in steps {
                store(loader, &inner, step).map_err(|error| format!("{}: {error}", step.path))?;
            }
            map.insert_inner(key, &inner, 0).map_err(said_map)
        }
    }
}

/// `struct bpf_devmap_val` and `bpf_cpumap_val`, or the number alone in a map of 4-byte values.
fn target_bytes(def: &MapDef, number: u32, program: u32) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    if def.kind != MapType::Xskmap && def.value_size == 8 {
        bytes.extend(program.to_le_bytes());
    }
    bytes
}

/// Loads another program of the object and gives the number that maps know it by.
fn program_id(loader: &Loader<'_>, name: &str) -> Result<u32, String> {
    let program = loader.program(Select::Name(name)).map_err(|error| error.to_string())?;
    Ok(program.id())
}

fn said_map(errno: Errno) -> String {
    format!("the map refuses it: {errno}")
}

const FILE_BYTES_MAX: u64 = 256 << 20;
