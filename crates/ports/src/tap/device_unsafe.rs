//! `/dev/net/tun`: making a tap, one descriptor for each queue
//! (`Documentation/networking/tuntap.rst`, `include/uapi/linux/if_tun.h`).

#![expect(unsafe_code, reason = "ioctl takes untyped addresses")]

use std::ffi::{c_char, c_int, c_ulong};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

/// Offload work that the kernel may leave to this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offloads {
    pub(super) checksum: bool,
    pub(super) tso: bool,
    pub(super) uso: bool,
}

impl Offloads {
    pub(super) const NONE: Offloads = Offloads { checksum: false, tso: false, uso: false };
}

/// Opens a queue without an interface.
pub(super) fn open() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    options.open("/dev/net/tun")
}

/// Makes the interface, or adds a queue to it.
pub(super) fn join(file: File, name: &str) -> io::Result<OwnedFd> {
    // SAFETY: all zeros is an `ifreq`.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, byte) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;
    request.ifr_ifru.ifru_flags = flags as i16;
    // SAFETY: the request reads and writes one `ifreq`.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, &mut request) })?;
    Ok(file.into())
}

/// Sets the length of the header in front of each frame.
pub(super) fn set_header(queue: &OwnedFd, bytes: usize) -> io::Result<()> {
    let bytes = bytes as c_int;
    // SAFETY: the request reads one `int`.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETVNETHDRSZ as _, &bytes) })
}

/// Lets the kernel leave as much offload work as it supports.
pub(super) fn set_offloads(queue: &OwnedFd) -> io::Result<Offloads> {
    let set = |flags: c_ulong| {
        // SAFETY: the request takes a number.
        check(unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETOFFLOAD as _, flags) })
    };
    let tso = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    // USO came with Linux 6.2.
    match set(tso | TUN_F_USO4 | TUN_F_USO6) {
        Ok(()) => Ok(Offloads { checksum: true, tso: true, uso: true }),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            set(tso)?;
            Ok(Offloads { checksum: true, tso: true, uso: false })
        }
        Err(error) => Err(error),
    }
}

/// Sets whether the interface stays when no process has it open.
pub(super) fn set_persist(queue: &OwnedFd, on: bool) -> io::Result<()> {
    // SAFETY: the request takes a number.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETPERSIST as _, c_ulong::from(on)) })
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const TUNSETIFF: c_ulong = 0x4004_54ca;
const TUNSETPERSIST: c_ulong = 0x4004_54cb;
const TUNSETOFFLOAD: c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: c_ulong = 0x4004_54d8;
const TUN_F_CSUM: c_ulong = 0x01;
const TUN_F_TSO4: c_ulong = 0x02;
const TUN_F_TSO6: c_ulong = 0x04;
const TUN_F_TSO_ECN: c_ulong = 0x08;
const TUN_F_USO4: c_ulong = 0x20;
const TUN_F_USO6: c_ulong = 0x40;
