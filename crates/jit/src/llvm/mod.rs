//! Tier 2: XIR to machine code through LLVM, in the background.
//!
//! A module becomes LLVM's textual IR, LLVM makes an object file of it, and this module places that
//! in memory. The text refers to everything outside of the program (maps, functions of the runtime)
//! by name, so object files are valid in any process and kept on disk.

mod adjust;
mod alias;
mod cache;
mod code_unsafe;
mod compiler_unsafe;
mod exit_unsafe;
mod function;
mod insts;
mod library_unsafe;
mod lines;
mod link;
mod module;
mod pointers;
mod relocate;
mod symbols;
mod tail_call;

use std::path::PathBuf;

use crate::environment::Environment;
use crate::error::CompileError;
use crate::perf;
use crate::slots::Slots;
use crate::xir::Module;
use cache::Cache;
pub(crate) use code_unsafe::Layout;
use compiler_unsafe::Product;
use library_unsafe::Library;
pub(crate) use library_unsafe::fatal;
pub use library_unsafe::{LlvmLibrary, llvm_library};
use symbols::{Addresses, Symbol};

/// Largest number of intermediate instructions of a program for LLVM, over all its functions:
/// LLVM's time grows faster than the program. Ten thousand take a second or two.
pub const LLVM_INSTS_MAX: usize = 150_000;

/// A compilation that is not done yet, with all its inputs.
#[derive(Debug)]
pub(crate) struct Job {
    module: Module,
    slots: Slots,
    addresses: Addresses,
    cache: Option<PathBuf>,
    code_bytes_max: usize,
}

impl Job {
    /// A job for a module after the passes. `enter` is the address of tier 1's trampoline.
    pub(crate) fn new(
        module: Module,
        environment: &Environment<'_>,
        enter: u64,
        cache: Option<PathBuf>,
        code_bytes_max: usize,
    ) -> Result<Job, CompileError> {
        refuse_masked(&module)?;
        let addresses = Addresses::new(&module, environment, enter);
        let slots = Slots::of(environment);
        Ok(Job { module, slots, addresses, cache, code_bytes_max })
    }

    /// Compiles, or takes an earlier result from the cache, and places the code.
    pub(crate) fn run(&self) -> Result<Layout, CompileError> {
        let library = Library::get().map_err(CompileError::Llvm)?;
        let text = module::translate(&self.module, &self.slots);
        let host = library.host();
        let passes = compiler_unsafe::passes(Library::major());
        let key = cache::key(&text.ir, &host, passes);
        let cache = self.cache.as_deref().and_then(Cache::open);
        if let Some(object) = cache.as_ref().and_then(|cache| cache.get(&key))
            && let Ok(layout) = self.place(&object, &text.symbols)
        {
            self.note(&layout);
            return Ok(layout);
        }
        let object =
            library.compile(&text.ir, &host, Product::Object).map_err(CompileError::Llvm)?;
        let layout = self.place(&object, &text.symbols)?;
        self.note(&layout);
        if let Some(cache) = cache {
            cache.put(&key, &object);
        }
        Ok(layout)
    }

    fn note(&self, layout: &Layout) {
        perf::note("llvm", &self.module, layout.code(), &layout.offsets());
    }

    fn place(&self, object: &[u8], symbols: &[Symbol]) -> Result<Layout, CompileError> {
        let address = |name: &str| {
            let ours = symbols.iter().find(|symbol| symbol.name() == name);
            ours.map_or_else(|| standard(name), |&symbol| Some(self.addresses.of(symbol)))
        };
        let linked = link::link(object, self.code_bytes_max, address)?;
        Layout::new(linked, self.module.functions.len())
    }
}

/// Functions of the C library that LLVM calls by itself.
fn standard(name: &str) -> Option<u64> {
    let function: *const () = match name {
        "memcpy" => libc::memcpy as *const (),
        "memmove" => libc::memmove as *const (),
        "memset" => libc::memset as *const (),
        "memcmp" | "bcmp" => libc::memcmp as *const (),
        _ => return None,
    };
    Some(function as usize as u64)
}

/// Fails for masked modules: LLVM turns selects into branches if it expects a gain, and is asked to
/// do so here, so a mask might not stay one.
fn refuse_masked(module: &Module) -> Result<(), CompileError> {
    if module.masked { Err(CompileError::Masked) } else { Ok(()) }
}

/// Form of the text that [`crate::llvm_text`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LlvmForm {
    /// The input of LLVM.
    Given,
    /// LLVM's IR after its passes.
    Optimized,
    /// Assembly.
    Assembly,
}

/// The text of a module in LLVM's form.
pub(crate) fn text(
    module: &Module,
    environment: &Environment<'_>,
    form: LlvmForm,
) -> Result<String, CompileError> {
    refuse_masked(module)?;
    let text = module::translate(module, &Slots::of(environment));
    let product = match form {
        LlvmForm::Given => return Ok(text.ir),
        LlvmForm::Optimized => Product::Text,
        LlvmForm::Assembly => Product::Assembly,
    };
    let library = Library::get().map_err(CompileError::Llvm)?;
    let made = library.compile(&text.ir, &library.host(), product).map_err(CompileError::Llvm)?;
    Ok(String::from_utf8_lossy(&made).into_owned())
}
