//! A pipe that is soon full.

#![expect(unsafe_code, reason = "the size of a pipe is none of the standard library's")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Lets a pipe hold one page, the least there is.
pub(crate) fn make_small(pipe: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the command takes a number, and the descriptor is open.
    let size = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    if size < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
