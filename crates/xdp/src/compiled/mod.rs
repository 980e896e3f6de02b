//! Programs as machine code: compiling them for the surroundings they run in, and running them.
//!
//! Compiled code and the interpreter share frames, maps and helpers; only the program itself runs
//! differently. What cannot be compiled runs in the interpreter, and [`crate::Program::exec`] says
//! so.

mod direct_unsafe;
mod live_unsafe;

use std::sync::Arc;
use std::time::Duration;

use towpath_bpf::interp::{Code, Resolver};
use towpath_bpf::verifier::Verified;
use towpath_jit::{Environment, Options};
use towpath_maps::MapSet;

pub use towpath_jit::CompileError;

/// How a program is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exec {
    /// By the interpreter, which checks every access.
    #[default]
    Interp,
    /// As machine code made by Cranelift.
    Jit,
}

/// A program in both forms.
pub(crate) type Compilation = (Arc<Code>, Arc<Compiled>);

/// Machine code of one program.
#[derive(Debug)]
pub(crate) struct Compiled {
    program: towpath_jit::Program,
    /// Reference to the function that makes a return value of what `bpf_throw` was given.
    exception_callback: Option<u64>,
}

impl Compiled {
    /// Compiles a program for the maps it was resolved against.
    pub(crate) fn new(
        verified: &Verified,
        resolver: &dyn Resolver,
        maps: &MapSet,
        options: &Options,
        exception_callback: Option<u32>,
    ) -> Result<Arc<Compiled>, CompileError> {
        let environment = Environment {
            linked: verified.linked(),
            resolver,
            maps: maps.maps(),
            callees: live_unsafe::CALLEES,
        };
        let program = towpath_jit::Program::compile(verified, &environment, options)?;
        let exception_callback =
            exception_callback.map(|start| towpath_bpf::interp::function_address(start as usize));
        Ok(Arc::new(Compiled { program, exception_callback }))
    }

    /// How long compilation took.
    pub(crate) fn compile_time(&self) -> Duration {
        self.program.elapsed()
    }

    /// Whether bursts are preceded by prefetches.
    pub(crate) fn looks_ahead(&self) -> bool {
        self.program.looks_ahead()
    }
}
