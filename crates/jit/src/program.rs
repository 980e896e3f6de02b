//! A compiled program: code in its place and what keeps its addresses valid.

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

/// Intermediate instructions of a program, over all its functions; Cranelift's time and memory grow
/// with them. A million verified BPF instructions make about this many.
pub const XIR_INSTS_MAX: usize = 4_000_000;

/// How to compile.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which passes run.
    pub passes: passes::Choice,
    /// Bytes of executable memory that all programs of the process together may have.
    pub code_bytes_max: usize,
    /// Tier 2: how long one program's compilation may take.
    pub tier2_limit: Duration,
    /// Tier 2: intermediate instructions of a program, at most ([`LLVM_INSTS_MAX`]).
    pub tier2_insts_max: usize,
    /// Tier 2: where its machine code is kept.
    pub cache: CodeCache,
    /// How far the verifier is trusted.
    pub trust: Trust,
    /// Whether machine code is masked against speculation: no address that a branch has checked is
    /// one where a processor foresaw the branch wrongly (Spectre v1), and no load from the stack
    /// overtakes a store (v4). Tier 2 has no such code, and where tier 1 has none, the program
    /// can't be compiled.
    pub mask_speculation: bool,
    /// What one run of a [`Trust::Guest`] program may cost, in instructions of XIR, about;
    /// [`crate::GUEST_BUDGET`] when `None`. Each program a tail call leads to has as much again.
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

/// Where machine code is kept from process to process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CodeCache {
    /// `$XDG_CACHE_HOME/towpath`, or `~/.cache/towpath`.
    #[default]
    User,
    /// This directory, which no other user may write to.
    Directory(PathBuf),
    /// Nowhere.
    Off,
}

impl CodeCache {
    /// The directory, if there is to be one.
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

/// Which compiler made a program's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Cranelift.
    One,
    /// LLVM.
    Two,
}

/// Machine code of one program. Dropping it frees the code: every runner holds a reference.
#[derive(Debug)]
pub struct Program {
    body: Body,
    /// On tier 1; tier 2 uses the same.
    ahead: Option<Ahead>,
    /// First BPF slot of each function, to find callbacks.
    starts: Vec<u32>,
    /// Their addresses are in the code.
    maps: Vec<Arc<Map>>,
    /// As these.
    slots: Vec<Option<Arc<ProgramSlots>>>,
    elapsed: Duration,
}

/// What a machine instruction was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Slot of the BPF instruction; none for what belongs to no instruction, as the loop over the
    /// frames does.
    pub slot: Option<u32>,
}

impl Origin {
    /// The origin of what is at an offset, given where code of another origin begins.
    fn among(origins: &[(usize, u32)], offset: usize) -> Origin {
        let behind = origins.partition_point(|&(start, _)| start <= offset);
        Origin { slot: behind.checked_sub(1).map(|at| origins[at].1) }
    }
}

#[derive(Debug)]
pub(crate) enum Body {
    /// Tier 1.
    Clif(clif::Layout),
    /// Tier 2, and the same program on tier 1: what tail calls lead to is entered through that.
    Llvm(llvm::Layout, Arc<Program>),
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
        Program::on_tier1(verified, &module, environment, options, started)
    }

    /// As [`Program::compile`], and has tier 2 compile the program in the background.
    ///
    /// # Errors
    ///
    /// As there. What keeps the program from tier 2 is no error: [`Upgrade::failure`] tells.
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

    /// The program `below` with the code that tier 2 made of it.
    pub(crate) fn on_tier2(
        layout: llvm::Layout,
        below: &Arc<Program>,
        elapsed: Duration,
    ) -> Program {
        let (starts, maps, slots) = (below.starts.clone(), below.maps.clone(), below.slots.clone());
        let body = Body::Llvm(layout, Arc::clone(below));
        Program { body, ahead: None, starts, maps, slots, elapsed }
    }

    /// Address of the entry function on tier 1: where a tail call jumps to.
    pub fn entry(&self) -> u64 {
        match &self.body {
            Body::Clif(layout) => layout.address(0).unwrap_or(0),
            Body::Llvm(_, below) => below.entry(),
        }
    }

    /// Number of the function that a program's reference (as [`towpath_bpf::interp`] writes it)
    /// stands for.
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

    /// Offsets in the code at which what was made of another BPF instruction begins, and the slot
    /// of that instruction, in order.
    pub fn origins(&self) -> &[(usize, u32)] {
        match &self.body {
            Body::Clif(layout) => layout.origins(),
            Body::Llvm(layout, _) => layout.origins(),
        }
    }

    /// The BPF slot that the machine instruction at an address was made of, and whether it is this
    /// program's at all.
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

    /// Which compiler made the code.
    pub fn tier(&self) -> Tier {
        match &self.body {
            Body::Clif(_) => Tier::One,
            Body::Llvm(..) => Tier::Two,
        }
    }

    /// How long compilation took, on tier 2 in the background.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// Whether bursts are preceded by prefetches of hash buckets: the program reaches a lookup in a
    /// table that is too large for the caches now.
    pub fn looks_ahead(&self) -> bool {
        self.ahead().is_some()
    }

    /// What is to be run over a burst before the program, when that is worth it now.
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
/// As [`Program::compile`].
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
/// As [`Program::compile`].
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
/// As [`Program::compile`]; LLVM is needed for any but [`LlvmForm::Given`].
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
