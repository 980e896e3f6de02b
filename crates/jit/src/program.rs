//! A compiled program: code in its place and what keeps its addresses valid.

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_bpf::interp::function_slot;
use towpath_bpf::verifier::Verified;
use towpath_maps::Map;

use crate::ahead::Ahead;
use crate::clif::{self, Layout};
use crate::environment::Environment;
use crate::error::CompileError;
use crate::passes;
use crate::xir::{self, Module};

/// Intermediate instructions of a program, over all its functions; Cranelift's time and memory grow
/// with them. A million verified BPF instructions make about this many.
pub const XIR_INSTS_MAX: usize = 4_000_000;

/// How to compile.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Which passes run.
    pub passes: passes::Choice,
}

/// Machine code of one program. Dropping it frees the code: whoever runs it holds a reference.
#[derive(Debug)]
pub struct Program {
    layout: Arc<Layout>,
    ahead: Option<Ahead>,
    /// First BPF slot of each function, to find callbacks.
    starts: Vec<u32>,
    /// Their addresses are in the code.
    _maps: Vec<Arc<Map>>,
    elapsed: Duration,
}

impl Program {
    /// Compiles a verified program for this machine.
    ///
    /// # Errors
    ///
    /// [`CompileError`]; the interpreter can run the program all the same.
    pub fn compile(
        verified: &Verified,
        environment: &Environment<'_>,
        options: &Options,
    ) -> Result<Program, CompileError> {
        let started = Instant::now();
        let module = optimized(verified, environment, options)?;
        let layout = clif::load(&clif::compile(&module, environment)?)?;
        let context = passes::Context { program: verified, maps: environment.maps };
        let ahead = match options.passes.without.contains(passes::LOOK_AHEAD) {
            true => None,
            false => Ahead::compile(&module, context, environment)?,
        };
        Ok(Program {
            layout,
            ahead,
            starts: module.functions.iter().map(|function| function.start).collect(),
            _maps: environment.maps.to_vec(),
            elapsed: started.elapsed(),
        })
    }

    /// Address of the entry function: where a tail call jumps to.
    pub fn entry(&self) -> u64 {
        self.layout.address(0).unwrap_or(0)
    }

    /// Address of the function that a program's reference (as [`towpath_bpf::interp`] writes it)
    /// stands for.
    pub fn function(&self, reference: u64) -> Option<u64> {
        let slot = function_slot(reference)?;
        let index = self.starts.iter().position(|&start| start as usize == slot)?;
        self.layout.address(index)
    }

    /// The machine code, and the offset of each function in it.
    pub fn code(&self) -> (&[u8], &[usize]) {
        (self.layout.code(), self.layout.offsets())
    }

    /// How long compilation took.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether bursts are preceded by prefetches of hash buckets: the program reaches a lookup in a
    /// table that is too large for the caches now.
    pub fn looks_ahead(&self) -> bool {
        self.ahead().is_some()
    }

    /// What is to be run over a burst before the program, when that is worth it now.
    pub(crate) fn ahead(&self) -> Option<&Ahead> {
        self.ahead.as_ref().filter(|ahead| ahead.pays())
    }
}

/// The module after all passes, for `prog dump xir`.
///
/// # Errors
///
/// As [`Program::compile`].
pub fn optimized(
    verified: &Verified,
    environment: &Environment<'_>,
    options: &Options,
) -> Result<Module, CompileError> {
    let mut module = xir::build(verified)?;
    let insts = module.functions.iter().map(|function| function.insts.len()).sum();
    if insts > XIR_INSTS_MAX {
        return Err(CompileError::TooLong { insts, max: XIR_INSTS_MAX });
    }
    let context = passes::Context { program: verified, maps: environment.maps };
    passes::run(&mut module, context, &options.passes);
    Ok(module)
}

/// Cranelift's form of the module, for `prog dump clif`.
///
/// # Errors
///
/// As [`Program::compile`].
pub fn clif_text(
    verified: &Verified,
    environment: &Environment<'_>,
    options: &Options,
) -> Result<String, CompileError> {
    clif::text(&optimized(verified, environment, options)?, environment)
}
