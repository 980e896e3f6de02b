//! What outlives the daemon: a directory with what it was asked for beyond its configuration file.
//!
//! ```text
//! DIR/state          the document: what is wanted, pins, what users stored in maps
//! DIR/changes.N      what users stored since document N was written, a line each
//! DIR/objects/HASH   object files
//! DIR/maps/HASH      contents of pinned maps
//! DIR/aside-N/       what could not be read
//! ```
//!
//! Files are written beside their place and renamed. The document names all others, so that its
//! rename is the moment in which everything becomes so at once.

mod contents;
mod document;
pub mod journal;
mod keeper;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use towpath_maps::Map;

use self::journal::{Journal, Line};
use crate::file::{ObjectFiles, read, sha256};

pub use contents::{ContentsError, load as load_contents};
pub(crate) use contents::{can_be_saved, why_not_saved};
pub use document::{Change, Document, DocumentError, SavedMap};
pub(crate) use keeper::Keeper;

/// The directory, ours alone while this lives.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    _lock: File,
    /// Of the document that is there.
    serial: u64,
    journal: Option<Journal>,
    objects: BTreeSet<String>,
}

impl Store {
    /// Opens a directory, or makes it. Gives what was saved there, and what could not be read,
    /// which is kept aside.
    ///
    /// # Errors
    ///
    /// It can't be used, or another daemon uses it.
    pub(crate) fn open(dir: &Path) -> Result<(Store, Option<Document>, Vec<String>), String> {
        let said = |error: io::Error| format!("[state] {}: {error}", dir.display());
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for dir in [dir.to_owned(), dir.join(OBJECTS), dir.join(MAPS)] {
            builder.create(dir).map_err(said)?;
        }
        let lock = File::create(dir.join("lock")).map_err(said)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_taken| format!("[state] {}: another daemon uses it", dir.display()))?;
        let mut store = Store {
            dir: dir.to_owned(),
            _lock: lock,
            serial: 0,
            journal: None,
            objects: BTreeSet::new(),
        };
        let mut troubles = Vec::new();
        let document = match store.load(&mut troubles) {
            Ok(document) => document,
            Err(why) => {
                let aside = store.set_aside().map_err(said)?;
                troubles.push(format!(
                    "{}: {why}: the daemon starts with its configuration alone; what there was is \
                     kept in {}",
                    dir.join(STATE).display(),
                    aside.display()
                ));
                None
            }
        };
        store.serial = document.as_ref().map_or(0, |document| document.serial);
        Ok((store, document, troubles))
    }

    /// The document, with what the journal has beyond it.
    fn load(&self, troubles: &mut Vec<String>) -> Result<Option<Document>, String> {
        let bytes = read_if_there(&self.dir.join(STATE), DOCUMENT_BYTES_MAX);
        let Some(bytes) = bytes.map_err(|error| error.to_string())? else { return Ok(None) };
        let mut document = Document::parse(&bytes).map_err(|error| error.to_string())?;
        let path = self.changes(document.serial);
        let said = |error: io::Error| format!("{}: {error}", path.display());
        let (lines, is_damaged) = journal::load(&path).map_err(said)?;
        if is_damaged {
            let aside = path.with_extension("damaged");
            fs::copy(&path, &aside).map_err(said)?;
            let aside = aside.display();
            troubles.push(format!("{}: damaged in between: kept as {aside}", path.display()));
        }
        for Line { map, change } in lines {
            if let Some(saved) = document.maps.iter_mut().find(|saved| saved.id == map) {
                saved.changes.push(change);
            }
        }
        Ok(Some(document))
    }

    /// Puts everything away that there is.
    fn set_aside(&self) -> io::Result<PathBuf> {
        let aside = self.free_aside();
        fs::create_dir(&aside)?;
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let text = name.to_string_lossy();
            if text != "lock" && !text.starts_with("aside-") {
                fs::rename(self.dir.join(&name), aside.join(&name))?;
            }
        }
        for name in [OBJECTS, MAPS] {
            fs::create_dir(self.dir.join(name))?;
        }
        Ok(aside)
    }

    /// Copies everything away that there is.
    pub(crate) fn copy_aside(&self) -> io::Result<PathBuf> {
        let aside = self.free_aside();
        fs::create_dir(&aside)?;
        copy_files(&self.dir, &aside)?;
        for name in [OBJECTS, MAPS] {
            fs::create_dir(aside.join(name))?;
            copy_files(&self.dir.join(name), &aside.join(name))?;
        }
        Ok(aside)
    }

    fn free_aside(&self) -> PathBuf {
        let mut all = (1..).map(|number: u32| self.dir.join(format!("aside-{number}")));
        all.find(|path| !path.exists()).unwrap_or_default()
    }

    /// Gives the objects of a document to those who need them; one that is missing or was changed
    /// is told when its program can't be loaded.
    pub(crate) fn read_objects(&self, document: &Document, objects: &ObjectFiles) {
        for program in document.programs() {
            let path = self.dir.join(OBJECTS).join(&program.sha256);
            let hash = objects.open(&path);
            if hash.is_ok_and(|hash| hash != program.sha256) {
                tracing::warn!("{}: its contents were changed", path.display());
            }
        }
    }

    /// Where contents lie that a document names.
    pub(crate) fn maps(&self) -> PathBuf {
        self.dir.join(MAPS)
    }

    /// Adds to the journal.
    pub(crate) fn add(&mut self, line: &Line) -> io::Result<()> {
        if self.journal.is_none() {
            self.journal = Some(Journal::create(&self.changes(self.serial))?);
        }
        self.journal.as_mut().map_or(Ok(()), |journal| journal.add(line))
    }

    /// Brings the journal to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.journal.as_ref().map_or(Ok(()), Journal::sync)
    }

    /// Writes contents beside their place; gives the name that they will have.
    pub(crate) fn write_contents(dir: &Path, map: &Map, id: u32) -> io::Result<String> {
        let beside = dir.join(format!("new-{id}"));
        contents::save(map, &beside)?;
        hash_of(&beside)
    }

    /// Gives written contents their name. A document that names them must follow: else they go
    /// with the next one.
    pub(crate) fn name_contents(&self, id: u32, name: &str) -> io::Result<()> {
        let maps = self.maps();
        fs::rename(maps.join(format!("new-{id}")), maps.join(name))
    }

    /// Writes a document, and its objects before; what nothing needs any more goes.
    pub(crate) fn save(&mut self, mut document: Document, objects: &ObjectFiles) -> io::Result<()> {
        for program in document.programs() {
            self.save_object(&program.sha256, objects)?;
        }
        document.serial = self.serial + 1;
        // A journal of that number may be there if the last rename was as far as it got.
        remove(&self.changes(document.serial))?;
        write(&self.dir, &self.dir.join(STATE), document.text().as_bytes())?;
        let old = self.changes(self.serial);
        self.serial = document.serial;
        self.journal = None;
        remove(&old)?;
        let hashes = document.programs().map(|program| program.sha256.as_str());
        self.objects = keep_only(&self.dir.join(OBJECTS), &hashes.collect())?;
        let contents = document.maps.iter().filter_map(|map| map.contents.as_deref());
        keep_only(&self.dir.join(MAPS), &contents.collect())?;
        Ok(())
    }

    fn save_object(&mut self, hash: &str, objects: &ObjectFiles) -> io::Result<()> {
        if self.objects.contains(hash) {
            return Ok(());
        }
        let path = self.dir.join(OBJECTS).join(hash);
        // Nobody has it: its program says so, as it did before.
        let Some(bytes) = objects.bytes(hash) else { return Ok(()) };
        if !path.exists() {
            write(&self.dir, &path, &bytes)?;
        }
        self.objects.insert(hash.to_owned());
        Ok(())
    }

    fn changes(&self, serial: u64) -> PathBuf {
        self.dir.join(format!("changes.{serial}"))
    }
}

/// Copies the files of a directory, and none of its directories.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != "lock" {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Writes a file at once: whoever looks sees it as it was or as it is.
fn write(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = dir.join("new");
    let mut file =
        File::options().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // The rename, too, is to outlive a loss of power.
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn read_if_there(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    if_there(read(path, limit))
}

fn remove(path: &Path) -> io::Result<()> {
    if_there(fs::remove_file(path)).map(drop)
}

/// Nothing where there is no file.
fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Removes all other files; gives what is left.
fn keep_only(dir: &Path, names: &BTreeSet<&str>) -> io::Result<BTreeSet<String>> {
    let mut left = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // Contents that are being written are not named yet, and damaged ones are somebody's.
        if names.contains(name.as_str()) {
            left.insert(name);
        } else if name.len() == HASH_DIGITS {
            remove(&dir.join(&name))?;
        }
    }
    Ok(left)
}

fn hash_of(path: &Path) -> io::Result<String> {
    // What ends a file of contents is the sum of all before.
    let mut file = File::open(path)?;
    let mut sum = Vec::new();
    io::Seek::seek(&mut file, io::SeekFrom::End(-(contents::SUM_BYTES as i64)))?;
    io::Read::read_to_end(&mut file, &mut sum)?;
    Ok(sha256(&sum))
}

const STATE: &str = "state";
const OBJECTS: &str = "objects";
const MAPS: &str = "maps";
const HASH_DIGITS: usize = 64;
/// Larger than any that a daemon writes.
const DOCUMENT_BYTES_MAX: u64 = 4 << 30;
