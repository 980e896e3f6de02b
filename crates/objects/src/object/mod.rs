//! The objects themselves, and what a descriptor holds of them.
//!
//! References are counted by `Arc`: an object lives as long as a descriptor, a pin, a program that
//! uses it, a map that holds it or a device has one, and its id is given up with the last.

pub(crate) mod map;
pub(crate) mod name;

use towpath_bpf::Errno;

pub use map::{MapObject, MapUse};
pub use name::Name;

/// What a descriptor stands for. Cloning it is `dup(2)`.
#[derive(Debug, Clone)]
pub struct Handle {
    /// The object.
    pub object: Object,
    /// What may be done through this descriptor (`f_mode`).
    pub mode: Mode,
}

/// An object that descriptors and pins refer to.
#[derive(Debug, Clone)]
pub enum Object {
    /// A map.
    Map(MapUse),
}

/// What a descriptor is open for; programs, links and BTF are always open for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// `O_RDWR`
    ReadWrite,
    /// `O_RDONLY`
    Read,
    /// `O_WRONLY`
    Write,
}

impl Handle {
    /// The map it stands for; `EINVAL` for anything else (`__bpf_map_get`).
    pub(crate) fn map(&self) -> Result<&MapUse, Errno> {
        let Object::Map(map) = &self.object;
        Ok(map)
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

    /// Whether contents may be looked at.
    pub fn may_read(self) -> bool {
        self != Mode::Write
    }

    /// Whether contents may be changed.
    pub fn may_write(self) -> bool {
        self != Mode::Read
    }
}

pub(crate) use towpath_maps::flags::{BPF_F_RDONLY, BPF_F_WRONLY};
