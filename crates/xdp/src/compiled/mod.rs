//! Programs as machine code: compiling them for the surroundings they run in, and running them.
//!
//! Compiled code and the interpreter share frames, maps and helpers; only the program itself runs
//! differently. Programs that cannot be compiled run in the interpreter, as
//! [`crate::Program::exec`] tells.

#[cfg(test)]
mod brake_tests;
mod choice;
mod direct_unsafe;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod inline_tests;
mod live_unsafe;
#[cfg(test)]
mod tail_tests;
mod tail_unsafe;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tier_tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use towpath_bpf::interp::{Fault, Resolver};
use towpath_bpf::verifier::Verified;
use towpath_jit::{Environment, Options, Origin, Tier, Trust, Upgrade};
use towpath_maps::{MapSet, ProgramSlots};

use choice::{Choice, Measured};
pub(crate) use live_unsafe::{CodeStop, Judged, call};
pub(crate) use tail_unsafe::bridge;
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
    /// As machine code made by Cranelift first, then by the faster of the two compilers, measured
    /// on the program's frames.
    Auto,
}

impl Exec {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Exec::Interp => "interp",
            Exec::Jit => "jit",
            Exec::Llvm => "llvm",
            Exec::Auto => "auto",
        }
    }
}

/// How a program is executed at present, and why not as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecStatus {
    /// The requested executor.
    pub wanted: Exec,
    /// The current executor.
    pub runs: Exec,
    /// Human-readable reason why no better executor will run; `None` if the requested one runs, or
    /// is still being compiled.
    pub fallback: Option<String>,
    /// The measurements behind the choice of [`Exec::Auto`], once it is made.
    pub measured: Option<String>,
}

/// Machine code of one program.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// Tier 1: available from the start, and kept, because tail calls enter through it.
    program: Arc<towpath_jit::Program>,
    /// Tier 2, if it was requested.
    upgrade: Option<Arc<Upgrade>>,
    /// The measured choice between the tiers, with [`Exec::Auto`].
    choice: Option<Choice>,
    /// Whether the code checks its accesses; helpers then do so, too.
    trust: Trust,
    /// Reference to the function that turns the cookie of `bpf_throw` into a return value.
    exception_callback: Option<u64>,
    /// The machine fault that stopped it.
    stopped: OnceLock<Fault>,
}

impl Compiled {
    /// Compiles a program for the maps it was resolved against.
    pub(crate) fn new(
        verified: &Verified,
        resolver: &dyn Resolver,
        maps: &MapSet,
        slots: &[Option<Arc<ProgramSlots>>],
        options: &Options,
        exec: Exec,
    ) -> Result<Arc<Compiled>, CompileError> {
        let environment = environment(verified, resolver, maps, slots);
        let (program, upgrade) = if matches!(exec, Exec::Llvm | Exec::Auto) {
            let tiers = towpath_jit::Program::compile_tiered(verified, &environment, options)?;
            (tiers.0, Some(tiers.1))
        } else {
            let program = towpath_jit::Program::compile(verified, &environment, options)?;
            (Arc::new(program), None)
        };
        let exception_callback = verified.exception_callback();
        let exception_callback =
            exception_callback.map(|start| towpath_bpf::interp::function_address(start as usize));
        Ok(Arc::new(Compiled {
            program,
            upgrade,
            choice: (exec == Exec::Auto).then(Choice::default),
            trust: options.trust,
            exception_callback,
            stopped: OnceLock::new(),
        }))
    }

    /// Stops the program for good, because of `fault`.
    pub(crate) fn stop(&self, fault: &Fault) {
        // Only the first reason is kept.
        self.stopped.get_or_init(|| fault.clone());
    }

    /// The fault that stopped it, if any. Costs one load and a branch.
    #[inline]
    pub(crate) fn stopped(&self) -> Option<&Fault> {
        self.stopped.get()
    }

    /// The origin of the machine instruction at an address, if it is in this code.
    pub(crate) fn origin_of(&self, address: u64) -> Option<Origin> {
        let upgraded = self.upgrade.as_deref().and_then(Upgrade::program);
        let tiers = [Some(&*self.program), upgraded].into_iter().flatten();
        tiers.into_iter().find_map(|tier| tier.origin_of(address))
    }

    /// The best code available. Read at the start of each burst and callback, so that a burst runs
    /// on one tier and the next one may run on a better one.
    #[inline]
    pub(crate) fn best(&self) -> &towpath_jit::Program {
        let Some(upgraded) = self.upgrade.as_deref().and_then(Upgrade::program) else {
            return &self.program;
        };
        let tier = match &self.choice {
            None => Tier::Two,
            Some(choice) => choice.made().map_or(Tier::One, |measured| measured.faster()),
        };
        if tier == Tier::Two { upgraded } else { &self.program }
    }

    /// The code for a burst: the best one, or in a trial the one in turn, with the trial that
    /// measures it.
    #[inline]
    fn for_burst(&self) -> (&towpath_jit::Program, Option<&Choice>) {
        match &self.choice {
            Some(choice) if choice.made().is_none() => self.in_trial(choice),
            _ => (self.best(), None),
        }
    }

    #[cold]
    fn in_trial<'a>(
        &'a self,
        choice: &'a Choice,
    ) -> (&'a towpath_jit::Program, Option<&'a Choice>) {
        let Some(upgraded) = self.upgrade.as_deref().and_then(Upgrade::program) else {
            return (&self.program, None);
        };
        let program = if choice.turn() == Tier::Two { upgraded } else { &*self.program };
        (program, Some(choice))
    }

    /// The measurements behind the choice between the tiers, if it is made.
    pub(crate) fn measured(&self) -> Option<Measured> {
        self.choice.as_ref().and_then(Choice::made)
    }

    /// Address at which tail calls enter it.
    pub(crate) fn entry(&self) -> u64 {
        self.program.entry()
    }

    /// Whether the code checks its accesses.
    pub(crate) fn checks(&self) -> bool {
        self.trust == Trust::Guest
    }

    /// The executor of the best code.
    pub(crate) fn exec(&self) -> Exec {
        match self.best().tier() {
            Tier::One => Exec::Jit,
            Tier::Two => Exec::Llvm,
        }
    }

    /// Tier 2, if it was requested.
    pub(crate) fn upgrade(&self) -> Option<&Upgrade> {
        self.upgrade.as_deref()
    }

    /// Compile time of the code that runs.
    pub(crate) fn compile_time(&self) -> Duration {
        self.best().elapsed()
    }

    /// Whether bursts are preceded by prefetches.
    pub(crate) fn looks_ahead(&self) -> bool {
        self.program.looks_ahead()
    }
}

/// The environment that a program is compiled against.
pub(crate) fn environment<'a>(
    verified: &'a Verified,
    resolver: &'a dyn Resolver,
    maps: &'a MapSet,
    slots: &'a [Option<Arc<ProgramSlots>>],
) -> Environment<'a> {
    Environment {
        linked: verified.linked(),
        resolver,
        maps: maps.maps(),
        slots,
        callees: live_unsafe::CALLEES,
    }
}
