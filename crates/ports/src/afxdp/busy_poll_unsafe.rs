//! Socket options that have no safe wrapper: busy polling, and the sender's budget.

#![expect(unsafe_code, reason = "setsockopt takes a pointer")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Lets system calls on the socket drive the interface's NAPI, `budget` frames at a time
/// (`SO_PREFER_BUSY_POLL`, `SO_BUSY_POLL`, `SO_BUSY_POLL_BUDGET`).
pub(super) fn set_busy_poll(
    socket: BorrowedFd<'_>,
    microseconds: u32,
    budget: u32,
) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)?;
    set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds)?;
    set(socket, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, budget)
}

/// Frames that one system call sends in copy mode, 32 to the tx ring's size; 32 on older kernels.
pub(super) fn set_tx_budget(socket: BorrowedFd<'_>, frames: u32) -> io::Result<()> {
    set(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, frames)
}

fn set(socket: BorrowedFd<'_>, level: i32, option: i32, value: u32) -> io::Result<()> {
    let size = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the value lives and has the size given.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
