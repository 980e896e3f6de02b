//! Object files by hash, as states refer to them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;
use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};
use towpath_bpf::Object;
use towpath_document::{Problem, unreadable};
use towpath_host::tables::{self, HostState};

use crate::model::globals::{self, hex, parse_hex};
use crate::model::state::ProgramState;

/// Contents of object files that a state refers to, or that were uploaded.
#[derive(Debug, Default)]
pub struct ObjectFiles {
    by_hash: Mutex<BTreeMap<String, Arc<[u8]>>>,
}

impl ObjectFiles {
    /// Reads a file, keeps its contents, and returns their SHA-256.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or is not an object file.
    pub fn open(&self, path: &Path) -> Result<String, String> {
        let bytes = read(path, OBJECT_BYTES_MAX).map_err(|error| unreadable(path, &error))?;
        self.add(&bytes, &path.display().to_string())
    }

    /// Keeps uploaded contents and returns their SHA-256.
    ///
    /// # Errors
    ///
    /// Fails if the contents are not an object file.
    pub fn add(&self, bytes: &[u8], name: &str) -> Result<String, String> {
        Object::open(bytes, name).map_err(|error| format!("{name}: {error}"))?;
        let hash = sha256(bytes);
        self.by_hash.lock().entry(hash.clone()).or_insert_with(|| bytes.into());
        Ok(hash)
    }

    /// The contents with this SHA-256.
    pub fn bytes(&self, sha256: &str) -> Option<Arc<[u8]>> {
        self.by_hash.lock().get(sha256).cloned()
    }

    /// Parses the object file of a wanted program and sets its global variables. Also returns the
    /// index of the program in the file.
    ///
    /// # Errors
    ///
    /// Fails if the contents are missing, or lack the wanted program or variables.
    pub fn program(&self, state: &ProgramState) -> Result<(Object, usize), String> {
        let bytes = self.bytes(&state.sha256).ok_or_else(|| {
            format!("the object file {} ({}) is not there", state.object, &state.sha256[..12])
        })?;
        let mut object = Object::open(&bytes, &state.object).map_err(|error| error.to_string())?;
        for (name, value) in &state.set {
            let parsed = globals::parse_value(value)
                .ok_or_else(|| format!("set {name}: expected an integer, true, false or hex:.."))?;
            object.set_global(name, &parsed).map_err(|error| error.to_string())?;
        }
        for (name, &entries) in &state.map_sizes {
            object.set_map_size(name, entries).map_err(|error| format!("map_sizes: {error}"))?;
        }
        let (name, section) = (state.program.as_deref(), state.section.as_deref());
        let index = object.select(name, section).map_err(|error| error.to_string())?;
        Ok((object, index))
    }

    /// Loads the object files of all programs that are missing here: from `objects`, in hex by
    /// their hashes, or from their paths.
    ///
    /// # Errors
    ///
    /// Fails with the first file that is not found, or has another hash.
    pub(crate) fn find(
        &self,
        programs: &[ProgramState],
        carried: &BTreeMap<String, String>,
    ) -> Result<(), Problem> {
        for (hash, text) in carried {
            let path = format!("objects.{hash}");
            let said = |message: String| Problem::new(path.clone(), message);
            let bytes = parse_hex(text).ok_or_else(|| said("expected bytes in hex".to_owned()))?;
            let is = self.add(&bytes, hash).map_err(said)?;
            if is != *hash {
                return Err(said(format!("its SHA-256 is {is}")));
            }
        }
        for (index, program) in programs.iter().enumerate() {
            let hash = &program.sha256;
            if self.bytes(hash).is_some() {
                continue;
            }
            let said = |why: String| {
                let message = format!(
                    "the object file {hash} is neither in `objects` nor at its path: {why}"
                );
                Problem::new(format!("programs[{index}].object"), message)
            };
            let is = self.open(Path::new(&program.object)).map_err(said)?;
            if is != *hash {
                return Err(said(format!("{} has other contents", program.object)));
            }
        }
        Ok(())
    }

    /// Drops all contents but those with the given hashes.
    pub fn keep_only(&self, hashes: &[&str]) {
        self.by_hash.lock().retain(|hash, _| hashes.contains(&hash.as_str()));
    }

    /// Total size of the contents in bytes.
    pub fn size(&self) -> usize {
        self.by_hash.lock().values().map(|bytes| bytes.len()).sum()
    }
}

/// SHA-256 in hex.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Reads a regular file of at most `limit` bytes. Other kinds are refused, since reading a FIFO
/// could block.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("this is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("larger than {limit} bytes")));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `limit` bytes; `None` if it does not exist.
pub(crate) fn read_if_there(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    if_there(read(path, limit))
}

/// Turns the error for a file that does not exist into `None`.
pub(crate) fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Reads a text file of at most `limit` bytes; the error begins with its path.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, String> {
    let bytes = read(path, limit).map_err(|error| unreadable(path, &error))?;
    String::from_utf8(bytes).map_err(|_not_text| format!("{}: it is not text", path.display()))
}

/// Size limit of object files in bytes: larger than any object that a compiler makes of one
/// program.
pub(crate) const OBJECT_BYTES_MAX: u64 = 64 << 20;

/// Reads a file of host tables; the error begins with its path.
pub(crate) fn load_tables(path: &Path) -> Result<HostState, String> {
    let text = read_text(path, tables::FILE_BYTES_MAX)?;
    tables::parse(&text).map_err(|message| format!("{}: {message}", path.display()))
}

pub(crate) fn read_maps(path: &Path) -> Result<Map<String, Json>, String> {
    let maps = serde_json::from_str(&read_text(path, MAPS_BYTES_MAX)?);
    maps.map_err(|error| format!("{}: {error}", path.display()))
}
const MAPS_BYTES_MAX: u64 = 64 << 20;
