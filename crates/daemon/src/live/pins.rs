//! Pins: names that keep objects alive, in the daemon's own bpffs.

use towpath_bpf::Errno;
use towpath_objects::{BPFFS_ROOT, Object, Objects};

use crate::model::refusal::Refusal;

/// Creates the directories above a pin.
pub(crate) fn make_parents(registry: &Objects, path: &str) -> Result<(), Errno> {
    let below = path.strip_prefix(BPFFS_ROOT).unwrap_or_default();
    let slashes = below.match_indices('/').skip(1).map(|(at, _)| BPFFS_ROOT.len() + at);
    for end in slashes {
        match registry.create_directory(&path[..end]) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Pins an object, and creates the directories above the pin.
pub(crate) fn pin_at(registry: &Objects, path: &str, object: Object) -> Result<(), Refusal> {
    let pinned = make_parents(registry, path).and_then(|()| registry.pin(path, object));
    pinned.map_err(|errno| refused(path, errno))
}

/// Converts the error of a pin operation.
pub(crate) fn refused(path: &str, errno: Errno) -> Refusal {
    match errno {
        Errno::ENOENT => Refusal::missing(format!("{path}: there is no such pin (ENOENT)")),
        Errno::EEXIST => Refusal::conflict(format!("{path}: there is one already (EEXIST)")),
        Errno::EPERM => Refusal::refused(format!(
            "{path}: pins are below {BPFFS_ROOT}, and their names have no dots (EPERM)"
        )),
        errno => Refusal::refused(format!("{path}: {errno}")),
    }
}
