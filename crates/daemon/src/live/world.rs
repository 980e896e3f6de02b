//! What maps of targets may name: our ports, workers and programs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use towpath_bpf::Errno;
use towpath_bpf::program::{AttachType, MapType};
use towpath_engine::Socket as _;
use towpath_maps::Environment;
use towpath_xsk::Sockets;

/// What exists in one daemon, as maps may ask at any time, also while the engine changes.
#[derive(Debug, Default)]
pub(crate) struct Known {
    workers: usize,
    ifindexes: RwLock<BTreeSet<u32>>,
    programs: RwLock<BTreeMap<u32, AttachType>>,
    sockets: OnceLock<Weak<Sockets>>,
}

impl Known {
    pub(crate) fn new(workers: usize) -> Known {
        Known { workers, ..Known::default() }
    }

    /// Says where sockets are; there is one place for them.
    pub(super) fn set_sockets(&self, sockets: &Arc<Sockets>) {
        let _already = self.sockets.set(Arc::downgrade(sockets));
    }

    pub(crate) fn set_ifindexes(&self, ifindexes: BTreeSet<u32>) {
        *self.ifindexes.write().unwrap_or_else(PoisonError::into_inner) = ifindexes;
    }

    pub(crate) fn add_program(&self, id: u32, attach: AttachType) {
        self.programs.write().unwrap_or_else(PoisonError::into_inner).insert(id, attach);
    }

    pub(crate) fn remove_program(&self, id: u32) -> Option<AttachType> {
        self.programs.write().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }
}

/// The same for the maps of one object, whose program arrays can name only its own programs.
#[derive(Debug)]
pub(super) struct World {
    known: Arc<Known>,
    /// Numbers that program arrays of this object use, by our ids.
    siblings: RwLock<BTreeMap<u32, u32>>,
}

impl World {
    pub(super) fn new(known: &Arc<Known>) -> World {
        World { known: Arc::clone(known), siblings: RwLock::default() }
    }

    pub(super) fn add_sibling(&self, id: u32, in_arrays: u32) {
        self.siblings.write().unwrap_or_else(PoisonError::into_inner).insert(id, in_arrays);
    }

    /// The number that program arrays of this object know a program by.
    pub(super) fn in_arrays(&self, id: u32) -> Option<u32> {
        self.siblings.read().unwrap_or_else(PoisonError::into_inner).get(&id).copied()
    }
}

impl Environment for World {
    fn has_device(&self, ifindex: u32) -> bool {
        let known = self.known.ifindexes.read().unwrap_or_else(PoisonError::into_inner);
        known.contains(&ifindex)
    }

    fn has_cpu(&self, cpu: u32) -> bool {
        (cpu as usize) < self.known.workers
    }

    fn program(&self, number: u32, kind: MapType) -> Result<u32, Errno> {
        let known = self.known.programs.read().unwrap_or_else(PoisonError::into_inner);
        let attach = *known.get(&number).ok_or(Errno::EBADF)?;
        match (kind, attach) {
            (MapType::ProgArray, AttachType::Xdp) => self.in_arrays(number).ok_or(Errno::EINVAL),
            (MapType::Devmap | MapType::DevmapHash, AttachType::Devmap)
            | (MapType::Cpumap, AttachType::Cpumap) => Ok(number),
            _ => Err(Errno::EINVAL),
        }
    }

    fn socket(&self, number: u32) -> Result<(u32, u32), Errno> {
        let sockets = self.known.sockets.get().and_then(Weak::upgrade).ok_or(Errno::EBADF)?;
        let socket = sockets.get(number).filter(|socket| socket.is_open()).ok_or(Errno::EBADF)?;
        // One that is not bound yet may be there already.
        Ok((number, socket.place().map_or(0, |place| place.queue)))
    }
}
