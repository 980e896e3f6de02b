//! Verified programs to machine code, faster than the kernel's: through one intermediate
//! representation that both compiler tiers share.
//!
//! ```text
//! Verified -> xir::build -> passes::run -> clif::compile -> Program
//! ```

#![deny(unsafe_code)]

mod ahead;
mod clif;
mod environment;
mod error;
mod machine_unsafe;
pub mod passes;
mod program;
mod run_unsafe;
mod runtime_unsafe;
pub mod xir;

pub use environment::Environment;
pub use error::CompileError;
pub use machine_unsafe::{Callee, Callees, Descriptor, Direct, Machine, Packet};
pub use program::{Options, Program, XIR_INSTS_MAX, clif_text, optimized};
