//! The system calls for which no safe interface exists: `fork(2)`, `seccomp(2)` and the requests of
//! its listeners.

#![expect(unsafe_code, reason = "system calls without a safe interface")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_USER_NOTIF, seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp, sock_filter,
    sock_fprog,
};

/// Forks twice. Returns true in the new process, whose parent is init, so that the program never
/// sees it as a child of its own.
pub(crate) fn is_second_process() -> io::Result<bool> {
    // SAFETY: this process has one thread (`exec` says so), so that the child may do everything.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above. A failure leaves a child of the program, which does no harm.
            let is_parent = unsafe { libc::fork() } > 0;
            if is_parent {
                // SAFETY: ends this process at once, without the destructors of its parent.
                unsafe { libc::_exit(0) };
            }
            // Away from the terminal: a signal for the program's group must not end this process
            // before the program.
            let _leads_already = rustix::process::setsid();
            Ok(true)
        }
        child => {
            // SAFETY: the status may be null; the child is ours and ends at once.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            Ok(false)
        }
    }
}

/// Traps the calls in [`filter`] of this process and all its children from now on; returns the
/// descriptor at which they are answered.
pub(crate) fn trap() -> io::Result<OwnedFd> {
    let mut filter = filter();
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let listens = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // A signal must not interrupt a call that is being answered (Linux 5.19).
    let waits = libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let install = |flags: libc::c_ulong| {
        // SAFETY: `program` is a valid filter that outlives the call, which copies it.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::c_long::from(libc::SECCOMP_SET_MODE_FILTER),
                flags,
                &raw const program,
            )
        };
        // SAFETY: a number that is not negative is a new descriptor that nobody else owns.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
    };
    if let Some(listener) = install(listens | waits) {
        return Ok(listener);
    }
    if io::Error::last_os_error().raw_os_error() == Some(libc::EACCES) {
        // Without CAP_SYS_ADMIN, the program must not gain privileges by itself.
        rustix::thread::set_no_new_privs(true)?;
    }
    install(listens | waits).or_else(|| install(listens)).ok_or_else(io::Error::last_os_error)
}

/// `socket(AF_NETLINK, _, NETLINK_XFRM)`, and `bind` with an address as long as netlink's.
fn filter() -> [sock_filter; 14] {
    let load = |at: usize| statement(BPF_LD | BPF_W | BPF_ABS, at as u32);
    let answer = |action: u32| statement(BPF_RET | BPF_K, action);
    [
        load(ARCH_AT),
        unless(ARCH, 11),
        load(0),
        unless(libc::SYS_socket as u32, 5),
        load(argument(0)),
        unless(libc::AF_NETLINK as u32, 7),
        load(argument(2)),
        unless(libc::NETLINK_XFRM as u32, 5),
        answer(SECCOMP_RET_USER_NOTIF),
        unless(libc::SYS_bind as u32, 3),
        load(argument(2)),
        unless(size_of::<libc::sockaddr_nl>() as u32, 1),
        answer(SECCOMP_RET_USER_NOTIF),
        answer(SECCOMP_RET_ALLOW),
    ]
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Goes on if the loaded word is this one, else skips instructions.
fn unless(word: u32, skip: u8) -> sock_filter {
    sock_filter { jf: skip, ..statement(BPF_JMP | BPF_JEQ | BPF_K, word) }
}

/// Offset of the lower half of an argument in `struct seccomp_data`, on machines of either order.
const fn argument(number: usize) -> usize {
    16 + 8 * number + if cfg!(target_endian = "big") { 4 } else { 0 }
}

/// Offset of the architecture in `struct seccomp_data`.
const ARCH_AT: usize = 4;
/// `AUDIT_ARCH_X86_64` or `AUDIT_ARCH_AARCH64`: calls by the interface of another machine, such as
/// 32-bit programs use it, are not trapped.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// A trapped call.
pub(crate) struct Call {
    id: u64,
    /// Number of the calling thread.
    pub(crate) thread: u32,
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
}

/// The next trapped call.
pub(crate) fn next_call(listener: impl AsFd) -> io::Result<Call> {
    // SAFETY: all zeros are a valid `seccomp_notif`, and the kernel requires them.
    let mut call: seccomp_notif = unsafe { std::mem::zeroed() };
    request(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &mut call)?;
    Ok(Call {
        id: call.id,
        thread: call.pid,
        number: call.data.nr.into(),
        arguments: call.data.args,
    })
}

/// Whether the calling thread still waits: if not, its number may be another's by now.
pub(crate) fn still_waits(listener: impl AsFd, call: &Call) -> bool {
    request(listener, libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &mut call.id.clone()).is_ok()
}

/// Answers a call with a result, or with an error number.
pub(crate) fn answer(listener: impl AsFd, call: &Call, result: Result<i64, i32>) -> io::Result<()> {
    let (val, error) = result.map_or_else(|errno| (0, -errno), |value| (value, 0));
    let mut answer = seccomp_notif_resp { id: call.id, val, error, flags: 0 };
    request(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer)
}

/// Lets the kernel perform a call.
pub(crate) fn let_pass(listener: impl AsFd, call: &Call) -> io::Result<()> {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = seccomp_notif_resp { id: call.id, val: 0, error: 0, flags };
    request(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer)
}

/// Gives the caller a descriptor, whose number there is the call's result.
pub(crate) fn answer_with_file(
    listener: impl AsFd,
    call: &Call,
    file: impl AsFd,
    closes_on_exec: bool,
) -> io::Result<()> {
    let mut given = seccomp_notif_addfd {
        id: call.id,
        flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
        srcfd: file.as_fd().as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: if closes_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    request(listener, libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut given)
}

/// Sends a request to a listener, with a structure as its argument.
fn request<T>(listener: impl AsFd, number: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    let fd = listener.as_fd().as_raw_fd();
    // SAFETY: each caller passes the structure that belongs to its request, whose size is a part of
    // the number; the kernel reads and writes only within it.
    match unsafe { libc::ioctl(fd, number, std::ptr::from_mut(argument)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
