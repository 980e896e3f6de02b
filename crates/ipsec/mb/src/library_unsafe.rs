//! Opens the library and takes its exported functions.

#![expect(unsafe_code, reason = "opens a C library and takes its functions by name")]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::fmt;
use std::sync::Arc;

use towpath_ipsec::Suite;

use crate::check;
use crate::layout_unsafe::{State, VERSIONS, Version, parts};

/// The library, opened and checked. It stays open as long as an engine uses it.
#[derive(Clone)]
pub struct Library(pub(crate) Arc<Symbols>);

/// Why the library can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The library is for another processor.
    #[error("the engine ipsec-mb needs an x86-64 processor")]
    Processor,
    /// The library is not installed, or can't be loaded.
    #[error("{0}: install the package libipsec-mb1 or libipsec-mb2")]
    Missing(String),
    /// The library lacks a function that all known versions have.
    #[error("{file} has no function {name}")]
    Function {
        /// Name of the library's file.
        file: &'static str,
        /// Name of the function.
        name: &'static str,
    },
    /// The library's structures are not known.
    #[error("{file} is version {found}; the engine ipsec-mb knows the versions {}", known())]
    Version {
        /// Name of the library's file.
        file: &'static str,
        /// Version that the library reports.
        found: String,
    },
    /// The library failed to make a manager.
    #[error("libipsec-mb {version} makes no manager: {reason}")]
    Manager {
        /// The library's version.
        version: String,
        /// The library's message.
        reason: String,
    },
    /// The library's results differ from those of AWS-LC.
    #[error("libipsec-mb {version} computes {suite} wrongly, and is not used")]
    WrongResult {
        /// The library's version.
        version: String,
        /// The algorithms.
        suite: Suite,
    },
}

/// The library's exported functions, and the layout of its structures.
pub(crate) struct Symbols {
    pub(crate) alloc_mb_mgr: unsafe extern "C" fn(u64) -> *mut State,
    pub(crate) init_mb_mgr_auto: unsafe extern "C" fn(*mut State, *mut c_int),
    pub(crate) free_mb_mgr: unsafe extern "C" fn(*mut State),
    imb_get_strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    pub(crate) version: Version,
    version_text: String,
    /// Must outlive the functions.
    _library: libloading::Library,
}

impl Library {
    /// Opens the library that is installed, the newest version first, and compares its results with
    /// those of AWS-LC.
    ///
    /// # Errors
    ///
    /// Fails if there is no library of a known version, or if its results are wrong.
    pub fn open() -> Result<Library, OpenError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(OpenError::Processor);
        }
        let (file, library) = load()?;
        let library = Library(Arc::new(Symbols::find(file, library)?));
        match check::first_wrong(&library)? {
            None => Ok(library),
            Some(suite) => {
                let version = library.version().to_owned();
                Err(OpenError::WrongResult { version, suite })
            }
        }
    }

    /// The library's version, for example `1.3.0`.
    pub fn version(&self) -> &str {
        &self.0.version_text
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("version", &self.version()).finish_non_exhaustive()
    }
}

/// Loads the first file that is installed.
fn load() -> Result<(&'static str, libloading::Library), OpenError> {
    let mut errors = Vec::new();
    for file in FILES {
        // SAFETY: the library's initializers only fill tables of its own.
        match unsafe { libloading::Library::new(file) } {
            Ok(library) => return Ok((file, library)),
            Err(error) => errors.push(error.to_string()),
        }
    }
    Err(OpenError::Missing(errors.join("; ")))
}

impl Symbols {
    fn find(file: &'static str, library: libloading::Library) -> Result<Symbols, OpenError> {
        let missing = |name| move |_error: libloading::Error| OpenError::Function { file, name };
        macro_rules! function {
            ($name:literal: $type:ty) => {{
                // SAFETY: the function has this signature in all versions since 0.50; its version
                // is checked before any other function is called. It is not used after the library
                // is closed, because both are fields of `Symbols`.
                let symbol = unsafe { library.get::<$type>($name) };
                *symbol.map_err(missing($name))?
            }};
        }
        let imb_get_version = function!("imb_get_version": unsafe extern "C" fn() -> c_uint);
        // SAFETY: the function has no parameters and no side effects.
        let number = unsafe { imb_get_version() };
        let [major, minor, patch] = parts(number);
        let found = format!("{major}.{minor}.{patch}");
        let known = VERSIONS.iter().find(|known| (known.major, known.minor) == (major, minor));
        let Some(&version) = known else { return Err(OpenError::Version { file, found }) };
        Ok(Symbols {
            alloc_mb_mgr: function!("alloc_mb_mgr": unsafe extern "C" fn(u64) -> *mut State),
            init_mb_mgr_auto: function!(
                "init_mb_mgr_auto": unsafe extern "C" fn(*mut State, *mut c_int)
            ),
            free_mb_mgr: function!("free_mb_mgr": unsafe extern "C" fn(*mut State)),
            imb_get_strerror: function!(
                "imb_get_strerror": unsafe extern "C" fn(c_int) -> *const c_char
            ),
            version,
            version_text: found,
            _library: library,
        })
    }

    /// The error that a manager could not be made, with the library's error number as the reason.
    pub(crate) fn numbered(&self, errno: c_int) -> OpenError {
        // SAFETY: the function has a text for any number, which is a C string that is never freed.
        let reason = unsafe { CStr::from_ptr((self.imb_get_strerror)(errno)) };
        self.error(&reason.to_string_lossy())
    }

    /// The error that a manager could not be made, with a reason in words.
    pub(crate) fn error(&self, reason: &str) -> OpenError {
        OpenError::Manager { version: self.version_text.clone(), reason: reason.to_owned() }
    }
}

/// The known versions as text.
fn known() -> String {
    let text = |it: &Version| format!("{}.{}", it.major, it.minor);
    VERSIONS.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Names of the library's file, the newest version first.
const FILES: [&str; 2] = ["libIPSec_MB.so.2", "libIPSec_MB.so.1"];
