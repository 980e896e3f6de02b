//! Network namespaces by name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Identity of a namespace: device and inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(u64, u64);

/// Opens a namespace: a name of `ip netns`, or a path.
///
/// # Errors
///
/// Fails if there is none of this name, or if the file is of another type; a FIFO does not block.
pub fn open(name: &str) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path_of(name))?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a network namespace")),
    }
}

/// Identity of the namespace with this name.
///
/// # Errors
///
/// Fails if there is none of this name.
pub fn identity(name: &str) -> io::Result<Identity> {
    let about = std::fs::metadata(path_of(name))?;
    Ok(Identity(about.dev(), about.ino()))
}

/// Whether it is another namespace than the calling thread's.
pub fn is_foreign(name: &str) -> bool {
    match (identity(name), identity(OWN)) {
        (Ok(theirs), Ok(ours)) => theirs != ours,
        _ => true,
    }
}

/// Moves the calling thread into the namespace, for good: sockets opened from then on belong to it.
///
/// # Errors
///
/// Fails if privileges are missing, or if the file is not a network namespace.
pub fn enter(namespace: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

fn path_of(name: &str) -> PathBuf {
    // An absolute path replaces the path that it is joined to.
    Path::new(NAMED).join(name)
}

/// Directory in which `ip netns add` mounts namespaces.
const NAMED: &str = "/run/netns";
const OWN: &str = "/proc/thread-self/ns/net";
