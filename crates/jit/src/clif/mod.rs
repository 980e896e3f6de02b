//! Tier 1: XIR to machine code through Cranelift, in milliseconds.
//!
//! All functions of a program are compiled separately and then laid out in one piece of memory,
//! where calls between them are resolved. BPF functions use Cranelift's tail-call convention, so
//! that `bpf_tail_call` leaves no frame behind; one trampoline enters callbacks from Rust, another
//! targets of tail calls from tier 2, and the batch entry whole programs.

mod adjust;
mod barrier;
mod batch;
mod frame;
mod hop;
mod insts;
mod layout_unsafe;
mod lower;
mod masks;
mod optimize;
mod tail_call;

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{AbiParam, ExternalName, Signature, types};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, FinalizedMachReloc, FinalizedRelocTarget};

use crate::environment::Environment;
use crate::error::CompileError;
use crate::machine_unsafe::Callee;
use crate::xir::{Function, Module};
pub(crate) use layout_unsafe::Layout;

/// Machine code of one function, before it is placed.
#[derive(Debug)]
pub(crate) struct CompiledFunction {
    pub(crate) code: Vec<u8>,
    pub(crate) align: u32,
    pub(crate) relocations: Vec<Relocation>,
    /// Offsets at which code for another BPF instruction begins, with its slot; in order.
    pub(crate) origins: Vec<(u32, u32)>,
}

/// A call of another function of the module, to be filled in when both are placed.
#[derive(Debug)]
pub(crate) struct Relocation {
    /// Offset from the start of the function, in bytes.
    pub(crate) offset: u32,
    pub(crate) kind: Reloc,
    pub(crate) addend: i64,
    /// Number of the called function.
    pub(crate) callee: u32,
}

/// Machine code of a module: its functions in order, then the trampolines and the batch entry.
#[derive(Debug)]
pub(crate) struct CompiledModule {
    pub(crate) functions: Vec<CompiledFunction>,
}

/// Compiles a module for this machine.
pub(crate) fn compile(
    module: &Module,
    environment: &Environment<'_>,
) -> Result<CompiledModule, CompileError> {
    let isa = host_isa()?;
    if module.masked && !barrier::is_known() {
        let why = "nothing is known to keep it from looking ahead";
        return Err(CompileError::Host(why.to_owned()));
    }
    let mut functions = Vec::with_capacity(module.functions.len() + 1);
    for (index, function) in module.functions.iter().enumerate() {
        let clif = lower::function(module, index, function, &isa, environment)?;
        functions.push(emit(&isa, clif, &function.name)?);
    }
    functions.push(emit(&isa, lower::trampoline(&isa, CALLBACK_PARAMS), "trampoline")?);
    functions.push(emit(&isa, lower::trampoline(&isa, ENTRY_PARAMS), "way in")?);
    functions.push(emit(&isa, batch::entry(module, &isa, environment), "batch entry")?);
    Ok(CompiledModule { functions })
}

/// Cranelift's own form of a module, for `prog dump clif`.
pub(crate) fn text(module: &Module, environment: &Environment<'_>) -> Result<String, CompileError> {
    let isa = host_isa()?;
    let mut text = String::new();
    let own = module.own.iter().map(|own| (0, own));
    for (index, function) in module.functions.iter().enumerate().chain(own) {
        let clif = lower::function(module, index, function, &isa, environment)?;
        text.push_str(&format!("; {}\n{}\n", function.name, clif.display()));
    }
    Ok(text)
}

/// Number of functions behind those of the module: the trampoline for callbacks, the entry of tail
/// calls' targets, then the batch entry.
const EXTRA_FUNCTIONS: usize = 3;
const TRAMPOLINE: usize = 0;
const WAY_IN: usize = 1;
const BATCH_ENTRY: usize = 2;

/// Number of a callback's parameters: all of r1 to r5.
const CALLBACK_PARAMS: usize = 5;
/// Number of an entry function's parameters: the context, and the number of tail calls of the
/// frame's run. In a register, the number needs no wait for the previous program's store.
const ENTRY_PARAMS: usize = 2;

fn host_isa() -> Result<OwnedTargetIsa, CompileError> {
    let host = |error: &dyn std::fmt::Display| CompileError::Host(error.to_string());
    let mut flags = settings::builder();
    let wishes = [
        // `optimize` decides for each function.
        ("opt_level", "none"),
        ("enable_probestack", "false"),
        ("is_pic", "false"),
        // Tail calls remove their caller's frame through it.
        ("preserve_frame_pointers", "true"),
    ];
    for (name, value) in wishes {
        flags.set(name, value).map_err(|error| host(&error))?;
    }
    if cfg!(debug_assertions) {
        flags.enable("enable_verifier").map_err(|error| host(&error))?;
    } else {
        flags.set("enable_verifier", "false").map_err(|error| host(&error))?;
    }
    let builder = cranelift_native::builder().map_err(|error| host(&error))?;
    builder.finish(settings::Flags::new(flags)).map_err(|error| host(&error))
}

fn emit(
    isa: &OwnedTargetIsa,
    clif: cranelift_codegen::ir::Function,
    name: &str,
) -> Result<CompiledFunction, CompileError> {
    let mut context = Context::for_function(clif);
    let failure = |what: String| CompileError::Cranelift { function: name.to_owned(), what };
    let compiled = frame::compile(&mut context, isa).map_err(failure)?;
    let mut code = compiled.code_buffer().to_vec();
    hop::hand_on_frames(&mut code, compiled).map_err(failure)?;
    let align = compiled.buffer.alignment;
    let found = compiled.buffer.relocs().to_vec();
    let places = compiled.buffer.get_srclocs_sorted().iter();
    let mut origins: Vec<(u32, u32)> = Vec::new();
    for place in places.filter(|place| !place.loc.is_default()) {
        let (slot, is_barrier) = barrier::origin(place.loc);
        if is_barrier {
            barrier::finish(&mut code[place.start as usize..place.end as usize])
                .map_err(failure)?;
        }
        origins.push((place.start, slot));
    }
    origins.dedup_by_key(|(_, slot)| *slot);
    let names = context.func.params.user_named_funcs();
    let relocation = |found: &FinalizedMachReloc| match &found.target {
        FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => Ok(Relocation {
            offset: found.offset,
            kind: found.kind,
            addend: found.addend,
            callee: names[*name].index,
        }),
        other => Err(failure(format!("a reference to {other:?}"))),
    };
    let relocations = found.iter().map(relocation).collect::<Result<_, _>>()?;
    Ok(CompiledFunction { code, align, relocations, origins })
}

/// Code for tail calls to a program without machine code: it calls `callee` with the frame pointer
/// and the context, and returns its result.
pub(crate) fn bridge(callee: Callee) -> Result<CompiledModule, CompileError> {
    let isa = host_isa()?;
    let functions = vec![emit(&isa, lower::bridge(&isa, callee), "bridge")?];
    Ok(CompiledModule { functions })
}

/// Signature of a BPF function: machine, frame pointer, its parameters; gives r0.
fn bpf_signature(params: usize) -> Signature {
    let mut signature = Signature::new(CallConv::Tail);
    signature.params.resize(params + 2, AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I64));
    signature
}

/// Signature of [`crate::machine_unsafe::Callee`].
fn callee_signature(isa: &OwnedTargetIsa) -> Signature {
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params.resize(6, AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I64));
    signature
}

/// Number of parameters of a function.
fn param_count(function: &Function) -> usize {
    function.blocks.first().map_or(0, |entry| entry.params.len())
}

/// Places compiled code, ready to run.
pub(crate) fn load(compiled: &CompiledModule, limit: usize) -> Result<Layout, CompileError> {
    Layout::new(compiled, limit)
}
