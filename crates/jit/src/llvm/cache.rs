//! Object files on disk, so that a program is compiled once and not in every process.
//!
//! A file contains its whole key (including the program's text) and is used only if that is equal:
//! names are short hashes, and a collision costs a compilation, not a wrong program. Files are
//! written under another name and renamed. An unreadable or inconsistent file is ignored and
//! written again.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::SystemTime;

use super::compiler_unsafe::Host;
use super::library_unsafe::{OPTIONS, llvm_library};
use super::link::OBJECT_BYTES_MAX;

/// Largest size of all files together, in bytes; the oldest are removed first.
const TOTAL_BYTES_MAX: u64 = 256 << 20;
/// First bytes of every file.
const MAGIC: &[u8; 8] = b"towpath1";
/// Length of the header: magic, bytes of the key, bytes of the object, and the hash of both.
const HEADER_BYTES: usize = 32;
const SUFFIX: &str = "towpath-object";

/// Text of everything that the machine code depends on.
pub(super) fn key(ir: &str, host: &Host, passes: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let llvm = llvm_library().map_or("", |library| &library.version);
    let Host { triple, cpu, features } = host;
    format!(
        "towpath {version} LLVM {llvm}\n{triple}\n{cpu}\n{features}\n{OPTIONS:?}\n{passes}\n{ir}"
    )
}

/// A directory of object files that only this user can write to.
#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Opens a cache, creating its directory. `None` if that fails or other users may write to it:
    /// machine code is not read from there.
    pub(super) fn open(directory: &Path) -> Option<Cache> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).ok()?;
        let metadata = fs::metadata(directory).ok()?;
        let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
        let is_private = metadata.mode() & 0o022 == 0;
        (metadata.is_dir() && is_ours && is_private).then(|| Cache { directory: directory.into() })
    }

    /// The object file kept under a key.
    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.path(key);
        let length = fs::metadata(&path).ok()?.len();
        if length > (HEADER_BYTES + key.len() + OBJECT_BYTES_MAX) as u64 {
            return None;
        }
        let bytes = fs::read(&path).ok()?;
        let object = parse(&bytes, key)?.to_vec();
        // Makes it the youngest. If that fails, it is only removed earlier.
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(object)
    }

    /// Stores an object file; an error only means that it is not cached.
    pub(super) fn put(&self, key: &str, object: &[u8]) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if object.len() > OBJECT_BYTES_MAX {
            return;
        }
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("{}-{number}.new", std::process::id());
        let temporary = self.directory.join(name);
        let written =
            write(&temporary, key, object).and_then(|()| fs::rename(&temporary, self.path(key)));
        if written.is_err() {
            // The temporary file has no further use.
            let _ = fs::remove_file(&temporary);
        }
        self.trim(TOTAL_BYTES_MAX);
    }

    /// Removes the oldest files until the total is at most `bytes_max`.
    fn trim(&self, bytes_max: u64) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .flatten()
            .filter(|entry| is_ours(&entry.path()))
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in files {
            if total <= bytes_max {
                break;
            }
            total -= length;
            // Another process may have removed it before.
            let _ = fs::remove_file(path);
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{:016x}.{SUFFIX}", hash(&[key.as_bytes()])))
    }
}

fn is_ours(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == SUFFIX || extension == "new")
}

fn write(path: &Path, key: &str, object: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&(key.len() as u64).to_le_bytes());
    header.extend_from_slice(&(object.len() as u64).to_le_bytes());
    header.extend_from_slice(&hash(&[key.as_bytes(), object]).to_le_bytes());
    file.write_all(&header)?;
    file.write_all(key.as_bytes())?;
    file.write_all(object)
}

/// The object in a file's bytes, if the file is intact and has this key.
fn parse<'a>(bytes: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let number = |at: usize| header[at..at + 8].try_into().ok().map(u64::from_le_bytes);
    let (found, object) = rest.split_at_checked(usize::try_from(number(8)?).ok()?)?;
    let is_whole = &header[..8] == MAGIC
        && found == key.as_bytes()
        && object.len() as u64 == number(16)?
        && hash(&[found, object]) == number(24)?;
    is_whole.then_some(object)
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(name: &str) -> Cache {
        let directory = std::env::temp_dir().join(format!("towpath-{}-{name}", std::process::id()));
        Cache::open(&directory).expect("a directory of our own")
    }

    #[test]
    fn what_was_kept_comes_back_and_nothing_else_does() {
        let cache = cache("kept");
        assert_eq!(cache.get("key"), None);
        cache.put("key", b"object");
        assert_eq!(cache.get("key").as_deref(), Some(b"object".as_slice()));
        assert_eq!(cache.get("another"), None);
        fs::remove_dir_all(&cache.directory).expect("ours");
    }

    #[test]
    fn a_damaged_file_is_ignored_and_replaced() {
        let cache = cache("damaged");
        cache.put("key", b"object");
        let path = cache.path("key");
        let whole = fs::read(&path).expect("written");
        for (at, _) in whole.iter().enumerate() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).expect("ours");
            assert_eq!(cache.get("key"), None, "byte {at}");
            fs::write(&path, &whole[..at]).expect("ours");
            assert_eq!(cache.get("key"), None, "cut at {at}");
        }
        cache.put("key", b"object");
        assert!(cache.get("key").is_some());
        fs::remove_dir_all(&cache.directory).expect("ours");
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let cache = cache("many");
        for key in ["a", "b", "c"] {
            cache.put(key, &[0; 1000]);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(cache.get("a").is_some(), "and is the youngest now");
        cache.trim(2500);
        assert_eq!([cache.get("a").is_some(), cache.get("b").is_some()], [true, false]);
        fs::remove_dir_all(&cache.directory).expect("ours");
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let cache = cache("open");
        fs::set_permissions(&cache.directory, fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(Cache::open(&cache.directory).is_none());
        fs::remove_dir_all(&cache.directory).expect("ours");
    }
}
