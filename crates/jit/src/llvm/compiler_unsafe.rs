//! LLVM's compiler: text in, object file out.

#![expect(unsafe_code, reason = "calls LLVM's C interface")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use super::library_unsafe::{Library, Ref};

/// Passes over a whole module.
///
/// LLVM's `O1` without the parts that BPF never needs, with value numbering over memory and
/// unrolling. XIR's own passes did the optimizations that need knowledge of maps, packets and
/// helpers.
pub(super) fn passes(major: u32) -> &'static str {
    // LLVM 18 checks that the pass has nothing left to do, unless it is told not to.
    match major {
        ..18 => "default<O1>,function(gvn,instcombine,simplifycfg,adce)",
        _ => "default<O1>,function(gvn,instcombine<no-verify-fixpoint>,simplifycfg,adce)",
    }
}

/// This machine in LLVM's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) triple: String,
    pub(super) cpu: String,
    pub(super) features: String,
}

/// Kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    /// An ELF object file.
    Object,
    /// LLVM's IR after all passes.
    Text,
    /// Assembly, for people.
    Assembly,
}

impl Library {
    /// The machine this process runs on.
    pub(super) fn host(&self) -> Host {
        // SAFETY: the functions take nothing and give strings of ours.
        unsafe {
            Host {
                triple: self.take((self.get_default_triple)()),
                cpu: self.take((self.get_host_cpu)()),
                features: self.take((self.get_host_features)()),
            }
        }
    }

    /// Compiles a module given as text.
    ///
    /// # Errors
    ///
    /// Fails with the message of LLVM.
    pub(super) fn compile(
        &self,
        ir: &str,
        host: &Host,
        product: Product,
    ) -> Result<Vec<u8>, String> {
        let mut problem = String::new();
        // SAFETY: a context of our own, used by this thread only and disposed of after everything
        // made in it; `problem` outlives it.
        let result = unsafe {
            let context = (self.context_create)();
            let told = Diagnostics { library: self, problem: &raw mut problem };
            let told_ptr = (&raw const told).cast_mut().cast::<c_void>();
            (self.context_set_diagnostic_handler)(context, note_problem, told_ptr);
            let result = self.in_context(context, ir, host, product);
            (self.context_dispose)(context);
            result
        };
        if problem.is_empty() { result } else { Err(problem) }
    }

    /// # Safety
    ///
    /// `context` is a live context that only this thread uses.
    unsafe fn in_context(
        &self,
        context: Ref,
        ir: &str,
        host: &Host,
        product: Product,
    ) -> Result<Vec<u8>, String> {
        // SAFETY: the caller's promise, passed on.
        let module = unsafe { self.parse(context, ir)? };
        let result = self.machine(host).and_then(|machine| {
            // SAFETY: module and machine are live, and ours alone.
            let result = unsafe { self.optimise_and_emit(module, machine, host, product) };
            // SAFETY: nothing uses the machine any more.
            unsafe { (self.dispose_target_machine)(machine) };
            result
        });
        // SAFETY: nothing uses the module any more.
        unsafe { (self.dispose_module)(module) };
        result
    }

    /// # Safety
    ///
    /// As [`Library::in_context`].
    unsafe fn parse(&self, context: Ref, ir: &str) -> Result<Ref, String> {
        let text = CString::new(ir).map_err(|error| error.to_string())?;
        let bytes = text.as_bytes().len();
        let (mut module, mut message) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the text ends with a 0 behind its `bytes`, and outlives the buffer, which the
        // parser frees.
        let failed = unsafe {
            let buffer = (self.create_memory_buffer)(text.as_ptr(), bytes, c"program".as_ptr(), 1);
            (self.parse_ir)(context, buffer, &mut module, &mut message)
        };
        // SAFETY: a message from LLVM, or null.
        let message = unsafe { self.take(message) };
        if failed != 0 { Err(message) } else { Ok(module) }
    }

    fn machine(&self, host: &Host) -> Result<Ref, String> {
        let c_string = |text: &str| CString::new(text).map_err(|error| error.to_string());
        let triple = c_string(&host.triple)?;
        let (cpu, features) = (c_string(&host.cpu)?, c_string(&host.features)?);
        let (mut target, mut message) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: C strings, and places to write to.
        let failed = unsafe { (self.get_target)(triple.as_ptr(), &mut target, &mut message) };
        // SAFETY: a message from LLVM, or null.
        let message = unsafe { self.take(message) };
        if failed != 0 {
            return Err(message);
        }
        // SAFETY: a target that LLVM just named, and C strings.
        let machine = unsafe {
            (self.create_target_machine)(
                target,
                triple.as_ptr(),
                cpu.as_ptr(),
                features.as_ptr(),
                CODE_GENERATION_DEFAULT,
                RELOCATIONS_PIC,
                CODE_MODEL_SMALL,
            )
        };
        if machine.is_null() { Err("no machine for this CPU".into()) } else { Ok(machine) }
    }

    /// # Safety
    ///
    /// Both are live, and no other code uses them.
    unsafe fn optimise_and_emit(
        &self,
        module: Ref,
        machine: Ref,
        host: &Host,
        product: Product,
    ) -> Result<Vec<u8>, String> {
        let triple = CString::new(host.triple.as_str()).map_err(|error| error.to_string())?;
        // SAFETY: the caller's promise; the layout is copied into the module.
        unsafe {
            (self.set_target)(module, triple.as_ptr());
            let layout = (self.create_target_data_layout)(machine);
            (self.set_data_layout)(module, layout);
            (self.dispose_target_data)(layout);
            self.verify(module)?;
            self.run_passes(module, machine)?;
            if product == Product::Text {
                return Ok(self.take((self.print_module)(module)).into_bytes());
            }
            self.emit(module, machine, product)
        }
    }

    /// # Safety
    ///
    /// `module` is live.
    unsafe fn verify(&self, module: Ref) -> Result<(), String> {
        if !cfg!(debug_assertions) {
            return Ok(());
        }
        let mut message = ptr::null_mut();
        // SAFETY: the caller's promise.
        let broken = unsafe { (self.verify_module)(module, RETURN_STATUS, &mut message) };
        // SAFETY: a message from LLVM, or null.
        let message = unsafe { self.take(message) };
        if broken != 0 { Err(message) } else { Ok(()) }
    }

    /// # Safety
    ///
    /// Both are live.
    unsafe fn run_passes(&self, module: Ref, machine: Ref) -> Result<(), String> {
        let passes = CString::new(passes(Library::major())).map_err(|error| error.to_string())?;
        // SAFETY: the caller's promise; the options live until the passes have run, the message
        // until it is copied.
        unsafe {
            let options = (self.pass_options_create)();
            (self.pass_options_set_unrolling)(options, 1);
            // Only loops that ask for it are vectorized.
            (self.pass_options_set_vectorization)(options, 0);
            (self.pass_options_set_slp)(options, 0);
            let error = (self.run_passes)(module, passes.as_ptr(), machine, options);
            (self.pass_options_dispose)(options);
            if error.is_null() {
                return Ok(());
            }
            let message = (self.get_error_message)(error);
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            (self.dispose_error_message)(message);
            Err(text)
        }
    }

    /// # Safety
    ///
    /// Both are live.
    unsafe fn emit(&self, module: Ref, machine: Ref, product: Product) -> Result<Vec<u8>, String> {
        let kind = if product == Product::Assembly { ASSEMBLY_FILE } else { OBJECT_FILE };
        let (mut message, mut buffer) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the caller's promise, and places to write to.
        let failed = unsafe {
            (self.emit_to_memory_buffer)(machine, module, kind, &mut message, &mut buffer)
        };
        // SAFETY: a message from LLVM, or null.
        let message = unsafe { self.take(message) };
        if failed != 0 {
            return Err(message);
        }
        // SAFETY: the buffer is ours, and as long as it says.
        unsafe {
            let (start, size) = ((self.get_buffer_start)(buffer), (self.get_buffer_size)(buffer));
            let bytes = std::slice::from_raw_parts(start.cast::<u8>(), size).to_vec();
            (self.dispose_memory_buffer)(buffer);
            Ok(bytes)
        }
    }

    /// Takes a string from LLVM.
    ///
    /// # Safety
    ///
    /// `message` is null, or a string that `LLVMDisposeMessage` may free.
    unsafe fn take(&self, message: *mut c_char) -> String {
        if message.is_null() {
            return String::new();
        }
        // SAFETY: the caller's promise.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        // SAFETY: as above; it is not used any more.
        unsafe { (self.dispose_message)(message) };
        text
    }
}

/// Receiver of a context's diagnostics.
struct Diagnostics<'a> {
    library: &'a Library,
    problem: *mut String,
}

/// Records an error: without a handler LLVM would print it and end the process.
unsafe extern "C" fn note_problem(info: Ref, told: *mut c_void) {
    // SAFETY: the handler was installed with a `Diagnostics` that outlives the context.
    let told = unsafe { &*told.cast::<Diagnostics<'_>>() };
    // SAFETY: LLVM passes a diagnostic, and gives a string of ours.
    unsafe {
        if (told.library.get_diag_info_severity)(info) == SEVERITY_ERROR {
            *told.problem = told.library.take((told.library.get_diag_info_description)(info));
        }
    }
}

// Numbers of llvm-c's enumerations.
const RETURN_STATUS: c_int = 2;
const CODE_GENERATION_DEFAULT: c_int = 2;
const RELOCATIONS_PIC: c_int = 2;
const CODE_MODEL_SMALL: c_int = 3;
const ASSEMBLY_FILE: c_int = 0;
const OBJECT_FILE: c_int = 1;
const SEVERITY_ERROR: c_int = 0;
