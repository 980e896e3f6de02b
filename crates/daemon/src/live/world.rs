//! What maps of targets may name: our ports, workers and programs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use towpath_bpf::Errno;
use towpath_bpf::program::{AttachType, MapType};
use towpath_maps::Environment;

/// What exists in one daemon, as maps may ask at any time, also while the engine changes.
#[derive(Debug)]
pub(crate) struct Known {
    workers: usize,
    ifindexes: RwLock<BTreeSet<u32>>,
    programs: RwLock<BTreeMap<u32, AttachType>>,
}

impl Known {
    pub(crate) fn new(workers: usize) -> Known {
        Known { workers, ifindexes: RwLock::default(), programs: RwLock::default() }
    }

    pub(crate) fn set_ifindexes(&self, ifindexes: BTreeSet<u32>) {
        *self.ifindexes.write().unwrap_or_else(PoisonError::into_inner) = ifindexes;
    }

    pub(crate) fn add_program(&self, id: u32, attach: AttachType) {
        self.programs.write().unwrap_or_else(PoisonError::into_inner).insert(id, attach);
    }

    pub(crate) fn remove_program(&self, id: u32) {
        self.programs.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

/// The same for the maps of one object, whose program arrays can name only its own programs.
#[derive(Debug)]
pub(super) struct World {
    known: Arc<Known>,
    /// Numbers that program arrays of this object use, by our ids.
    siblings: RwLock<BTreeMap<u32, u32>>,
    /// Ids of programs that were loaded for entries of its maps, and go with it.
    kept: RwLock<Vec<u32>>,
}

impl World {
    pub(super) fn new(known: &Arc<Known>) -> World {
        World { known: Arc::clone(known), siblings: RwLock::default(), kept: RwLock::default() }
    }

    pub(super) fn add_sibling(&self, id: u32, in_arrays: u32) {
        self.siblings.write().unwrap_or_else(PoisonError::into_inner).insert(id, in_arrays);
    }

    pub(super) fn keep(&self, ids: Vec<u32>) {
        self.kept.write().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }

    pub(super) fn kept(&self) -> Vec<u32> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).clone()
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

    fn socket(&self, _number: u32) -> Result<(u32, u32), Errno> {
        Err(Errno::EBADF)
    }
}
