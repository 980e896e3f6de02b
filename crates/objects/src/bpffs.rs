//! The virtual `bpffs`: names for objects, which keep them alive.
//!
//! Kernel counterpart: `kernel/bpf/inode.c` and the path walk before it. Only its own tree exists:
//! a path that leads elsewhere is answered as one that leads to another file system.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use towpath_bpf::Errno;

use crate::object::Object;

/// The usual mount point of the kernel's.
pub const BPFFS_ROOT: &str = "/sys/fs/bpf";

/// Pins by path.
#[derive(Debug)]
pub(crate) struct Bpffs {
    /// Names below the root, e.g. `xdp/dispatch`; directories have no object.
    nodes: Mutex<BTreeMap<String, Option<Object>>>,
}

/// The target of a path.
enum PinPath {
    /// The root, or a place below it.
    Inside(String),
    /// Another file system.
    Outside,
}

impl Bpffs {
    pub(crate) fn new() -> Bpffs {
        Bpffs { nodes: Mutex::default() }
    }

    /// `BPF_OBJ_PIN`
    ///
    /// # Errors
    ///
    /// `ENOENT`: no such directory. `ENOTDIR`: a pin is used as one. `EEXIST`: the name is taken.
    /// `EPERM`: outside of this file system, or a name with a dot.
    pub(crate) fn pin(&self, path: &str, object: Object) -> Result<(), Errno> {
        let PinPath::Inside(name) = locate(path)? else { return Err(Errno::EPERM) };
        let mut nodes = self.nodes.lock();
        self.check_new(&nodes, &name)?;
        if path.ends_with('/') {
            return Err(Errno::ENOENT);
        }
        nodes.insert(name, Some(object));
        Ok(())
    }

    /// `BPF_OBJ_GET`
    ///
    /// # Errors
    ///
    /// Fails with `ENOENT`, or with `EACCES` if the path leads to a directory, or out of this file
    /// system.
    pub(crate) fn open(&self, path: &str) -> Result<Object, Errno> {
        let PinPath::Inside(name) = locate(path)? else { return Err(Errno::EACCES) };
        let nodes = self.nodes.lock();
        if name.is_empty() {
            return Err(Errno::EACCES);
        }
        check_parent(&nodes, &name)?;
        match nodes.get(&name) {
            Some(Some(_)) if path.ends_with('/') => Err(Errno::ENOTDIR),
            Some(Some(object)) => Ok(object.clone()),
            Some(None) => Err(Errno::EACCES),
            None if has_dot(&name) => Err(Errno::EPERM),
            None => Err(Errno::ENOENT),
        }
    }

    /// `mkdir(2)`
    pub(crate) fn create_directory(&self, path: &str) -> Result<(), Errno> {
        let PinPath::Inside(name) = locate(path)? else { return Err(Errno::EPERM) };
        let mut nodes = self.nodes.lock();
        self.check_new(&nodes, &name)?;
        nodes.insert(name, None);
        Ok(())
    }

    /// `unlink(2)`: an object without other references goes.
    pub(crate) fn unlink(&self, path: &str) -> Result<(), Errno> {
        let PinPath::Inside(name) = locate(path)? else { return Err(Errno::EPERM) };
        let gone = {
            let mut nodes = self.nodes.lock();
            check_parent(&nodes, &name)?;
            match nodes.get(&name) {
                Some(Some(_)) => nodes.remove(&name),
                Some(None) => return Err(Errno::EISDIR),
                None if name.is_empty() => return Err(Errno::EISDIR),
                None => return Err(Errno::ENOENT),
            }
        };
        // Outside of the lock: this may end a link, which takes other locks.
        drop(gone);
        Ok(())
    }

    /// `rmdir(2)`
    pub(crate) fn remove_directory(&self, path: &str) -> Result<(), Errno> {
        let PinPath::Inside(name) = locate(path)? else { return Err(Errno::EPERM) };
        let mut nodes = self.nodes.lock();
        check_parent(&nodes, &name)?;
        let below = format!("{name}/");
        match nodes.get(&name) {
            Some(None) if nodes.keys().any(|key| key.starts_with(&below)) => Err(Errno::ENOTEMPTY),
            Some(None) => {
                nodes.remove(&name);
                Ok(())
            }
            Some(Some(_)) => Err(Errno::ENOTDIR),
            None if name.is_empty() => Err(Errno::EBUSY),
            None => Err(Errno::ENOENT),
        }
    }

    /// All pins: absolute paths and objects.
    pub(crate) fn pins(&self) -> Vec<(String, Object)> {
        let nodes = self.nodes.lock();
        let pins = nodes.iter().filter_map(|(name, object)| Some((name, object.as_ref()?)));
        pins.map(|(name, object)| (format!("{BPFFS_ROOT}/{name}"), object.clone())).collect()
    }

    /// `filename_create`
    fn check_new(&self, nodes: &BTreeMap<String, Option<Object>>, name: &str) -> Result<(), Errno> {
        check_parent(nodes, name)?;
        if name.is_empty() || nodes.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        if has_dot(name) { Err(Errno::EPERM) } else { Ok(()) }
    }
}

/// Every directory on the way exists.
fn check_parent(nodes: &BTreeMap<String, Option<Object>>, name: &str) -> Result<(), Errno> {
    for (at, _slash) in name.match_indices('/') {
        match nodes.get(&name[..at]) {
            Some(None) => {}
            Some(Some(_)) => return Err(Errno::ENOTDIR),
            // Names with dots are reserved (`bpf_lookup`).
            None if has_dot(&name[..at]) => return Err(Errno::EPERM),
            None => return Err(Errno::ENOENT),
        }
    }
    Ok(())
}

/// Whether the last part of a name has a dot.
fn has_dot(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.contains('.'))
}

/// Takes a path apart: `.`, `..` and repeated slashes mean nothing here.
fn locate(path: &str) -> Result<PinPath, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part if part.len() > NAME_MAX => return Err(Errno::ENAMETOOLONG),
            part => parts.push(part),
        }
    }
    let mut root = BPFFS_ROOT[1..].split('/');
    let mut parts = parts.into_iter();
    if root.any(|part| parts.next() != Some(part)) {
        return Ok(PinPath::Outside);
    }
    Ok(PinPath::Inside(parts.collect::<Vec<_>>().join("/")))
}

/// Longest name in a directory (`NAME_MAX`).
const NAME_MAX: usize = 255;
