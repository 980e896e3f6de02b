//! Runs an unmodified program some of whose system calls are answered by another process
//! (`seccomp_unotify(2)`).
//!
//! An IKE daemon asks the kernel for a netlink socket of family `NETLINK_XFRM`. [`exec`] gives it
//! one end of a connection to a door of Towpath in its place. Only `socket(2)` for that family and
//! `bind(2)` of a netlink address are trapped: a connection of type `SOCK_SEQPACKET` ignores the
//! address of messages and keeps them apart, so every later message is a plain system call.

mod answer;
mod kernel_unsafe;
pub mod protocol;

pub use answer::connect;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use towpath_xsk_client::wire::send;

/// Replaces this process by a program whose sockets for XFRM are connections to the door at `door`.
/// A second process, which ends after the program and all its children, answers the calls.
///
/// This process must have one thread only. The program keeps this process's number and parent, so
/// that a service manager sees the same process. `says_calls` prints a line on standard error for
/// each answered call.
///
/// # Errors
///
/// It returns only if it fails: nobody listens at the door, the program does not exist, or the
/// kernel (5.14 or later) or its settings do not allow the filter.
pub fn exec(program: &OsString, args: &[OsString], door: &Path, says_calls: bool) -> io::Error {
    match supervise(door, says_calls) {
        Ok(()) => Command::new(program).args(args).exec(),
        Err(error) => error,
    }
}

/// Starts the second process, and traps the calls of this one.
fn supervise(door: &Path, says_calls: bool) -> io::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("this process has {threads} threads, not one")));
    }
    // A door where nobody listens is found before the program has started.
    connect(door).map_err(|error| {
        io::Error::new(error.kind(), format!("the door {}: {error}", door.display()))
    })?;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if kernel_unsafe::is_second_process()? {
        drop(ours);
        answer::serve(&theirs, door, says_calls);
        std::process::exit(0);
    }
    drop(theirs);
    let listener = kernel_unsafe::trap()?;
    send(ours.as_fd(), &[0], &[listener.as_fd()])?;
    Ok(())
}
