//! A compiled program: its code, and the objects that keep the code's addresses valid.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_bpf::interp::function_slot;
use towpath_bpf::verifier::Verified;
use towpath_maps::{Map, ProgramSlots};

use crate::ahead::Ahead;
use crate::clif;
use crate::environment::Environment;
use crate::error::CompileError;
use crate::llvm::{self, Job, LLVM_INSTS_MAX, LlvmForm};
use crate::tier2::{self, Task, Upgrade};
use crate::trust::Trust;
use crate::xir::{self, Module};
use crate::{passes, perf};

/// Largest number of intermediate instructions of a program, over all its functions; Cranelift's
/// time and memory grow with them. A million verified BPF instructions give about this many.
pub const XIR_INSTS_MAX: usize = 4_000_000;

/// Options of a compilation.
#[derive(Debug, Clone)]
pub struct Options {
    /// Choice of passes.
    pub passes: passes::Choice,
    /// Largest number of bytes of executable memory for all programs of the process.
    pub code_bytes_max: usize,
    /// Tier 2: longest time for one program's compilation.
    pub tier2_limit: Duration,
    /// Tier 2: largest number of intermediate instructions of a program ([`LLVM_INSTS_MAX`]).
    pub tier2_insts_max: usize,
    /// Tier 2: place of the cached machine code.
    pub cache: CodeCache,
    /// Trust in the verifier.
    pub trust: Trust,
    /// Whether machine code is masked against speculation: addresses checked by a branch are
    /// invalid where a processor mispredicted the branch (Spectre v1), and no load from the stack
    /// overtakes a store (v4). Tier 2 has no such code, and if tier 1 has none for this machine,
    /// the program can't be compiled.
    pub mask_speculation: bool,
    /// Approximate limit of one run of a [`Trust::Guest`] program, in instructions of XIR;
    /// [`crate::GUEST_BUDGET`] if `None`. Each program that a tail call leads to has the same limit
    /// again.
    pub budget: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            passes: passes::Choice::default(),
            code_bytes_max: 1 << 30,
            tier2_limit: Duration::from_secs(60),
            tier2_insts_max: LLVM_INSTS_MAX,
            cache: CodeCache::User,
            trust: Trust::default(),
            mask_speculation: false,
            budget: None,
        }
    }
}

/// Place of machine code that is kept between processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CodeCache {
    /// `$XDG_CACHE_HOME/towpath`, or `~/.cache/towpath`.
    #[default]
    User,
    /// This directory, which no other user may write to.
    Directory(PathBuf),
    /// No cache.
    Off,
}

impl CodeCache {
    /// The directory of the cache, if there is one.
    fn directory(&self) -> Option<PathBuf> {
        match self {
            CodeCache::Off => None,
            CodeCache::Directory(directory) => Some(directory.clone()),
            CodeCache::User => {
                let absolute = |name| std::env::var_os(name).map(PathBuf::from);
                let cache = absolute("XDG_CACHE_HOME").filter(|path| path.is_absolute());
                let cache = cache.or_else(|| Some(absolute("HOME")?.join(".cache")));
                Some(cache.filter(|path| path.is_absolute())?.join("towpath"))
            }
        }
    }
}

/// The compiler that made a program's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Cranelift.
    One,
    /// LLVM.
    Two,
}

/// Machine code of one program. Dropping it frees the code: every thread that runs it holds a
/// reference.
#[derive(Debug)]
pub struct Program {
    body: Body,
    /// Look-ahead functions of tier 1; tier 2 uses the same.
    ahead: Option<Ahead>,
    /// First BPF slot of each function, to find callbacks.
    starts: Vec<u32>,
    /// Maps, whose addresses are in the code.
    maps: Vec<Arc<Map>>,
    /// Slots of program arrays, whose addresses are in the code.
    slots: Vec<Option<Arc<ProgramSlots>>>,
    elapsed: Duration,
}

/// Origin of a machine instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Slot of the BPF instruction; `None` for code that belongs to no instruction, such as the
    /// loop over the frames.
    pub slot: Option<u32>,
}

impl Origin {
    /// The origin of the code at an offset, from the list of offsets at which origins begin.
    fn among(origins: &[(usize, u32)], offset: usize) -> Origin {
        let behind = origins.partition_point(|&(start, _)| start <= offset);
        Origin { slot: behind.checked_sub(1).map(|at| origins[at].1) }
    }
}

#[derive(Debug)]
pub(crate) enum Body {
    /// Tier 1.
    Clif(clif::Layout),
    /// Tier 2, and the same program on tier 1, through which tail calls enter it.
    Llvm(llvm::Layout, Arc<Program>),
}

impl Program {
    /// Compiles a verified program for this machine.
    ///
    /// # Errors
    ///
    /// Fails with a [`CompileError`]; the interpreter can run the program all the same.
    pub fn compile(
        verified: &Verified,
        environment: &Environment<'_>,
        options: &Options,
    ) -> Result<Program, CompileError> {
        let started = Instant::now();
        let module = optimized(verified, environment, options)?;
        Program::on_tier1(verified, &module, environment, options, started)
    }

    /// As [`Program::compile`], and starts tier 2's compilation in the background.
    ///
    /// # Errors
    ///
    /// As [`Program::compile`]. If tier 2 can't compile the program, [`Upgrade::failure`] has the
    /// reason.
    pub fn compile_tiered(
        verified: &Verified,
        environment: &Environment<'_>,
        options: &Options,
    ) -> Result<(Arc<Program>, Arc<Upgrade>), CompileError> {
        let started = Instant::now();
        let module = optimized(verified, environment, options)?;
        let below = Program::on_tier1(verified, &module, environment, options, started)?;
        let below = Arc::new(below);
        let upgrade = match below.upgrade_job(module, environment, options) {
            Err(error) => Upgrade::refused(error),
            Ok(job) => {
                let upgrade = Upgrade::new(options.tier2_limit);
                let (below, upgrade) = (Arc::clone(&below), Arc::clone(&upgrade));
                tier2::submit(Task { job, upgrade: Arc::clone(&upgrade), below });
                upgrade
            }
        };
        Ok((below, upgrade))
    }

    fn on_tier1(
        verified: &Verified,
        module: &Module,
        environment: &Environment<'_>,
        options: &Options,
        started: Instant,
    ) -> Result<Program, CompileError> {
        let layout = clif::load(&clif::compile(module, environment)?, options.code_bytes_max)?;
        perf::note("jit", module, layout.code(), layout.offsets());
        let context = context(verified, environment, options);
        // Looking ahead reads packets without checks.
        let no_look = options.trust == Trust::Guest || options.mask_speculation;
        let ahead = match no_look || options.passes.without.contains(passes::LOOK_AHEAD) {
            true => None,
            false => Ahead::compile(module, context, environment, options.code_bytes_max)?,
        };
        Ok(Program {
            body: Body::Clif(layout),
            ahead,
            starts: module.functions.iter().map(|function| function.start).collect(),
            maps: environment.maps.to_vec(),
            slots: environment.slots.to_vec(),
            elapsed: started.elapsed(),
        })
    }

    fn upgrade_job(
        &self,
        module: Module,
        environment: &Environment<'_>,
        options: &Options,
    ) -> Result<Job, CompileError> {
        let insts = module.live_insts();
        let max = options.tier2_insts_max;
        if insts > max {
            return Err(CompileError::TooLong { insts, max });
        }
        let Body::Clif(layout) = &self.body else {
            return Err(CompileError::Llvm("the program is on tier 2".into()));
        };
        let enter = layout.way_in();
        let (cache, bytes_max) = (options.cache.directory(), options.code_bytes_max);
        Job::new(module, environment, enter, cache, bytes_max)
    }

    /// The program `below`, with tier 2's code for it.
    pub(crate) fn on_tier2(
        layout: llvm::Layout,
        below: &Arc<Program>,
        elapsed: Duration,
    ) -> Program {
        let (starts, maps, slots) = (below.starts.clone(), below.maps.clone(), below.slots.clone());
        let body = Body::Llvm(layout, Arc::clone(below));
        Program { body, ahead: None, starts, maps, slots, elapsed }
    }

    /// Address of the entry function on tier 1: the target of tail calls.
    pub fn entry(&self) -> u64 {
        match &self.body {
            Body::Clif(layout) => layout.address(0).unwrap_or(0),
            Body::Llvm(_, below) => below.entry(),
        }
    }

    /// Number of the function that a program's reference (in the form of [`towpath_bpf::interp`])
    /// refers to.
    pub(crate) fn function(&self, reference: u64) -> Option<usize> {
        let slot = function_slot(reference)?;
        self.starts.iter().position(|&start| start as usize == slot)
    }

    /// The machine code, and the offset of each function in it: on tier 1 in the program's order,
    /// then trampolines and the batch entry; on tier 2 the batch entry, which contains most of the
    /// program, and the entries for callbacks.
    pub fn code(&self) -> (&[u8], Vec<usize>) {
        match &self.body {
            Body::Clif(layout) => (layout.code(), layout.offsets().to_vec()),
            Body::Llvm(layout, _) => (layout.code(), layout.offsets()),
        }
    }

    /// Offsets at which the code of another BPF instruction begins, with the slot of that
    /// instruction, in order.
    pub fn origins(&self) -> &[(usize, u32)] {
        match &self.body {
            Body::Clif(layout) => layout.origins(),
            Body::Llvm(layout, _) => layout.origins(),
        }
    }

    /// Origin of the machine instruction at an address; `None` if it is not part of this program.
    pub fn origin_of(&self, address: u64) -> Option<Origin> {
        let stages = self.ahead.iter().flat_map(|ahead| &ahead.stages);
        match &self.body {
            Body::Clif(layout) => {
                let layouts = std::iter::once(layout).chain(stages);
                let place = |layout: &clif::Layout| {
                    Some(Origin::among(layout.origins(), layout.offset_of(address)?))
                };
                layouts.into_iter().find_map(place)
            }
            Body::Llvm(layout, below) => match layout.offset_of(address) {
                Some(offset) => Some(Origin::among(layout.origins(), offset)),
                None => below.origin_of(address),
            },
        }
    }

    /// The compiler that made the code.
    pub fn tier(&self) -> Tier {
        match &self.body {
            Body::Clif(_) => Tier::One,
            Body::Llvm(..) => Tier::Two,
        }
    }

    /// Duration of the compilation, on tier 2 in the background.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// Whether bursts are preceded by prefetches of hash buckets: the program reaches a lookup in a
    /// table that is currently too large for the caches.
    pub fn looks_ahead(&self) -> bool {
        self.ahead().is_some()
    }

    /// Functions to run over a burst before the program, if that currently pays.
    pub(crate) fn ahead(&self) -> Option<&Ahead> {
        let ahead = match &self.body {
            Body::Clif(_) => &self.ahead,
            Body::Llvm(_, below) => &below.ahead,
        };
        ahead.as_ref().filter(|ahead| ahead.pays())
    }
}

/// The module after all passes, for `prog dump xir`.
///
/// # Errors
///
/// Fails as [`Program::compile`] does.
pub fn optimized(
    verified: &Verified,
    environment: &Environment<'_>,
    options: &Options,
) -> Result<Module, CompileError> {
    let mut module = xir::build(verified)?;
    let insts: usize = module.functions.iter().map(|function| function.insts.len()).sum();
    if insts > XIR_INSTS_MAX {
        return Err(CompileError::TooLong { insts, max: XIR_INSTS_MAX });
    }
    let context = context(verified, environment, options);
    passes::run(&mut module, context, &options.passes);
    if options.trust == Trust::Guest {
        passes::guard(&mut module, context, options.budget.unwrap_or(crate::trust::GUEST_BUDGET));
    }
    if options.mask_speculation {
        passes::mask(&mut module);
    }
    Ok(module)
}

/// Cranelift's form of the module, for `prog dump clif`.
///
/// # Errors
///
/// Fails as [`Program::compile`] does.
pub fn clif_text(
    verified: &Verified,
    environment: &Environment<'_>,
    options: &Options,
) -> Result<String, CompileError> {
    clif::text(&optimized(verified, environment, options)?, environment)
}

/// LLVM's form of the module, for `prog dump llvm`.
///
/// # Errors
///
/// Fails as [`Program::compile`] does; LLVM is needed for any form but [`LlvmForm::Given`].
pub fn llvm_text(
    verified: &Verified,
    environment: &Environment<'_>,
    options: &Options,
    form: LlvmForm,
) -> Result<String, CompileError> {
    llvm::text(&optimized(verified, environment, options)?, environment, form)
}

fn context<'a>(
    verified: &'a Verified,
    environment: &Environment<'a>,
    options: &Options,
) -> passes::Context<'a> {
    passes::Context { program: verified, maps: environment.maps, trust: options.trust }
}
