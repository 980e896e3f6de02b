//! Stores what a file says into the maps of a program that the interpreter will run.

use std::path::Path;

use towpath_bpf::MapDef;
use towpath_daemon::mapfile::{Filling, parse_text, store};
use towpath_xdp::{Loader, Select};

use crate::error::CliError;
use crate::files;

/// Fills the maps of an object that the interpreter will run.
pub(crate) fn fill(path: &Path, loader: &Loader<'_>) -> Result<(), CliError> {
    let maps = loader.maps();
    let defs: Vec<MapDef> = maps.maps().iter().map(|map| map.def().clone()).collect();
    for Filling { map, steps } in read(path, &defs, maps.domain().workers())? {
        let Some(map) = maps.map(map) else { continue };
        for step in &steps {
            let program = |name: &str, _| program_id(loader, name);
            store(maps, &program, map, step)
                .map_err(|message| refused(path, &step.path, &message))?;
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

fn refused(path: &Path, place: &str, message: &str) -> CliError {
    CliError::Text { path: path.to_owned(), message: format!("{place}: {message}") }
}

/// Loads another program of the object and gives the number that maps know it by.
fn program_id(loader: &Loader<'_>, name: &str) -> Result<u32, String> {
    let program = loader.program(Select::Name(name)).map_err(|error| error.to_string())?;
    Ok(program.id())
}

const FILE_BYTES_MAX: u64 = 256 << 20;
