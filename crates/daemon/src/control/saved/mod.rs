//! Saved state: a directory with everything beyond the configuration file that outlives the daemon.
//!
//! ```text
//! DIR/state          the document: wanted state, pins, users' changes of maps
//! DIR/state.before   the previous document
//! DIR/changes.N      users' changes since document N was written, one per line
//! DIR/objects/HASH   object files
//! DIR/maps/HASH      contents of pinned maps
//! DIR/aside-N/       contents that could not be read
//! ```
//!
//! Files are written under a temporary name and renamed. The document names all other files, so
//! that its rename switches from one state to the next atomically.

mod document;
pub mod journal;
mod keeper;
mod lines;
mod parts;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use towpath_maps::Map;
use towpath_maps::rows::Rows;

use self::journal::Journal;
use self::parts::{Hurt, Instead, Parts};
use crate::live::files::{ObjectFiles, if_there, read_if_there, sha256};
use crate::live::map_file::{self, Before};
use crate::model::saved::Line;

pub use crate::live::map_file::{ContentsError, load as load_contents};
pub use crate::model::saved::{Change, Document, SavedMap};
pub(crate) use keeper::Keeper;
pub use parts::DocumentError;

/// The directory, locked for this daemon.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    /// The lock; `None` while the directory is not writable.
    lock: Option<File>,
    /// Whether the directory has contents that could not be read, and must be kept.
    is_unread: bool,
    /// Serial number of the current document.
    serial: u64,
    /// Serial number of the previous document.
    serial_before: u64,
    /// Files that the previous document names.
    named_before: BTreeSet<String>,
    /// Files that the current document names.
    named: BTreeSet<String>,
    /// Whether the current document is damaged, and so must not become the previous one.
    is_damaged: bool,
    journal: Option<Journal>,
    objects: BTreeSet<String>,
}

impl Store {
    /// Opens or creates a directory. Returns the saved document, and a list of parts that could not
    /// be read, which are set aside. A directory that is not writable is read all the same.
    ///
    /// # Errors
    ///
    /// Fails if another daemon uses the directory.
    pub(crate) fn open(dir: &Path) -> Result<(Store, Option<Document>, Vec<Trouble>), String> {
        let mut store = Store {
            dir: dir.to_owned(),
            lock: None,
            is_unread: false,
            serial: 0,
            serial_before: 0,
            named_before: BTreeSet::new(),
            named: BTreeSet::new(),
            is_damaged: false,
            journal: None,
            objects: BTreeSet::new(),
        };
        if let Err(error) = store.prepare()
            && error.kind() == io::ErrorKind::ResourceBusy
        {
            return Err(error.to_string());
        }
        let mut troubles = Vec::new();
        let document = store.load(&mut troubles).unwrap_or_else(|why| {
            let why = format!("{why}: the daemon starts with its configuration alone");
            let kept = match store.set_aside() {
                Ok(aside) => format!("the saved files are kept in {}", aside.display()),
                Err(error) => {
                    store.is_unread = true;
                    format!("the saved files stay unchanged until they can be moved: {error}")
                }
            };
            let path = dir.join(STATE);
            troubles.push((path.display().to_string(), format!("{why}; {kept}")));
            None
        });
        store.serial = document.as_ref().map_or(0, |document| document.serial);
        Ok((store, document, troubles))
    }

    /// Creates the directory and locks it, unless that has been done; sets aside contents that
    /// could not be read.
    pub(crate) fn prepare(&mut self) -> io::Result<()> {
        if self.lock.is_none() {
            let said = |error: io::Error| named(&self.dir, &error);
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700);
            for dir in [self.dir.clone(), self.dir.join(OBJECTS), self.dir.join(MAPS)] {
                builder.create(dir).map_err(said)?;
            }
            let lock = File::create(self.dir.join("lock")).map_err(said)?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_taken| {
                let message = format!("[state] {}: another daemon uses it", self.dir.display());
                io::Error::new(io::ErrorKind::ResourceBusy, message)
            })?;
            self.lock = Some(lock);
        }
        if self.is_unread {
            self.set_aside().map_err(|error| named(&self.dir, &error))?;
            self.is_unread = false;
        }
        Ok(())
    }

    /// Reads the document and applies the journal.
    fn load(&mut self, troubles: &mut Vec<Trouble>) -> Result<Option<Document>, String> {
        let path = self.dir.join(STATE);
        let bytes = read_if_there(&path, DOCUMENT_BYTES_MAX).map_err(|error| error.to_string())?;
        let before = read_if_there(&self.dir.join(BEFORE), DOCUMENT_BYTES_MAX);
        let before = before.ok().flatten().unwrap_or_default();
        let mut before = Document::first(&before).map_or_else(|| Parts::read(&before), Parts::of);
        if let Ok(document) = before.document() {
            self.serial_before = document.serial;
            self.named_before = document.files();
            let lines = journal::load(&self.changes(document.serial)).unwrap_or_default().0;
            self.named_before.extend(lines.iter().filter_map(Line::file));
            lines.iter().for_each(|line| before.add(line));
        }
        if bytes.is_none() && before.is_empty() {
            return Ok(None);
        }
        let bytes = bytes.unwrap_or_default();
        let mut document = match Document::parse(&bytes) {
            Ok(document) => document,
            Err(error @ (DocumentError::Foreign | DocumentError::Damaged)) => {
                self.recover(&bytes, &before, &error, troubles)?
            }
            Err(error) => return Err(error.to_string()),
        };
        self.named = document.files();
        self.add_journal(&mut document, troubles)?;
        self.named.extend(document.files());
        Ok(Some(document))
    }

    /// Restores a damaged document from its intact parts and substitutes for the others. The
    /// damaged file is set aside.
    fn recover(
        &mut self,
        bytes: &[u8],
        before: &Parts,
        error: &DocumentError,
        troubles: &mut Vec<Trouble>,
    ) -> Result<Document, String> {
        let parts = Parts::read(bytes);
        if parts.is_empty() && before.is_empty() {
            return Err(error.to_string());
        }
        let (document, hurt) = parts.recover(before).map_err(|error| error.to_string())?;
        let aside = self.free_aside();
        let kept = fs::create_dir(&aside).and_then(|()| fs::write(aside.join(STATE), bytes));
        let path = self.dir.join(STATE).display().to_string();
        let kept = match kept {
            Ok(()) => format!("the damaged file is kept as {}/{STATE}", aside.display()),
            Err(why) => format!("the damaged file can't be kept in {}: {why}", aside.display()),
        };
        if parts.index().is_none() {
            let why = format!("{error}: the document before it is used instead; {kept}");
            troubles.push((path.clone(), why));
        } else if hurt.is_empty() {
            let why = format!("it is damaged, but nothing is lost; {kept}");
            troubles.push((path.clone(), why));
        }
        for Hurt { place, instead } in hurt {
            let again = match instead {
                Instead::Same => "",
                _ => ": check it, and restore its settings",
            };
            let why = format!("{path} is damaged at this item; {instead}{again}; {kept}");
            troubles.push((format!("saved {place}"), why));
        }
        self.is_damaged = true;
        Ok(document)
    }

    /// Applies the journal to a document.
    fn add_journal(
        &self,
        document: &mut Document,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), String> {
        let path = self.changes(document.serial);
        let said = |error: io::Error| format!("{}: {error}", path.display());
        let (lines, damaged) = journal::load(&path).map_err(said)?;
        if damaged > 0 {
            let aside = path.with_extension(format!("{}.damaged", document.serial));
            let kept = match fs::copy(&path, &aside) {
                Ok(_) => format!("it is kept as {}", aside.display()),
                Err(error) => format!("it can't be kept: {error}"),
            };
            let why = format!(
                "{damaged} of its lines are damaged: their map elements are lost, all other lines \
                 are used; {kept}"
            );
            troubles.push((path.display().to_string(), why));
        }
        for Line { map, what } in lines {
            if let Some(saved) = document.maps.iter_mut().find(|saved| saved.id == map) {
                saved.add(what);
            }
        }
        Ok(())
    }

    /// Moves all contents to a directory `aside-N`.
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

    /// Copies all contents to a directory `aside-N`.
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

    /// Reads the object files of a document. A missing or changed file is reported when its program
    /// cannot be loaded.
    pub(crate) fn read_objects(&self, document: &Document, objects: &ObjectFiles) {
        for program in document.programs() {
            let path = self.dir.join(OBJECTS).join(&program.sha256);
            let hash = objects.open(&path);
            if hash.is_ok_and(|hash| hash != program.sha256) {
                tracing::warn!("{}: its contents were changed", path.display());
            }
        }
    }

    /// Directory of contents files.
    pub(crate) fn maps(&self) -> PathBuf {
        self.dir.join(MAPS)
    }

    /// Appends a line to the journal.
    pub(crate) fn add(&mut self, line: &Line) -> io::Result<()> {
        self.prepare()?;
        if self.journal.is_none() {
            self.journal = Some(Journal::create(&self.changes(self.serial))?);
        }
        self.journal.as_mut().map_or(Ok(()), |journal| journal.add(line))?;
        self.named.extend(line.file());
        Ok(())
    }

    /// Flushes the journal.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.journal.as_ref().map_or(Ok(()), Journal::sync)
    }

    /// Writes a map's contents under a temporary name, and returns the final name.
    pub(crate) fn write_contents(dir: &Path, map: &Map, id: u32) -> io::Result<String> {
        let beside = dir.join(format!("new-{id}"));
        map_file::save(map, &beside)?;
        hash_of(&beside)
    }

    /// Writes the future contents of a map under a temporary name, without changing the map, and
    /// returns the final name.
    pub(crate) fn write_rows(
        dir: &Path,
        map: &Map,
        id: u32,
        rows: &Rows,
        before: Before<'_>,
    ) -> io::Result<String> {
        let beside = dir.join(format!("load-{id}"));
        let written = map_file::save_rows(map, &beside, rows, before);
        written.and_then(|()| hash_of(&beside)).inspect_err(|_| {
            // The disk may be full, and the space needed elsewhere.
            let _gone = fs::remove_file(&beside);
        })
    }

    /// Renames written contents to their final name. A document or journal line with that name must
    /// follow: otherwise, the next document removes the file.
    pub(crate) fn name_contents(&self, id: u32, name: &str) -> io::Result<()> {
        let maps = self.maps();
        fs::rename(maps.join(format!("new-{id}")), maps.join(name))
    }

    /// Renames a file of [`Store::write_rows`] to its final name, and flushes the rename, so that
    /// it survives a loss of power like the contents.
    pub(crate) fn name_rows(&self, id: u32, name: &str) -> io::Result<()> {
        let maps = self.maps();
        put(&maps.join(format!("load-{id}")), &maps.join(name))
    }

    /// Removes a file of [`Store::write_rows`].
    pub(crate) fn forget_rows(dir: &Path, id: u32) {
        let _gone = fs::remove_file(dir.join(format!("load-{id}")));
    }

    /// Writes the object files of a document, then the document; removes files that are no longer
    /// needed.
    pub(crate) fn save(&mut self, mut document: Document, objects: &ObjectFiles) -> io::Result<()> {
        self.prepare()?;
        for program in document.programs() {
            self.save_object(&program.sha256, objects)?;
        }
        document.serial = self.serial + 1;
        // A journal of that number may be left from a save that failed after its last rename.
        remove(&self.changes(document.serial))?;
        let beside = write_beside(&self.dir, document.text().as_bytes())?;
        let is_kept = !self.is_damaged && self.keep_before()?;
        put(&beside, &self.dir.join(STATE))?;
        self.journal = None;
        let old = if is_kept { self.serial_before } else { self.serial };
        if is_kept {
            self.serial_before = self.serial;
            self.named_before = std::mem::take(&mut self.named);
        }
        (self.serial, self.is_damaged, self.named) = (document.serial, false, document.files());
        if old != self.serial_before {
            remove(&self.changes(old))?;
        }
        let named: BTreeSet<&str> =
            self.named.union(&self.named_before).map(String::as_str).collect();
        self.objects = keep_only(&self.dir.join(OBJECTS), &named)?;
        keep_only(&self.dir.join(MAPS), &named)?;
        Ok(())
    }

    /// Makes the current document the previous one; returns whether there is one.
    fn keep_before(&self) -> io::Result<bool> {
        let (state, beside) = (self.dir.join(STATE), self.dir.join("new-before"));
        remove(&beside)?;
        // A hard link suffices, since the document is replaced by a rename and never modified.
        let linked = fs::hard_link(&state, &beside);
        let kept = linked.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Err(error),
            _no_links => fs::copy(&state, &beside).map(drop),
        });
        if if_there(kept)?.is_none() {
            return Ok(false);
        }
        fs::rename(&beside, self.dir.join(BEFORE)).map(|()| true)
    }

    fn save_object(&mut self, hash: &str, objects: &ObjectFiles) -> io::Result<()> {
        if self.objects.contains(hash) {
            return Ok(());
        }
        let path = self.dir.join(OBJECTS).join(hash);
        // The object file is missing, which its program has reported.
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

/// Adds the directory to an error.
fn named(dir: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("[state] {}: {error}", dir.display()))
}

/// Copies the files of a directory, without its subdirectories.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != "lock" {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Writes a file atomically: readers see either the old or the new contents.
fn write(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(&write_beside(dir, bytes)?, path)
}

fn write_beside(dir: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let beside = dir.join("new");
    let mut file =
        File::options().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(beside)
}

fn put(beside: &Path, path: &Path) -> io::Result<()> {
    fs::rename(beside, path)?;
    // Flushes the rename, so that it survives a loss of power.
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn remove(path: &Path) -> io::Result<()> {
    if_there(fs::remove_file(path)).map(drop)
}

/// Removes contents and object files other than `names`; returns the files that are left.
fn keep_only(dir: &Path, names: &BTreeSet<&str>) -> io::Result<BTreeSet<String>> {
    let mut left = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // Temporary and damaged files have names of other lengths, and stay.
        if names.contains(name.as_str()) {
            left.insert(name);
        } else if name.len() == HASH_DIGITS {
            remove(&dir.join(&name))?;
        }
    }
    Ok(left)
}

fn hash_of(path: &Path) -> io::Result<String> {
    // A contents file ends with the hash of everything before it.
    let mut file = File::open(path)?;
    let mut sum = Vec::new();
    io::Seek::seek(&mut file, io::SeekFrom::End(-(map_file::SUM_BYTES as i64)))?;
    io::Read::read_to_end(&mut file, &mut sum)?;
    Ok(sha256(&sum))
}

/// A part that could not be read, and the reason with what was done about it.
type Trouble = (String, String);

const STATE: &str = "state";
const BEFORE: &str = "state.before";
const OBJECTS: &str = "objects";
const MAPS: &str = "maps";
const HASH_DIGITS: usize = 64;
const _: () = assert!(HASH_DIGITS == 2 * map_file::SUM_BYTES, "two digits a byte");
/// Larger than any document that a daemon writes.
const DOCUMENT_BYTES_MAX: u64 = 4 << 30;
