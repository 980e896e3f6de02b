//! XDP in user space, as a library: opens a compiled XDP object file, proves its programs safe by
//! the kernel's rules, compiles them, and runs them on frames that you own. No root, no kernel
//! module, no NIC.
//!
//! ```
//! # #[cfg(feature = "jit")]
//! # {
//! use towpath::{Action, Env, Frame, LoadOptions, Object, Program, Select};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bytes = include_bytes!("../../../tests/data/kernel-oracle/xdp_helpers.bpf.o");
//! let object = Object::open(bytes, "xdp_helpers.bpf.o")?;
//! let options = LoadOptions { exec: towpath::Exec::Jit, ..LoadOptions::default() };
//! let program = Program::load(&object, Select::Name("prog"), &Env::builtin(), &options)?;
//! let (mut worker, mut frame) = (program.worker(0), Frame::new(&[0; 64])?);
//! let verdict = program.run(&mut worker, &mut frame)?;
//! assert_eq!(verdict.action, Action::Pass);
//! let results = program.maps().by_name("resm").expect("the object defines it");
//! assert_eq!(results.user().lookup(&0u32.to_ne_bytes(), 0)?.bytes()[8], 64, "what it saw");
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! The steps, each with what it gives:
//!
//! - [`Object::open`] reads the file: its programs, maps and globals ([`Object::set_global`],
//!   [`Object::set_map_size`]).
//! - [`Loader`] creates the object's maps; [`Loader::program`] links, verifies and compiles one of
//!   its programs over them. A refusal says instruction, C line and what to do
//!   ([`verifier::Rejection`]). [`Program::load`] is both for one program.
//! - [`Program::run`] and [`Program::run_burst`] run it on [`Frame`]s, by a [`Worker`] for each
//!   thread.
//! - [`maps`] are read and written while programs run, as bytes or as JSON through BTF
//!   ([`maps::typed`]); [`maps::mapfile`] fills them from a document.
//!
//! To verify only, leave the feature `jit` out (`default-features = false`), and with it the code
//! that runs programs; then no compiler is built:
//!
//! ```
//! use towpath::{Env, Object, verifier};
//!
//! # let bytes = include_bytes!("../../../tests/data/kernel-oracle/xdp_helpers.bpf.o");
//! let object = Object::open(bytes, "xdp_helpers.bpf.o")?;
//! let linked = object.link(0, &Env::builtin())?;
//! match verifier::verify(linked, &verifier::Options::default()) {
//!     Ok(verified) => println!("accepted: {} facts", verified.facts().len()),
//!     Err(rejection) => println!("refused: {}", rejection.message),
//! }
//! # Ok::<(), towpath::ObjectError>(())
//! ```
//!
//! The feature `disasm` adds `program::disassemble`, which shows the machine code of
//! [`Program::code_listing`] as text.
//!
//! Ports, bonds and sockets are the daemon's (`towpath up`); this crate has no I/O of its own.

#![forbid(unsafe_code)]

#[cfg(feature = "jit")]
use std::sync::OnceLock;

pub use towpath_bpf::object::{GlobalError, GlobalValue, MapSizeError, ObjectError, SelectError};
pub use towpath_bpf::{Env, Errno, Linked, MapDef, Object, interp, verifier};
#[cfg(feature = "jit")]
pub use towpath_jit::llvm_library;
#[cfg(feature = "jit")]
pub use towpath_xdp::{
    Action, Arena, Burst, CallError, Clock, CompileError, Exec, ExecStatus, Finding, FindingKind,
    Frame, FrameError, KnownConnection, LoadError, LoadOptions, Loader, Pool, Program,
    RedirectTarget, RxInfo, Sanitize, SanitizeError, Sanitizer, Select, Severity, Tally, Trace,
    Trust, Verdict, Worker, frame, host, program,
};

/// Maps: what programs and users keep in them.
pub mod maps {
    pub use towpath_bpf::map::{Keys, MapType, Values};
    pub use towpath_maps::{Domain, Map, MapError, MapSet, Value, mapfile, perf, ringbuf, typed};
}

/// What [`host::kernel_types`] gives, read once: the running kernel's types are megabytes.
#[cfg(feature = "jit")]
pub fn kernel_types() -> &'static Env {
    static KERNEL: OnceLock<Env> = OnceLock::new();
    KERNEL.get_or_init(host::kernel_types)
}
