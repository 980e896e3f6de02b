//! Error numbers for C, and a message for the thread that got one.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;

use towpath::{Errno, LoadError};

/// An error number (positive), and a text.
pub(crate) struct Error {
    errno: Errno,
    text: String,
}

impl Error {
    pub(crate) fn new(errno: Errno, text: &dyn Display) -> Error {
        Error { errno, text: text.to_string() }
    }
}

/// An error of a map has only a number.
impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::new(errno, &errno)
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Error {
        let errno = match &error {
            LoadError::Rejected { rejection, .. } => rejection.errno,
            LoadError::Select(_) => Errno::ENOENT,
            _ => Errno::EINVAL,
        };
        Error::new(errno, &error)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns 0, or the negative number of an error, whose text is kept for the thread.
pub(crate) fn status(result: Result<(), Error>) -> c_int {
    let Err(Error { errno, text }) = result else { return 0 };
    // A text is cut at its first NUL.
    let bytes = text.into_bytes().into_iter().take_while(|byte| *byte != 0).collect::<Vec<u8>>();
    LAST.set(CString::new(bytes).unwrap_or_default());
    -errno.0
}

/// The thread's last text; valid until the next error.
pub(crate) fn last() -> *const c_char {
    LAST.with_borrow(|text| CStr::as_ptr(text))
}
