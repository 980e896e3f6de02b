//! Programs as machine code: compiling them for the surroundings they run in, and running them.
//!
//! Compiled code and the interpreter share frames, maps and helpers; only the program itself runs
//! differently. What cannot be compiled runs in the interpreter, and [`crate::Program::exec`] says
//! so.

mod direct_unsafe;
mod live_unsafe;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tier_tests;

use std::sync::Arc;
use std::time::Duration;

use towpath_bpf::interp::{Code, Resolver};
use towpath_bpf::verifier::Verified;
use towpath_jit::{Environment, Options, Tier, Trust, Upgrade};
use towpath_maps::MapSet;

pub(crate) use live_unsafe::call;
pub use towpath_jit::CompileError;

/// How a program is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exec {
    /// By the interpreter, which checks every access.
    #[default]
    Interp,
    /// As machine code made by Cranelift.
    Jit,
    /// As machine code made by Cranelift first, and by LLVM as soon as that is ready.
    Llvm,
}

impl Exec {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Exec::Interp => "interp",
            Exec::Jit => "jit",
            Exec::Llvm => "llvm",
        }
    }
}

/// How a program is executed at the moment, and why not as it was asked to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecStatus {
    /// What was asked for.
    pub wanted: Exec,
    /// What runs now.
    pub runs: Exec,
    /// Why nothing better will run, for a person; `None` when what was asked for runs, or is still
    /// being compiled.
    pub fallback: Option<String>,
}

/// A program in both forms.
pub(crate) type Compilation = (Arc<Code>, Arc<Compiled>);

/// Machine code of one program.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// Tier 1: there from the start, and kept, because tail calls are entered through it.
    program: Arc<towpath_jit::Program>,
    /// Tier 2, when it was asked for.
    upgrade: Option<Arc<Upgrade>>,
    /// Whether it checks what it does; helpers then do too.
    trust: Trust,
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
        exec: Exec,
        exception_callback: Option<u32>,
    ) -> Result<Arc<Compiled>, CompileError> {
        let environment = environment(verified, resolver, maps);
        let (program, upgrade) = if exec == Exec::Llvm {
            let tiers = towpath_jit::Program::compile_tiered(verified, &environment, options)?;
            (tiers.0, Some(tiers.1))
        } else {
            let program = towpath_jit::Program::compile(verified, &environment, options)?;
            (Arc::new(program), None)
        };
        let exception_callback =
            exception_callback.map(|start| towpath_bpf::interp::function_address(start as usize));
        Ok(Arc::new(Compiled { program, upgrade, trust: options.trust, exception_callback }))
    }

    /// The best code there is. Asked for at the start of each burst and callback, so that a burst
    /// runs on one tier and the next one may run on a better one.
    #[inline]
    pub(crate) fn best(&self) -> &towpath_jit::Program {
        let upgraded = self.upgrade.as_deref().and_then(Upgrade::program);
        upgraded.unwrap_or(&self.program)
    }

    /// Whether it checks what it does.
    pub(crate) fn checks(&self) -> bool {
        self.trust == Trust::Guest
    }

    /// What runs.
    pub(crate) fn exec(&self) -> Exec {
        match self.best().tier() {
            Tier::One => Exec::Jit,
            Tier::Two => Exec::Llvm,
        }
    }

    /// Tier 2, when it was asked for.
    pub(crate) fn upgrade(&self) -> Option<&Upgrade> {
        self.upgrade.as_deref()
    }

    /// How long it took to compile what runs.
    pub(crate) fn compile_time(&self) -> Duration {
        self.best().elapsed()
    }

    /// Whether bursts are preceded by prefetches.
    pub(crate) fn looks_ahead(&self) -> bool {
        self.program.looks_ahead()
    }
}

/// What a program is compiled against.
pub(crate) fn environment<'a>(
    verified: &'a Verified,
    resolver: &'a dyn Resolver,
    maps: &'a MapSet,
) -> Environment<'a> {
    Environment {
        linked: verified.linked(),
        resolver,
        maps: maps.maps(),
        callees: live_unsafe::CALLEES,
    }
}
