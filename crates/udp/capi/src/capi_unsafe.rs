//! The functions of `<towpath/udp.h>`: pointers become references here, and nowhere else.

#![expect(unsafe_code, reason = "called from C")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use rustix::io::Errno;
use towpath_udp::{Options, ServerId, TxDatagram, UdpSocket, UdpStack};

use crate::address::Address;

/// `struct towpath_udp_datagram`
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Datagram {
    data: *mut c_void,
    len: usize,
    peer: Address,
    local: Address,
    segment_size: u16,
    ecn: u8,
    reserved: [u8; 5],
}

/// Opens a stack (`towpath_udp_open`).
///
/// # Safety
///
/// `path` is null or a text, `port` is a text, and `stack` may be written to.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_open(
    path: *const c_char,
    port: *const c_char,
    stack: *mut *mut UdpStack,
) -> c_int {
    // SAFETY: as the caller says.
    let (path, port) = unsafe { (text(path), text(port)) };
    let open = || {
        let port = port.and_then(|port| port.to_str().ok()).ok_or(Errno::INVAL)?;
        let mut options = Options::new(port);
        if let Some(path) = path {
            options.path = OsStr::from_bytes(path.to_bytes()).into();
        }
        UdpStack::open(&options)
    };
    // SAFETY: as the caller says.
    unsafe { put(open(), stack) }
}

/// Closes a stack (`towpath_udp_close`).
///
/// # Safety
///
/// `stack` is null or an open stack, which is not used afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_close(stack: *mut UdpStack) {
    if !stack.is_null() {
        // SAFETY: it was made by `put`, and is not used afterwards.
        drop(unsafe { Box::from_raw(stack) });
    }
}

/// Binds a socket (`towpath_udp_bind`).
///
/// # Safety
///
/// `stack` is open, `address` has `len` bytes, and `socket` may be written to.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_bind(
    stack: *const UdpStack,
    address: *const u8,
    len: c_uint,
    flags: c_uint,
    socket: *mut *mut UdpSocket,
) -> c_int {
    // SAFETY: as the caller says.
    let (stack, address) = unsafe { (stack.as_ref(), sockaddr(address, len)) };
    let bind = || {
        let (stack, address) = (stack.ok_or(Errno::INVAL)?, address?);
        match flags {
            0 => stack.bind(address),
            REUSEPORT => stack.bind_shared(address),
            _ => Err(Errno::INVAL.into()),
        }
    };
    // SAFETY: as the caller says.
    unsafe { put(bind(), socket) }
}

/// Binds the socket of a QUIC server (`towpath_udp_bind_quic`).
///
/// # Safety
///
/// As [`towpath_udp_bind`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_bind_quic(
    stack: *const UdpStack,
    address: *const u8,
    len: c_uint,
    configuration: c_uint,
    server: c_int,
    socket: *mut *mut UdpSocket,
) -> c_int {
    // SAFETY: as the caller says.
    let (stack, address) = unsafe { (stack.as_ref(), sockaddr(address, len)) };
    let bind = || {
        let (stack, address) = (stack.ok_or(Errno::INVAL)?, address?);
        let server = match (configuration, server) {
            (0, -1) => None,
            _ => Some(server_id(configuration, server).ok_or(Errno::INVAL)?),
        };
        stack.bind_quic(address, server)
    };
    // SAFETY: as the caller says.
    unsafe { put(bind(), socket) }
}

/// The beginning of a server's connection IDs (`towpath_udp_server_prefix`).
///
/// # Safety
///
/// `socket` is open, and `prefix` has three bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_server_prefix(
    socket: *const UdpSocket,
    prefix: *mut [u8; 3],
) -> c_int {
    // SAFETY: as the caller says.
    let (socket, prefix) = unsafe { (socket.as_ref(), prefix.as_mut()) };
    let (Some(socket), Some(prefix)) = (socket, prefix) else { return number(Errno::INVAL) };
    let Some(server) = socket.server_id() else { return number(Errno::NOENT) };
    *prefix = server.prefix();
    0
}

/// Leaves new connections to others (`towpath_udp_drain`).
///
/// # Safety
///
/// `socket` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_drain(socket: *const UdpSocket) -> c_int {
    // SAFETY: as the caller says.
    let socket = unsafe { socket.as_ref() };
    status(socket.map_or(Err(Errno::INVAL.into()), |socket| socket.drain().map(|()| 0)))
}

/// Closes a socket (`towpath_udp_free`).
///
/// # Safety
///
/// `socket` is null or open, and not used afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_free(socket: *mut UdpSocket) {
    if !socket.is_null() {
        // SAFETY: it was made by `put`, and is not used afterwards.
        drop(unsafe { Box::from_raw(socket) });
    }
}

/// The bound address (`towpath_udp_getsockname`).
///
/// # Safety
///
/// `socket` is open, and `address` may be written to.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_getsockname(
    socket: *const UdpSocket,
    address: *mut Address,
) -> c_int {
    // SAFETY: as the caller says.
    let (socket, address) = unsafe { (socket.as_ref(), address.as_mut()) };
    let (Some(socket), Some(address)) = (socket, address) else { return number(Errno::INVAL) };
    *address = Address::new(socket.local_addr());
    0
}

/// Receives datagrams (`towpath_udp_recvmmsg`).
///
/// # Safety
///
/// `socket` is open; `datagrams` has `count` datagrams, whose `data` has `len` bytes each, which no
/// other thread uses.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_recvmmsg(
    socket: *const UdpSocket,
    datagrams: *mut Datagram,
    count: c_uint,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(socket) = (unsafe { socket.as_ref() }) else { return number(Errno::INVAL) };
    if datagrams.is_null() || count == 0 {
        return if count == 0 { 0 } else { number(Errno::INVAL) };
    }
    // SAFETY: as the caller says, and not null.
    let datagrams = unsafe { std::slice::from_raw_parts_mut(datagrams, count as usize) };
    let mut places = datagrams.iter_mut();
    let received = socket.recv_batch(count as usize, |datagram| {
        // There are as many places as the call asks for.
        let Some(place) = places.next() else { return };
        let (len, room) = (datagram.payload.len(), place.len);
        if !place.data.is_null() {
            let data = place.data.cast::<u8>();
            // SAFETY: `data` has `room` bytes, which are the caller's alone.
            unsafe { data.copy_from_nonoverlapping(datagram.payload.as_ptr(), len.min(room)) };
        }
        place.len = len;
        place.peer = Address::new(datagram.source);
        place.local = Address::new(datagram.destination);
        (place.segment_size, place.ecn) = (0, datagram.ecn);
    });
    received as c_int
}

/// Sends datagrams (`towpath_udp_sendmmsg`).
///
/// # Safety
///
/// `socket` is open; `datagrams` has `count` datagrams, whose `data` has `len` bytes each.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_sendmmsg(
    socket: *const UdpSocket,
    datagrams: *const Datagram,
    count: c_uint,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(socket) = (unsafe { socket.as_ref() }) else { return number(Errno::INVAL) };
    if datagrams.is_null() || count == 0 {
        return if count == 0 { 0 } else { number(Errno::INVAL) };
    }
    // SAFETY: as the caller says, and not null.
    let datagrams = unsafe { std::slice::from_raw_parts(datagrams, count as usize) };
    let mut batch = Vec::with_capacity(datagrams.len());
    let mut refused = None;
    for datagram in datagrams {
        // SAFETY: `data` has `len` bytes.
        match unsafe { to_send(datagram) } {
            Ok(datagram) => batch.push(datagram),
            // The datagrams before this one are sent.
            Err(errno) => {
                refused = Some(errno);
                break;
            }
        }
    }
    match refused {
        Some(errno) if batch.is_empty() => number(errno),
        _ => status(socket.send_batch(&batch).map(|sent| sent as c_int)),
    }
}

/// Waits for datagrams (`towpath_udp_wait_recv`).
///
/// # Safety
///
/// `socket` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_wait_recv(
    socket: *const UdpSocket,
    ms: c_int,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(socket) = (unsafe { socket.as_ref() }) else { return number(Errno::INVAL) };
    status(socket.wait_recv(limit(ms)).map(c_int::from))
}

/// Waits for room (`towpath_udp_wait_send`).
///
/// # Safety
///
/// `socket` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_wait_send(
    socket: *const UdpSocket,
    ms: c_int,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(socket) = (unsafe { socket.as_ref() }) else { return number(Errno::INVAL) };
    status(socket.wait_send(limit(ms)).map(c_int::from))
}

/// Asks for a wake-up for datagrams (`towpath_udp_arm_recv`).
///
/// # Safety
///
/// `socket` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_arm_recv(socket: *const UdpSocket) -> c_int {
    // SAFETY: as the caller says.
    let socket = unsafe { socket.as_ref() };
    socket.map_or(number(Errno::INVAL), |socket| socket.arm_recv().into())
}

/// Asks for a wake-up for room (`towpath_udp_arm_send`).
///
/// # Safety
///
/// `socket` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_arm_send(socket: *const UdpSocket) -> c_int {
    // SAFETY: as the caller says.
    let socket = unsafe { socket.as_ref() };
    socket.map_or(number(Errno::INVAL), |socket| socket.arm_send().into())
}

/// Descriptors to receive (`towpath_udp_recv_fds`).
///
/// # Safety
///
/// `socket` is open, and `fds` has room for `room` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_recv_fds(
    socket: *const UdpSocket,
    fds: *mut c_int,
    room: c_uint,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(socket) = (unsafe { socket.as_ref() }) else { return number(Errno::INVAL) };
    // SAFETY: as the caller says.
    unsafe { put_descriptors(&socket.recv_descriptors(), fds, room) }
}

/// Descriptors to send (`towpath_udp_send_fds`).
///
/// # Safety
///
/// As [`towpath_udp_recv_fds`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_udp_send_fds(
    socket: *const UdpSocket,
    fds: *mut c_int,
    room: c_uint,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(socket) = (unsafe { socket.as_ref() }) else { return number(Errno::INVAL) };
    // SAFETY: as the caller says.
    unsafe { put_descriptors(&socket.send_descriptors(), fds, room) }
}

/// A text from C; `None` if it is null.
///
/// # Safety
///
/// It is null, or ends with a NUL and does not change during `'a`.
unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: as the caller says, and not null.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
}

/// An address from C.
///
/// # Safety
///
/// It is null, or has `len` bytes.
unsafe fn sockaddr(address: *const u8, len: c_uint) -> Result<SocketAddr, Errno> {
    if address.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: as the caller says, and not null.
    let bytes = unsafe { std::slice::from_raw_parts(address, len as usize) };
    Address::from_bytes(bytes)?.get()?.ok_or(Errno::INVAL)
}

/// A datagram to send.
///
/// # Safety
///
/// `data` has `len` bytes, which do not change meanwhile.
unsafe fn to_send(datagram: &Datagram) -> Result<TxDatagram<'_>, Errno> {
    let payload = match (datagram.data.is_null(), datagram.len) {
        (_, 0) => &[],
        (true, _) => return Err(Errno::FAULT),
        // SAFETY: as the caller says, and not null.
        (false, len) => unsafe { std::slice::from_raw_parts(datagram.data.cast::<u8>(), len) },
    };
    let destination = datagram.peer.get()?.ok_or(Errno::DESTADDRREQ)?;
    let segment = usize::from(datagram.segment_size);
    Ok(TxDatagram {
        source: datagram.local.get()?.map(|source| source.ip()),
        ecn: datagram.ecn & 3,
        segment_size: (segment > 0).then_some(segment),
        ..TxDatagram::new(payload, destination)
    })
}

/// Gives a new object to C.
///
/// # Safety
///
/// `place` is null or may be written to.
unsafe fn put<T>(object: io::Result<T>, place: *mut *mut T) -> c_int {
    // SAFETY: as the caller says.
    let Some(place) = (unsafe { place.as_mut() }) else { return number(Errno::INVAL) };
    status(object.map(|object| {
        *place = Box::into_raw(Box::new(object));
        0
    }))
}

/// Writes the numbers of descriptors, as far as there is room; returns their number.
///
/// # Safety
///
/// `fds` has room for `room` numbers, or is null.
unsafe fn put_descriptors(from: &[BorrowedFd<'_>], fds: *mut c_int, room: c_uint) -> c_int {
    if !fds.is_null() {
        for (at, fd) in from.iter().take(room as usize).enumerate() {
            // SAFETY: `at` is less than `room`.
            unsafe { fds.add(at).write(fd.as_raw_fd()) };
        }
    }
    from.len() as c_int
}

fn server_id(configuration: c_uint, server: c_int) -> Option<ServerId> {
    ServerId::new(configuration.try_into().ok()?, server.try_into().ok()?)
}

fn limit(ms: c_int) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// A count, or the negative number of an error.
fn status(result: io::Result<c_int>) -> c_int {
    let errno = |error: io::Error| match (error.raw_os_error(), error.kind()) {
        (Some(errno), _) => -errno,
        (None, io::ErrorKind::WouldBlock) => number(Errno::AGAIN),
        (None, io::ErrorKind::NotConnected | io::ErrorKind::UnexpectedEof) => {
            number(Errno::NOTCONN)
        }
        (None, _) => number(Errno::IO),
    };
    result.unwrap_or_else(errno)
}

fn number(errno: Errno) -> c_int {
    -errno.raw_os_error()
}

/// `TOWPATH_UDP_REUSEPORT`
const REUSEPORT: c_uint = 1;
