//! The objects themselves, and the handles that descriptors hold.
//!
//! References are counted by `Arc`: an object lives as long as a descriptor, a pin, a program that
//! uses it, a map that holds it or a device has one, and its id is given up with the last.

pub(crate) mod btf;
pub(crate) mod contents;
pub(crate) mod link;
pub(crate) mod map;
pub(crate) mod name;
pub(crate) mod program;

use std::fmt;
use std::sync::Arc;

use towpath_bpf::Errno;

pub use btf::BtfObject;
pub use link::LinkObject;
pub use map::{MapObject, MapUse};
pub use name::Name;
pub use program::ProgramObject;

/// The object behind a descriptor. Cloning it is `dup(2)`.
#[derive(Debug, Clone)]
pub struct Handle {
    /// The object.
    pub object: Object,
    /// Access rights of this descriptor (`f_mode`).
    pub mode: Mode,
}

/// An object that descriptors and pins refer to.
#[derive(Debug, Clone)]
pub enum Object {
    /// A map.
    Map(MapUse),
    /// A program.
    Program(Arc<ProgramObject>),
    /// Types.
    Btf(Arc<BtfObject>),
    /// A link.
    Link(Arc<LinkObject>),
    /// A request for run-time statistics (`BPF_ENABLE_STATS`).
    Stats,
}

/// Access rights of a descriptor; programs, links and BTF are always open for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// `O_RDWR`
    ReadWrite,
    /// `O_RDONLY`
    Read,
    /// `O_WRONLY`
    Write,
}

/// A program's tag: the first 8 bytes of the SHA-256 of its instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub [u8; 8]);

impl Handle {
    /// Open for reading and writing.
    pub(crate) fn new(object: Object) -> Handle {
        Handle { object, mode: Mode::ReadWrite }
    }

    /// The map it stands for; `EINVAL` for anything else (`__bpf_map_get`).
    pub(crate) fn map(&self) -> Result<&MapUse, Errno> {
        if let Object::Map(map) = &self.object { Ok(map) } else { Err(Errno::EINVAL) }
    }

    /// The program it stands for; `EINVAL` for anything else (`____bpf_prog_get`).
    pub(crate) fn program(&self) -> Result<&Arc<ProgramObject>, Errno> {
        if let Object::Program(program) = &self.object { Ok(program) } else { Err(Errno::EINVAL) }
    }

    /// The link it stands for; `EINVAL` for anything else (`bpf_link_get_from_fd`).
    pub(crate) fn link(&self) -> Result<&Arc<LinkObject>, Errno> {
        if let Object::Link(link) = &self.object { Ok(link) } else { Err(Errno::EINVAL) }
    }

    /// The types it stands for; `EINVAL` for anything else (`btf_get_by_fd`).
    pub(crate) fn btf(&self) -> Result<&Arc<BtfObject>, Errno> {
        if let Object::Btf(btf) = &self.object { Ok(btf) } else { Err(Errno::EINVAL) }
    }
}

impl Mode {
    /// From `BPF_F_RDONLY` and `BPF_F_WRONLY`, which exclude each other (`bpf_get_file_flag`).
    pub(crate) fn from_flags(flags: u32) -> Result<Mode, Errno> {
        match flags & (BPF_F_RDONLY | BPF_F_WRONLY) {
            0 => Ok(Mode::ReadWrite),
            BPF_F_RDONLY => Ok(Mode::Read),
            BPF_F_WRONLY => Ok(Mode::Write),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Whether contents may be read.
    pub fn may_read(self) -> bool {
        self != Mode::Write
    }

    /// Whether contents may be changed.
    pub fn may_write(self) -> bool {
        self != Mode::Read
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

pub(crate) use towpath_maps::flags::{BPF_F_RDONLY, BPF_F_WRONLY};
