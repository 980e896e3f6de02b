//! What an XDP program can touch: frames, the context, verdicts, helpers and kfuncs; and the way in
//! for users of the library.
//!
//! ```
//! use towpath_bpf::{Env, Object};
//! use towpath_xdp::{Action, Frame, LoadOptions, Program, Select};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bytes = include_bytes!("../../../tests/data/kernel-oracle/xdp_helpers.bpf.o");
//! let object = Object::open(bytes, "xdp_helpers.bpf.o")?;
//! let env = Env::builtin();
//! let program = Program::load(&object, Select::Name("prog"), &env, &LoadOptions::default())?;
//! let mut worker = program.worker(0);
//! let mut frame = Frame::new(&[0; 64])?;
//! let verdict = program.run(&mut worker, &mut frame)?;
//! assert_eq!(verdict.action, Action::Pass);
//! let results = program.maps().by_name("resm").expect("the object defines it");
//! let value = results.user().lookup(&0u32.to_ne_bytes(), 0)?;
//! assert_eq!(value.bytes()[8], 64, "the length the program saw");
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod burst;
mod clock;
mod compiled;
pub mod conformance;
mod conntrack;
pub mod frame;
mod helpers;
pub mod host;
mod memory;
mod objects;
pub mod program;
mod run;
mod targets;
mod timers;
pub mod verdict;
mod worker;

pub use burst::Burst;
pub use clock::Clock;
pub use compiled::{CompileError, Exec, ExecStatus};
pub use frame::arena::Arena;
pub use frame::{Frame, FrameError, Pool, RxInfo};
pub use helpers::Trace;
pub use memory::{SharedBytes, SharedBytesMut};
pub use program::{LoadError, LoadOptions, Loader, Program, Select};
pub use towpath_jit::Trust;
pub use verdict::{Action, Destination, Target, Verdict};
pub use worker::Worker;
