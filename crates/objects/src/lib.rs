//! Programs, maps, links and BTF as the kernel's `bpf(2)` sees them: ids, names, tags, pins,
//! references, descriptors.
//!
//! [`Objects::bpf`] has the semantics of the system call: bytes in, a number or an errno out. It
//! reads and writes its caller's memory through [`Caller`], so that the caller may be this process,
//! one that is supervised, or a guest. Everything else here is a view of it. `docs/objects-api.md`
//! lists commands and differences; `tests/` asks the running kernel the same questions.

#![forbid(unsafe_code)]

pub mod api;
mod attach;
mod attr;
mod bpffs;
mod caller;
mod command;
mod ids;
mod object;
mod objects;
mod run;
mod sha256;
mod test_run;
mod world;

pub use api::{ApiError, Reference, Run, RunResult, Selector, Session, exactly};
pub use attach::{AttachError, Device, Devices, NoDevices, XdpMode, XdpRequest, XdpState};
pub use attr::{ATTR_BYTES, btf_load, prog_load};
pub use bpffs::BPFFS_ROOT;
pub use caller::{Caller, Process};
pub use command::Command;
pub use command::map::MapRequest;
pub use object::contents::Bytes;
pub use object::map::flatten;
pub use object::{
    BtfObject, Handle, LinkObject, MapObject, MapUse, Mode, Name, Object, ProgramObject, Tag,
};
pub use objects::{Objects, Settings};
pub use test_run::{LiveRun, TIME_MAX, TestRun};
