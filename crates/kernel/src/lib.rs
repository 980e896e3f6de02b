//! The running kernel as one more engine for programs: the reference for Towpath's behaviour.
//!
//! A [`Linked`] program and its maps are loaded through `bpf(2)` and run with `BPF_PROG_TEST_RUN`,
//! so the same bytes go through Towpath's verifier and interpreter and through the kernel's. This
//! crate is small on purpose, and does not use libbpf: linking was done before, by the code under
//! test.

mod area_unsafe;
mod arena_unsafe;
mod attach;
mod events_unsafe;
mod hint_program;
mod image;
mod live;
mod live_program;
mod live_unsafe;
mod map;
mod namespace;
mod poison;
mod printed;
mod program;
mod run;
mod steer;
mod sys_unsafe;
mod types;
mod uapi;

pub use area_unsafe::{Area, Reply};
pub use attach::{AttachMode, IngressDrop, XdpLink};
pub use events_unsafe::{PerfListeners, RingReader};
pub use hint_program::DriverHints;
pub use live::{LiveFrames, LiveSent};
pub use map::{Entry, KernelMap, MapError, MapSet};
pub use namespace::{Background, Namespace};
pub use poison::Poisoned;
pub use printed::PrintedLines;
pub use program::{KernelProgram, LoadError, LoadOptions, ProgramInfo};
pub use run::{RunError, TestRun, TestRunResult, XdpMd};
pub use steer::{Steering, Unserved};

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::{Errno, Insn, Linked, MapDef};

/// A kernel that accepts programs from this process.
#[derive(Debug)]
pub struct Kernel {
    types: types::KernelTypes,
    cpus: usize,
}

/// Reason why the running kernel can't be used, as a text that fits behind "skipped: ".
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The process may not use `bpf(2)`.
    #[error(
        "bpf(2) is not permitted here: run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    NotPermitted,
    /// There is no such system call, or no XDP.
    #[error("this kernel has no bpf(2) for XDP programs: {0}")]
    Missing(Errno),
}

impl Kernel {
    /// Finds out whether programs can be loaded, by loading the smallest one.
    pub fn open() -> Result<Self, Unavailable> {
        let kernel = Kernel { types: types::KernelTypes::default(), cpus: map::possible_cpus() };
        let insns = [Insn::new(0xb7, 0, 0, 0, 2), Insn::new(0x95, 0, 0, 0, 0)];
        match program::probe(&insns) {
            Ok(()) => Ok(kernel),
            Err(Errno::EPERM | Errno::EACCES) => Err(Unavailable::NotPermitted),
            Err(errno) => Err(Unavailable::Missing(errno)),
        }
    }

    /// Creates one kernel map for each definition, in order, fills the data sections and the slots
    /// that hold maps, and freezes read-only sections.
    pub fn load_maps(&self, definitions: &[MapDef]) -> Result<MapSet, MapError> {
        MapSet::create(definitions, self.cpus)
    }

    /// Loads a program; `maps` are those made from [`Linked::maps`].
    pub fn load(&self, linked: &Linked, maps: &MapSet) -> Result<KernelProgram, LoadError> {
        self.load_with(linked, maps, &LoadOptions::default())
    }

    /// As [`Kernel::load`], with options for logging and the program's type.
    pub fn load_with(
        &self,
        linked: &Linked,
        maps: &MapSet,
        options: &LoadOptions,
    ) -> Result<KernelProgram, LoadError> {
        program::load(linked, maps, &self.types, options)
    }

    /// The running kernel's types, e.g. to link against; empty if it publishes none.
    pub fn btf(&self) -> &Arc<Btf> {
        self.types.btf()
    }

    /// Number of possible CPUs: the number of values in an element of a per-CPU map.
    pub fn possible_cpus(&self) -> usize {
        self.cpus
    }
}

/// Moves the calling thread into a network namespace of its own with nothing but a loopback device,
/// so that redirects, routes and sockets are the same on every machine.
pub fn isolate_network() -> Result<(), Errno> {
    sys_unsafe::unshare_network()
}

#[cfg(test)]
mod tests;
