//! What maps of targets may name: our ports, workers and programs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use towpath_bpf::Errno;
use towpath_bpf::map::{MapType, Values};
use towpath_bpf::program::AttachType;
use towpath_engine::Socket as _;
use towpath_maps::Environment;
use towpath_xdp::Program;
use towpath_xsk::Sockets;

/// What exists in one daemon, as maps may ask at any time, also while the engine changes.
#[derive(Debug, Default)]
pub(crate) struct Known {
    workers: usize,
    ifindexes: RwLock<BTreeSet<u32>>,
    programs: RwLock<BTreeMap<u32, KnownProgram>>,
    sockets: OnceLock<Weak<Sockets>>,
}

/// A program that maps may name.
#[derive(Debug, Clone, Copy)]
struct KnownProgram {
    attach: AttachType,
    /// Its number in program arrays.
    in_arrays: u32,
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

    pub(crate) fn add_program(&self, id: u32, program: &Program) {
        let known = KnownProgram { attach: program.attach(), in_arrays: program.id() };
        self.programs.write().unwrap_or_else(PoisonError::into_inner).insert(id, known);
    }

    /// Gives where the program could be attached.
    pub(crate) fn remove_program(&self, id: u32) -> Option<AttachType> {
        let mut programs = self.programs.write().unwrap_or_else(PoisonError::into_inner);
        programs.remove(&id).map(|known| known.attach)
    }
}

impl Environment for Known {
    fn has_device(&self, ifindex: u32) -> bool {
        let known = self.ifindexes.read().unwrap_or_else(PoisonError::into_inner);
        known.contains(&ifindex)
    }

    fn has_cpu(&self, cpu: u32) -> bool {
        (cpu as usize) < self.workers
    }

    fn program(&self, number: u32, kind: MapType) -> Result<u32, Errno> {
        let known = self.programs.read().unwrap_or_else(PoisonError::into_inner);
        let unknown =
            || if kind.values() == Values::Program { Errno::EBADF } else { Errno::EINVAL };
        let KnownProgram { attach, in_arrays } = *known.get(&number).ok_or_else(unknown)?;
        match (kind.values(), attach) {
            (Values::Program, AttachType::Xdp) => Ok(in_arrays),
            (Values::Device, AttachType::Devmap) | (Values::Cpu, AttachType::Cpumap) => Ok(number),
            _ => Err(Errno::EINVAL),
        }
    }

    fn socket(&self, number: u32) -> Result<(u32, u32), Errno> {
        let sockets = self.sockets.get().and_then(Weak::upgrade).ok_or(Errno::EBADF)?;
        let socket = sockets.get(number).filter(|socket| socket.is_open()).ok_or(Errno::EBADF)?;
        // One that is not bound yet may be there already.
        Ok((number, socket.bound_to().map_or(0, |place| place.queue)))
    }
}
