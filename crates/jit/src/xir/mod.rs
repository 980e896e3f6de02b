//! XIR, the intermediate representation that both compiler tiers share.
//!
//! A verified program becomes one [`Function`] for each BPF function, in SSA form with block
//! parameters. It is more explicit than bytecode: 32-bit values are separate values, each memory
//! access has an alias class, pointers keep the verifier's facts, map operations and pure helpers
//! are instructions, and the BPF stack is addressed by constant offset, so that most of it can
//! become SSA values. Passes are written once, here; Cranelift and LLVM only translate the result.

mod build;
mod cfg;
mod check;
mod function;
mod ir;
mod runtime;
mod text;

pub use build::{BuildError, build};
pub use cfg::Dominators;
pub use check::{CheckError, check};
pub use function::{BlockData, Function, Inlined, Module};
pub use ir::*;
pub use runtime::{Effects, Reach, RuntimeFunction, Stage, may_stop};
