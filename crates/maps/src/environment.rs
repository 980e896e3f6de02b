//! Queries of target maps about their surroundings: the devices, CPUs, programs and sockets that
//! exist.

use towpath_bpf::Errno;
use towpath_bpf::program::MapType;

/// Answers for maps whose values stand for something outside the map. The default answers accept
/// everything, which fits a run over a capture, where targets are only recorded.
pub trait Environment: std::fmt::Debug + Send + Sync {
    /// Whether a device with this ifindex (not 0) exists.
    fn has_device(&self, _ifindex: u32) -> bool {
        true
    }

    /// Whether a CPU with this number is possible.
    fn has_cpu(&self, _cpu: u32) -> bool {
        true
    }

    /// The id of the program that user space names by `number` in a map of kind `kind`; an error
    /// when it may not be used there. Ids are never 0.
    fn program(&self, number: u32, _kind: MapType) -> Result<u32, Errno> {
        if number == 0 { Err(Errno::EBADF) } else { Ok(number) }
    }

    /// The id and queue of the AF_XDP socket that user space names by `number`. Ids are never 0.
    fn socket(&self, number: u32) -> Result<(u32, u32), Errno> {
        if number == 0 { Err(Errno::EBADF) } else { Ok((number, 0)) }
    }
}

/// An environment where everything exists.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnyEnvironment;

impl Environment for AnyEnvironment {}

/// An index of programs by the ids in program arrays.
pub trait ProgramIndex: std::fmt::Debug + Send + Sync {
    /// The address that stands for a program; 0 when there is none of this id. When that changes,
    /// [`ProgramSlots::refresh`](crate::ProgramSlots::refresh) is called for each user of the
    /// address.
    fn address(&self, id: u32) -> u64;
}
