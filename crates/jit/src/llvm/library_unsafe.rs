//! Functions of libLLVM that tier 2 calls, looked up at first use.
//!
//! The library is opened at run time and not linked, so that one binary runs with and without it: a
//! machine that lacks it stays on tier 1 and reports that. Signatures are those of `llvm-c/*.h` of
//! LLVM 19.

#![expect(unsafe_code, reason = "opens a C library and takes its functions by name")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::exit_unsafe::wait_at_exit;

/// Any of LLVM's opaque references.
pub(super) type Ref = *mut c_void;
type Handler = unsafe extern "C" fn(Ref, *mut c_void);

/// LLVM version whose C interface is declared here.
pub(super) const MAJOR: u32 = 19;

/// File names under which distributions install it.
const FILES: [&str; 4] =
    ["libLLVM.so.19.1", "libLLVM-19.so.1", "libLLVM-19.so", "/usr/lib/llvm-19/lib/libLLVM.so.1"];

macro_rules! library {
    ($($field:ident = $symbol:literal ($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// LLVM's functions.
        pub(super) struct Library {
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl Library {
            fn find(handle: *mut c_void) -> Result<Library, String> {
                Ok(Library {
                    $($field: {
                        let address = symbol(handle, $symbol)?;
                        // SAFETY: the function of this name has this signature in LLVM 19, whose
                        // library this is by its file's name; `Library::open` checks the version
                        // before any other call.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $result)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

library! {
    get_version = "LLVMGetVersion"(*mut c_uint, *mut c_uint, *mut c_uint);
    install_fatal_error_handler = "LLVMInstallFatalErrorHandler"
        (unsafe extern "C" fn(*const c_char));
    parse_command_line_options = "LLVMParseCommandLineOptions"
        (c_int, *const *const c_char, *const c_char);
    dispose_message = "LLVMDisposeMessage"(*mut c_char);

    context_create = "LLVMContextCreate"() -> Ref;
    context_dispose = "LLVMContextDispose"(Ref);
    context_set_diagnostic_handler = "LLVMContextSetDiagnosticHandler"
        (Ref, Handler, *mut c_void);
    get_diag_info_severity = "LLVMGetDiagInfoSeverity"(Ref) -> c_int;
    get_diag_info_description = "LLVMGetDiagInfoDescription"(Ref) -> *mut c_char;

    create_memory_buffer = "LLVMCreateMemoryBufferWithMemoryRange"
        (*const c_char, usize, *const c_char, c_int) -> Ref;
    get_buffer_start = "LLVMGetBufferStart"(Ref) -> *const c_char;
    get_buffer_size = "LLVMGetBufferSize"(Ref) -> usize;
    dispose_memory_buffer = "LLVMDisposeMemoryBuffer"(Ref);

    parse_ir = "LLVMParseIRInContext"(Ref, Ref, *mut Ref, *mut *mut c_char) -> c_int;
    verify_module = "LLVMVerifyModule"(Ref, c_int, *mut *mut c_char) -> c_int;
    print_module = "LLVMPrintModuleToString"(Ref) -> *mut c_char;
    dispose_module = "LLVMDisposeModule"(Ref);
    set_target = "LLVMSetTarget"(Ref, *const c_char);
    set_data_layout = "LLVMSetModuleDataLayout"(Ref, Ref);

    pass_options_create = "LLVMCreatePassBuilderOptions"() -> Ref;
    pass_options_dispose = "LLVMDisposePassBuilderOptions"(Ref);
    pass_options_set_unrolling = "LLVMPassBuilderOptionsSetLoopUnrolling"(Ref, c_int);
    pass_options_set_vectorization = "LLVMPassBuilderOptionsSetLoopVectorization"(Ref, c_int);
    pass_options_set_slp = "LLVMPassBuilderOptionsSetSLPVectorization"(Ref, c_int);
    run_passes = "LLVMRunPasses"(Ref, *const c_char, Ref, Ref) -> Ref;
    get_error_message = "LLVMGetErrorMessage"(Ref) -> *mut c_char;
    dispose_error_message = "LLVMDisposeErrorMessage"(*mut c_char);

    get_default_triple = "LLVMGetDefaultTargetTriple"() -> *mut c_char;
    get_host_cpu = "LLVMGetHostCPUName"() -> *mut c_char;
    get_host_features = "LLVMGetHostCPUFeatures"() -> *mut c_char;
    get_target = "LLVMGetTargetFromTriple"(*const c_char, *mut Ref, *mut *mut c_char) -> c_int;
    create_target_machine = "LLVMCreateTargetMachine"
        (Ref, *const c_char, *const c_char, *const c_char, c_int, c_int, c_int) -> Ref;
    dispose_target_machine = "LLVMDisposeTargetMachine"(Ref);
    create_target_data_layout = "LLVMCreateTargetDataLayout"(Ref) -> Ref;
    dispose_target_data = "LLVMDisposeTargetData"(Ref);
    emit_to_memory_buffer = "LLVMTargetMachineEmitToMemoryBuffer"
        (Ref, Ref, c_int, *mut *mut c_char, *mut Ref) -> c_int;
}

/// The library that tier 2 uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlvmLibrary {
    /// Version, for example "19.1.7".
    pub version: String,
    /// Path of the file; the name it was opened by if the system doesn't tell the path.
    pub path: String,
}

/// The library of tier 2, opened at the first call; the error is a message for users.
pub fn llvm_library() -> Result<&'static LlvmLibrary, String> {
    Library::opened().map(|opened| &opened.about)
}

/// The functions, and the library that they belong to.
struct Opened {
    library: Library,
    about: LlvmLibrary,
}

/// Functions that must be called once before there is a target machine for this CPU.
#[cfg(target_arch = "x86_64")]
const INITIALIZERS: [&str; 4] = [
    "LLVMInitializeX86TargetInfo",
    "LLVMInitializeX86Target",
    "LLVMInitializeX86TargetMC",
    "LLVMInitializeX86AsmPrinter",
];
#[cfg(target_arch = "aarch64")]
const INITIALIZERS: [&str; 4] = [
    "LLVMInitializeAArch64TargetInfo",
    "LLVMInitializeAArch64Target",
    "LLVMInitializeAArch64TargetMC",
    "LLVMInitializeAArch64AsmPrinter",
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const INITIALIZERS: [&str; 0] = [];

/// LLVM options that differ from their defaults, as on a command line behind the program's name.
///
/// A conditional move waits for both of its operands and for the condition; LLVM uses them for most
/// selects. The headers of most packets resemble the previous packet's, so branches are predicted
/// well: chains of selects take half the time as branches. There is no other way to ask for that.
#[cfg(target_arch = "x86_64")]
pub(super) const OPTIONS: &[&CStr] = &[c"-x86-cmov-converter-force-all"];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OPTIONS: &[&CStr] = &[];

impl Library {
    /// The library, opened on the first call; or the reason why there is none.
    pub(super) fn get() -> Result<&'static Library, String> {
        Library::opened().map(|opened| &opened.library)
    }

    fn opened() -> Result<&'static Opened, String> {
        static OPENED: OnceLock<Result<Opened, String>> = OnceLock::new();
        OPENED.get_or_init(Library::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Opened, String> {
        if INITIALIZERS.is_empty() {
            return Err("no code generator of this machine is used".into());
        }
        let named = std::env::var("TOWPATH_LIBLLVM").ok();
        let files = named.as_deref().map_or(FILES.to_vec(), |file| vec![file]);
        let found = files.iter().find_map(|file| Some((file, open(file)?)));
        let (file, handle) = found.ok_or_else(|| {
            format!("no {} on this machine (package libllvm19)", files.join(" or "))
        })?;
        wait_at_exit();
        let library = Library::find(handle)?;
        let [mut major, mut minor, mut patch] = [0; 3];
        // SAFETY: three valid places to write to.
        unsafe { (library.get_version)(&mut major, &mut minor, &mut patch) };
        let version = format!("{major}.{minor}.{patch}");
        if major != MAJOR {
            return Err(format!("the library is version {version}, not {MAJOR}"));
        }
        for name in INITIALIZERS {
            let address = symbol(handle, name)?;
            // SAFETY: an initializer has no parameters and no result, and may be called once here.
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(address)() };
        }
        let words: Vec<_> = [c"towpath"].iter().chain(OPTIONS).map(|word| word.as_ptr()).collect();
        // SAFETY: as many C strings as `count`; LLVM 19 has these options, and copies the strings.
        unsafe {
            let count = words.len() as c_int;
            (library.parse_command_line_options)(count, words.as_ptr(), c"".as_ptr());
        }
        // SAFETY: the handler is a function, valid for ever.
        unsafe { (library.install_fatal_error_handler)(stay_here) };
        let path = file_of(library.get_version as *const c_void).unwrap_or_else(|| (*file).into());
        Ok(Opened { library, about: LlvmLibrary { version, path } })
    }
}

/// Path of the file that a function was loaded from.
fn file_of(function: *const c_void) -> Option<String> {
    // SAFETY: all zeroes is a valid `Dl_info`: pointers and numbers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be looked up; the result goes to a valid place.
    let found = unsafe { libc::dladdr(function, &mut info) } != 0;
    if !found || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a C string, valid as long as the library is open, which is for ever.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
}

/// Message of LLVM's fatal error, if there was one.
static FATAL: OnceLock<String> = OnceLock::new();

/// Message of LLVM's fatal error, after which LLVM is not used again.
pub(crate) fn fatal() -> Option<&'static str> {
    FATAL.get().map(String::as_str)
}

/// Handler of fatal errors, after which LLVM would end the process. The thread stays here instead,
/// so that packets go on; threads that wait for it check [`fatal`].
unsafe extern "C" fn stay_here(reason: *const c_char) {
    // SAFETY: LLVM passes a C string.
    let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned();
    let _first_counts = FATAL.set(reason);
    loop {
        std::thread::park();
    }
}

fn open(file: &str) -> Option<*mut c_void> {
    let file = CString::new(file).ok()?;
    // SAFETY: a C string; the library stays open for ever, its threads and statics with it.
    let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(handle)
}

fn symbol(handle: *mut c_void, name: &str) -> Result<*mut c_void, String> {
    let c_name = CString::new(name).map_err(|error| error.to_string())?;
    // SAFETY: an open library and a C string.
    let address = unsafe { libc::dlsym(handle, c_name.as_ptr()) };
    if address.is_null() { Err(format!("the library has no {name}")) } else { Ok(address) }
}
