//! Functions of libLLVM that tier 2 calls, looked up at first use.
//!
//! The library is opened at run time and not linked, so that one binary runs with and without it: a
//! machine that lacks it stays on tier 1 and reports that. Signatures are those of `llvm-c/*.h`,
//! which are the same in LLVM 15 to 21.

#![expect(unsafe_code, reason = "opens a C library and takes its functions by name")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::exit_unsafe::wait_at_exit;

/// Any of LLVM's opaque references.
pub(super) type Ref = *mut c_void;
type Handler = unsafe extern "C" fn(Ref, *mut c_void);

/// LLVM versions whose C interface is declared here, in the order in which they are looked for: the
/// one that figures are of, then the newest first.
const MAJORS: [u32; 7] = [19, 21, 20, 18, 17, 16, 15];

/// File names under which distributions install a version.
fn files(major: u32) -> [String; 4] {
    [
        format!("libLLVM.so.{major}.1"),
        format!("libLLVM-{major}.so.1"),
        format!("libLLVM-{major}.so"),
        format!("/usr/lib/llvm-{major}/lib/libLLVM.so.1"),
    ]
}

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
                        // SAFETY: the function of this name has this signature in all versions of
                        // `MAJORS`, of which this library is one: `Library::open` asked it.
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
    major: u32,
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

    /// Major version of the library; without one, of that whose IR is shown.
    pub(super) fn major() -> u32 {
        Library::opened().map_or(MAJORS[0], |opened| opened.major)
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
        let what = named.clone().unwrap_or_else(|| "libLLVM of version 15 to 21".to_owned());
        let files =
            named.map_or_else(|| MAJORS.into_iter().flat_map(files).collect(), |it| vec![it]);
        let found = files.iter().find_map(|file| Some((file, open(file)?)));
        let (file, handle) =
            found.ok_or_else(|| format!("no {what} on this machine (package libllvm19)"))?;
        wait_at_exit();
        let [major, minor, patch] = version(handle)?;
        let version = format!("{major}.{minor}.{patch}");
        if !MAJORS.contains(&major) {
            return Err(format!("the library is version {version}, and not one of 15 to 21"));
        }
        let library = Library::find(handle)?;
        for name in INITIALIZERS {
            let address = symbol(handle, name)?;
            // SAFETY: an initializer has no parameters and no result, and may be called once here.
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(address)() };
        }
        let words: Vec<_> = [c"towpath"].iter().chain(OPTIONS).map(|word| word.as_ptr()).collect();
        // SAFETY: as many C strings as `count`; each version has these options, and copies them.
        unsafe {
            let count = words.len() as c_int;
            (library.parse_command_line_options)(count, words.as_ptr(), c"".as_ptr());
        }
        // SAFETY: the handler is a function, valid for ever.
        unsafe { (library.install_fatal_error_handler)(stay_here) };
        let path = file_of(library.parse_ir as *const c_void).unwrap_or_else(|| file.clone());
        Ok(Opened { library, about: LlvmLibrary { version, path }, major })
    }
}

/// Version of a library: major, minor, patch.
fn version(handle: *mut c_void) -> Result<[c_uint; 3], String> {
    type GetVersion = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);
    let Ok(address) = symbol(handle, "LLVMGetVersion") else {
        // LLVM 15 tells no version; this function is new in it.
        return symbol(handle, "LLVMPointerTypeIsOpaque")
            .map(|_| [15, 0, 0])
            .map_err(|_older| "the library is older than version 15".to_owned());
    };
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: the function has this signature since there is one, in LLVM 16; three valid places to
    // write to.
    unsafe {
        let get: GetVersion = std::mem::transmute::<*mut c_void, GetVersion>(address);
        get(&mut major, &mut minor, &mut patch);
    }
    Ok([major, minor, patch])
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
/// so that packets are still processed; threads that wait for it check [`fatal`].
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
