//! Answers to trapped calls.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, getpeername, socket_with, sockopt,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use towpath_xsk_client::wire::{receive, send};

use crate::kernel_unsafe::{Call, answer, answer_with_file, let_pass, next_call, still_waits};
use crate::protocol::{bound, is_socket_name};

/// Gets a socket for XFRM from the door at a path.
///
/// # Errors
///
/// Fails if no door listens at the path, if the door has no more sockets, or if it does not answer
/// within 5 seconds.
pub fn connect(door: &Path) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(door)?)?;
    let mut polled = [PollFd::new(&socket, PollFlags::IN)];
    if poll(&mut polled, Some(&PATIENCE))? == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the daemon does not answer"));
    }
    received(&socket).ok_or_else(|| io::Error::other("the door has as many sockets as it may have"))
}

/// Receives a descriptor; `None` if the connection has ended.
fn received(from: &OwnedFd) -> Option<OwnedFd> {
    receive(from).ok()?.1.pop()
}

/// Answers trapped calls until the program and its children have ended.
pub(crate) fn serve(from: &OwnedFd, door: &Path, says_calls: bool) {
    // None if the first process has failed.
    let Some(listener) = received(from) else { return };
    loop {
        let mut polled = [PollFd::new(&listener, PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) if polled[0].revents().contains(PollFlags::IN) => {}
            Err(Errno::INTR) => continue,
            _ => return,
        }
        // A caller that was killed takes no answer.
        if let Ok(call) = next_call(&listener) {
            let _killed = answer_one(&listener, &call, door);
            if says_calls {
                let name = if call.number == libc::SYS_socket { "socket" } else { "bind" };
                report(&format!("answered {name} of thread {}", call.thread));
            }
        }
    }
}

fn answer_one(listener: &OwnedFd, call: &Call, door: &Path) -> io::Result<()> {
    if call.number == libc::SYS_socket {
        return give_connection(listener, call, door);
    }
    match note_groups(listener, call) {
        Ok(true) => answer(listener, call, Ok(0)),
        Ok(false) => let_pass(listener, call),
        Err(error) => {
            report(&format!("a socket of the door could not be bound: {error}"));
            answer(listener, call, Err(error.raw_os_error().unwrap_or(libc::EIO)))
        }
    }
}

/// Gives the caller a connection to the door in place of a socket for XFRM.
fn give_connection(listener: &OwnedFd, call: &Call, door: &Path) -> io::Result<()> {
    let flags = call.arguments[1] as i32;
    let connection = connect(door).and_then(|socket| {
        if flags & libc::SOCK_NONBLOCK != 0 {
            fcntl_setfl(&socket, fcntl_getfl(&socket)? | OFlags::NONBLOCK)?;
        }
        Ok(socket)
    });
    match connection {
        Ok(socket) => answer_with_file(listener, call, socket, flags & libc::SOCK_CLOEXEC != 0),
        Err(error) => {
            report(&format!("the door {}: {error}", door.display()));
            answer(listener, call, Err(error.raw_os_error().unwrap_or(libc::EIO)))
        }
    }
}

/// Whether the socket that is being bound is a connection to the door. Tells the door the groups
/// whose notifications the caller wants.
fn note_groups(listener: &OwnedFd, call: &Call) -> io::Result<bool> {
    let process = pidfd_open(process_of(call.thread)?, PidfdFlags::empty())?;
    let number = call.arguments[0] as i32;
    let Ok(socket) = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) else {
        return Ok(false);
    };
    if !is_of_a_door(&socket) {
        return Ok(false);
    }
    // `struct sockaddr_nl`: the groups are behind family and port.
    let mut address = [0; size_of::<libc::sockaddr_nl>()];
    let memory = File::open(format!("/proc/{}/mem", call.thread))?;
    memory.read_exact_at(&mut address, call.arguments[1])?;
    if !still_waits(listener, call) {
        return Err(Errno::NOENT.into());
    }
    let [.., a, b, c, d] = address;
    send(socket.as_fd(), &bound([a, b, c, d]), &[])?;
    Ok(true)
}

/// Whether a door made the socket.
fn is_of_a_door(socket: &OwnedFd) -> bool {
    let peer = getpeername(socket).ok().flatten().map(SocketAddrUnix::try_from);
    let is_named = |peer: SocketAddrUnix| peer.abstract_name().is_some_and(is_socket_name);
    sockopt::socket_type(socket).is_ok_and(|kind| kind == SocketType::SEQPACKET)
        && peer.is_some_and(|peer| peer.is_ok_and(is_named))
}

/// The process of a thread.
fn process_of(thread: u32) -> io::Result<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let pid = number.and_then(|number| number.trim().parse().ok()).and_then(Pid::from_raw);
    pid.ok_or_else(|| Errno::SRCH.into())
}

#[expect(clippy::print_stderr, reason = "the standard error of the program that is supervised")]
fn report(text: &str) {
    eprintln!("towpath: {text}");
}

/// Time in which a daemon answers.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
