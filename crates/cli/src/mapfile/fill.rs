//! Stores the contents of a file into the maps of a program that Towpath will run.

use std::path::Path;

use serde_json::{Map as Object, Value as Json};
use towpath_bpf::MapDef;
use towpath_maps::mapfile::{Filling, parse, parse_text, store};
use towpath_xdp::{Loader, Select};

use crate::error::CliError;
use crate::files;

/// Fills the maps of an object that Towpath will run.
pub(crate) fn fill(path: &Path, loader: &Loader<'_>) -> Result<(), CliError> {
    let fillings = read(path, &loader.maps().defs(), loader.maps().domain().workers())?;
    store_all(loader, &fillings)
        .map_err(|message| CliError::Text { path: path.to_owned(), message })
}

/// Fills them with contents that were read before.
pub(crate) fn fill_from(
    contents: &Object<String, Json>,
    loader: &Loader<'_>,
) -> Result<(), String> {
    let fillings = parse(contents, &loader.maps().defs(), loader.maps().domain().workers())?;
    store_all(loader, &fillings)
}

fn store_all(loader: &Loader<'_>, fillings: &[Filling]) -> Result<(), String> {
    let maps = loader.maps();
    for Filling { map, steps } in fillings {
        let Some(map) = maps.map(*map) else { continue };
        for step in steps {
            let program = |name: &str, _| program_id(loader, name);
            store(maps, &program, map, step)
                .map_err(|message| format!("{}: {message}", step.path))?;
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
    parse_text(&text, defs, cpus).map_err(refused)
}

/// Loads another program of the object and gives the number by which maps refer to it.
fn program_id(loader: &Loader<'_>, name: &str) -> Result<u32, String> {
    let program = loader.program(Select::Name(name)).map_err(|error| error.to_string())?;
    Ok(program.id())
}

const FILE_BYTES_MAX: u64 = 256 << 20;
