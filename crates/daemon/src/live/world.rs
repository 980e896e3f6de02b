//! The targets that map entries may refer to: ports, workers, programs and sockets.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::RwLock;
use towpath_bpf::Errno;
use towpath_bpf::map::{MapType, Values};
use towpath_bpf::program::AttachType;
use towpath_engine::Socket as _;
use towpath_maps::Environment;
use towpath_objects::Objects;
use towpath_xdp::program::Surroundings;
use towpath_xsk::Sockets;

/// The existing targets, which maps may query at any time, even during changes of the engine.
#[derive(Debug, Default)]
pub(crate) struct Known {
    workers: usize,
    ifindexes: RwLock<BTreeSet<u32>>,
    /// Registry of programs.
    surroundings: Weak<Surroundings>,
    sockets: OnceLock<Weak<Sockets>>,
}

impl Known {
    pub(crate) fn new(workers: usize, registry: &Objects) -> Known {
        let surroundings = Arc::downgrade(registry.shared().surroundings());
        Known { workers, surroundings, ..Known::default() }
    }

    /// Sets the registry of sockets, once.
    pub(super) fn set_sockets(&self, sockets: &Arc<Sockets>) {
        let _already = self.sockets.set(Arc::downgrade(sockets));
    }

    pub(crate) fn set_ifindexes(&self, ifindexes: BTreeSet<u32>) {
        *self.ifindexes.write() = ifindexes;
    }
}

impl Environment for Known {
    fn has_device(&self, ifindex: u32) -> bool {
        let known = self.ifindexes.read();
        known.contains(&ifindex)
    }

    fn has_cpu(&self, cpu: u32) -> bool {
        (cpu as usize) < self.workers
    }

    fn program(&self, number: u32, kind: MapType) -> Result<u32, Errno> {
        let surroundings = self.surroundings.upgrade();
        let attach = surroundings.and_then(|known| known.programs.attach(number));
        match (kind.values(), attach) {
            (Values::Program, Some(AttachType::Xdp))
            | (Values::Device, Some(AttachType::Devmap))
            | (Values::Cpu, Some(AttachType::Cpumap)) => Ok(number),
            (Values::Program, None) => Err(Errno::EBADF),
            _ => Err(Errno::EINVAL),
        }
    }

    fn socket(&self, number: u32) -> Result<(u32, u32), Errno> {
        let sockets = self.sockets.get().and_then(Weak::upgrade).ok_or(Errno::EBADF)?;
        let socket = sockets.get(number).filter(|socket| socket.is_open()).ok_or(Errno::EBADF)?;
        // A socket may be stored before it is bound.
        Ok((number, socket.bound_to().map_or(0, |place| place.queue)))
    }
}
