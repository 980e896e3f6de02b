//! Doing something in another network namespace.
//!
//! Only threads are in namespaces, and what a thread opens there stays there: a short-lived thread
//! enters, opens, and hands the descriptors out.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Error;

/// Runs `action` in a namespace: a name that `ip netns` knows, or a path to a namespace's file;
/// where the process is, without one.
pub(crate) fn within<T: Send>(
    namespace: Option<&str>,
    action: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let Some(name) = namespace else { return action() };
    let failed = |source: std::io::Error| Error::Namespace { name: name.to_owned(), source };
    let file = File::open(path_of(name)).map_err(failed)?;
    let enter = || -> Result<T, Error> {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), network).map_err(|errno| failed(errno.into()))?;
        action()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("namespace".to_owned());
        let thread = thread.spawn_scoped(scope, enter).map_err(failed)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether a namespace is another one than the calling thread's, so that its ifindexes mean
/// something else.
pub(crate) fn is_foreign(namespace: Option<&str>) -> bool {
    let Some(name) = namespace else { return false };
    let (theirs, ours) = (rustix::fs::stat(path_of(name)), rustix::fs::stat(OWN));
    match (theirs, ours) {
        (Ok(theirs), Ok(ours)) => (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino),
        _ => true,
    }
}

fn path_of(name: &str) -> PathBuf {
    // An absolute path replaces what it is joined to.
    Path::new(NAMED).join(name)
}

/// Where `ip netns add` mounts namespaces.
const NAMED: &str = "/run/netns";
const OWN: &str = "/proc/thread-self/ns/net";
