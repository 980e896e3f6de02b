//! The functions of `<towpath/xsk.h>`: libxdp's, over a [`Connection`].
//!
//! Like libxdp, a UMEM holds the first socket's connection, and each further socket shares its
//! memory. Rings for a queue are made once for all sockets on it.

#![expect(unsafe_code, reason = "called from C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use towpath_ring::{Desc, Entry, Memory, NEED_WAKEUP, OFFSETS};
use towpath_xsk_client::abi::{
    AF_XDP, Address, PGOFF_COMPLETION, PGOFF_FILL, PGOFF_RX, PGOFF_TX, RX_RING, SHARED_UMEM,
    SOCKET_LEVEL, TX_RING, UMEM_COMPLETION_RING, UMEM_FILL_RING, UMEM_REG, UmemReg,
};
use towpath_xsk_client::{Area, Connection, default_path};

/// `struct xsk_ring_prod` and `struct xsk_ring_cons`
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ring {
    cached_prod: u32,
    cached_cons: u32,
    mask: u32,
    size: u32,
    producer: *mut u32,
    consumer: *mut u32,
    ring: *mut c_void,
    flags: *mut u32,
    bell: c_int,
    idle: u32,
}

/// `struct xsk_umem_config`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct UmemConfig {
    fill_size: u32,
    comp_size: u32,
    frame_size: u32,
    frame_headroom: u32,
    flags: u32,
}

/// `struct xsk_umem_opts`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct UmemOpts {
    sz: usize,
    fd: c_int,
    size: u64,
    config: UmemConfig,
    tx_metadata_len: u32,
}

/// `struct xsk_socket_config`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct SocketConfig {
    rx_size: u32,
    tx_size: u32,
    libxdp_flags: u32,
    xdp_flags: u32,
    bind_flags: u16,
}

/// `struct xsk_umem`
#[derive(Debug)]
pub(crate) struct Umem {
    /// The first socket's connection; taken when the memory is deleted.
    first: Arc<Connection>,
    config: UmemConfig,
    /// Kept for as long as the daemon may write to it.
    _area: Area,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sockets: usize,
    /// The fill and completion rings of the first socket wait for a queue.
    spare: Option<[Arc<Memory>; 2]>,
    /// Queues that have their rings: ifindex, queue, users, rings.
    queues: Vec<(u32, u32, usize, [Arc<Memory>; 2])>,
    is_first_used: bool,
    /// The first socket's rx and tx rings, which a failed attempt to bind it has set up.
    has_rings: [bool; 2],
}

/// `struct xsk_socket`
#[derive(Debug)]
pub(crate) struct Socket {
    connection: Arc<Connection>,
    umem: NonNull<Umem>,
    place: (u32, u32),
    _rings: Vec<Arc<Memory>>,
}

impl Default for UmemConfig {
    fn default() -> UmemConfig {
        let (fill_size, comp_size) = (RING_ENTRIES, RING_ENTRIES);
        UmemConfig { fill_size, comp_size, frame_size: 4096, frame_headroom: 0, flags: 0 }
    }
}

const RING_ENTRIES: u32 = 2048;

/// 0, or the negative number of an error.
fn status(result: io::Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => -error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
    }
}

fn errno(errno: Errno) -> io::Error {
    errno.into()
}

/// Maps a ring and fills in the C structure with its addresses.
///
/// # Safety
///
/// `out` may be written to.
unsafe fn map_ring<T: Entry>(
    connection: &Connection,
    at: u64,
    entries: u32,
    out: *mut Ring,
    is_producer: bool,
) -> io::Result<Arc<Memory>> {
    let memory = Memory::map::<T>(connection.rings(), at, &OFFSETS, entries)?;
    let base = memory.addr().as_ptr();
    let part = |offset: u64| base.wrapping_add(offset as usize);
    let (producer, consumer) = (part(OFFSETS.producer), part(OFFSETS.consumer));
    // SAFETY: inside the new mapping, aligned.
    let (made, used) = unsafe { (producer.cast::<u32>().read(), consumer.cast::<u32>().read()) };
    let ring = Ring {
        cached_prod: made,
        cached_cons: if is_producer { used.wrapping_add(entries) } else { used },
        mask: entries - 1,
        size: entries,
        producer: producer.cast(),
        consumer: consumer.cast(),
        ring: part(OFFSETS.desc).cast(),
        flags: part(OFFSETS.flags.unwrap_or(0)).cast(),
        bell: -1,
        idle: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { out.write(ring) };
    Ok(memory)
}

/// Sets a ring's size and maps the fill and completion rings.
///
/// # Safety
///
/// As [`map_ring`].
unsafe fn map_pool_rings(
    connection: &Connection,
    config: &UmemConfig,
    fill: *mut Ring,
    comp: *mut Ring,
) -> io::Result<[Arc<Memory>; 2]> {
    connection.set_option(UMEM_FILL_RING, &config.fill_size.to_ne_bytes(), None)?;
    connection.set_option(UMEM_COMPLETION_RING, &config.comp_size.to_ne_bytes(), None)?;
    // SAFETY: the caller's promise.
    unsafe {
        Ok([
            map_ring::<u64>(connection, PGOFF_FILL, config.fill_size, fill, true)?,
            map_ring::<u64>(connection, PGOFF_COMPLETION, config.comp_size, comp, false)?,
        ])
    }
}

/// Common part of all functions that create a UMEM.
///
/// # Safety
///
/// As C says it: the pointers lead to what their types say, or are null; the memory is the
/// caller's.
unsafe fn create_umem(
    area: *mut c_void,
    opts: &UmemOpts,
    fill: *mut Ring,
    comp: *mut Ring,
) -> io::Result<Box<Umem>> {
    let base = NonNull::new(area.cast::<u8>()).ok_or(errno(Errno::FAULT))?;
    if fill.is_null() || comp.is_null() {
        return Err(errno(Errno::FAULT));
    }
    let connection = if opts.fd > 0 {
        // SAFETY: the caller's, who gives it to us.
        Connection::over(unsafe { OwnedFd::from_raw_fd(opts.fd) })?
    } else {
        Connection::open(&default_path())?
    };
    let reg = UmemReg {
        addr: base.as_ptr() as u64,
        len: opts.size,
        chunk_size: opts.config.frame_size,
        headroom: opts.config.frame_headroom,
        flags: opts.config.flags,
        tx_metadata_len: opts.tx_metadata_len,
    };
    let bytes = reg.to_bytes();
    // The daemon's refusals come before the memory is replaced.
    if let Err(error) = connection.set_option(UMEM_REG, &bytes, None)
        && error.raw_os_error() != Some(Errno::FAULT.raw_os_error())
    {
        return Err(error);
    }
    let len = usize::try_from(opts.size).map_err(|_large| errno(Errno::INVAL))?;
    // SAFETY: aligned, which the daemon has checked; the rest the caller says.
    let area = unsafe { Area::over(base, len) }?;
    connection.set_option(UMEM_REG, &bytes, Some((area.fd(), 0)))?;
    // SAFETY: not null; the caller says the rest.
    let rings = unsafe { map_pool_rings(&connection, &opts.config, fill, comp) }?;
    let state = State { spare: Some(rings), ..State::default() };
    Ok(Box::new(Umem {
        first: Arc::new(connection),
        config: opts.config,
        _area: area,
        state: Mutex::new(state),
    }))
}

/// `xsk_umem__create`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_umem__create(
    umem: *mut *mut Umem,
    area: *mut c_void,
    size: u64,
    fill: *mut Ring,
    comp: *mut Ring,
    config: *const UmemConfig,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { xsk_umem__create_with_fd(umem, 0, area, size, fill, comp, config) }
}

/// `xsk_umem__create_with_fd`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_umem__create_with_fd(
    umem: *mut *mut Umem,
    fd: c_int,
    area: *mut c_void,
    size: u64,
    fill: *mut Ring,
    comp: *mut Ring,
    config: *const UmemConfig,
) -> c_int {
    if umem.is_null() {
        return -Errno::FAULT.raw_os_error();
    }
    // SAFETY: null or the caller's.
    let config = unsafe { config.as_ref() }.copied().unwrap_or_default();
    let opts = UmemOpts { sz: size_of::<UmemOpts>(), fd, size, config, tx_metadata_len: 0 };
    // SAFETY: the caller's promise.
    status(unsafe { create_umem(area, &opts, fill, comp) }.map(|made| {
        // SAFETY: not null; the caller's.
        unsafe { umem.write(Box::into_raw(made)) };
    }))
}

/// `xsk_umem__create_opts`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_umem__create_opts(
    area: *mut c_void,
    fill: *mut Ring,
    comp: *mut Ring,
    opts: *const UmemOpts,
) -> *mut Umem {
    // SAFETY: null or the caller's.
    let Some(opts) = (unsafe { opts.as_ref() }).filter(|o| o.sz >= size_of::<UmemOpts>()) else {
        set_errno(Errno::INVAL.raw_os_error());
        return ptr::null_mut();
    };
    let or = |value: u32, usual: u32| if value == 0 { usual } else { value };
    let usual = UmemConfig::default();
    let config = UmemConfig {
        fill_size: or(opts.config.fill_size, usual.fill_size),
        comp_size: or(opts.config.comp_size, usual.comp_size),
        frame_size: or(opts.config.frame_size, usual.frame_size),
        ..opts.config
    };
    // SAFETY: the caller's promise.
    match unsafe { create_umem(area, &UmemOpts { config, ..*opts }, fill, comp) } {
        Ok(umem) => Box::into_raw(umem),
        Err(error) => {
            set_errno(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
            ptr::null_mut()
        }
    }
}

/// `xsk_socket__create`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_socket__create(
    socket: *mut *mut Socket,
    ifname: *const c_char,
    queue: u32,
    umem: *mut Umem,
    rx: *mut Ring,
    tx: *mut Ring,
    config: *const SocketConfig,
) -> c_int {
    let none = ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { xsk_socket__create_shared(socket, ifname, queue, umem, rx, tx, none, none, config) }
}

/// `xsk_socket__create_shared`; `fill` and `comp` are for a queue that has no rings yet.
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_socket__create_shared(
    socket: *mut *mut Socket,
    ifname: *const c_char,
    queue: u32,
    umem: *mut Umem,
    rx: *mut Ring,
    tx: *mut Ring,
    fill: *mut Ring,
    comp: *mut Ring,
    config: *const SocketConfig,
) -> c_int {
    let (Some(owner), false) = (NonNull::new(umem), socket.is_null() || ifname.is_null()) else {
        return -Errno::FAULT.raw_os_error();
    };
    if rx.is_null() && tx.is_null() {
        return -Errno::FAULT.raw_os_error();
    }
    // SAFETY: null or the caller's.
    let config = unsafe { config.as_ref() }.copied().unwrap_or(SocketConfig {
        rx_size: RING_ENTRIES,
        tx_size: RING_ENTRIES,
        libxdp_flags: 0,
        xdp_flags: 0,
        bind_flags: 0,
    });
    // SAFETY: the caller's, a string with an end.
    let name = unsafe { CStr::from_ptr(ifname) }.to_string_lossy().into_owned();
    let wanted = Wanted { name: &name, queue, rx, tx, fill, comp, config };
    // SAFETY: the caller's promise.
    status(unsafe { create_socket(owner, &wanted) }.map(|made| {
        // SAFETY: not null; the caller's.
        unsafe { socket.write(Box::into_raw(Box::new(made))) };
    }))
}

/// The arguments of `xsk_socket__create_shared`.
struct Wanted<'a> {
    name: &'a str,
    queue: u32,
    rx: *mut Ring,
    tx: *mut Ring,
    fill: *mut Ring,
    comp: *mut Ring,
    config: SocketConfig,
}

/// Opens and binds a socket over a UMEM.
///
/// # Safety
///
/// The pointers are null or lead to what their types say.
unsafe fn create_socket(owner: NonNull<Umem>, wanted: &Wanted<'_>) -> io::Result<Socket> {
    // SAFETY: the caller's promise.
    let umem = unsafe { owner.as_ref() };
    let mut state = umem.state.lock();
    let is_first = !state.is_first_used;
    let connection = if is_first {
        Arc::clone(&umem.first)
    } else {
        Arc::new(Connection::open(&default_path())?)
    };
    let place = (connection.ifindex(wanted.name)?, wanted.queue);
    let known = state.queues.iter().position(|queue| (queue.0, queue.1) == place);
    let pool_rings = match known {
        Some(_) => None,
        None if is_first => state.spare.clone(),
        None if wanted.fill.is_null() || wanted.comp.is_null() => {
            return Err(errno(Errno::FAULT));
        }
        None => {
            // SAFETY: not null; the caller says the rest.
            let rings =
                unsafe { map_pool_rings(&connection, &umem.config, wanted.fill, wanted.comp) };
            Some(rings?)
        }
    };
    // SAFETY: as above.
    let rings = unsafe {
        let mut fresh = [false; 2];
        let done = if is_first { &mut state.has_rings } else { &mut fresh };
        map_socket_rings(&connection, wanted, done)
    }?;
    let (ifindex, queue) = place;
    let flags = if is_first { wanted.config.bind_flags } else { SHARED_UMEM };
    let address = Address { family: AF_XDP, flags, ifindex, queue, shared_umem_fd: 0 };
    let shared = (!is_first).then(|| umem.first.rings());
    connection.bind(&address, shared)?;
    state.is_first_used = true;
    if wanted.config.libxdp_flags & INHIBIT_PROG_LOAD == 0 && !wanted.rx.is_null() {
        connection.steer()?;
    }
    match (known, pool_rings) {
        (Some(index), _) => state.queues[index].2 += 1,
        (None, Some(rings)) => state.queues.push((ifindex, queue, 1, rings)),
        (None, None) => return Err(errno(Errno::INVAL)),
    }
    state.sockets += 1;
    Ok(Socket { connection, umem: owner, place, _rings: rings })
}

/// Maps the rx and tx rings that are wanted.
///
/// # Safety
///
/// The pointers are null or lead to what their types say.
unsafe fn map_socket_rings(
    connection: &Connection,
    wanted: &Wanted<'_>,
    [has_rx, has_tx]: &mut [bool; 2],
) -> io::Result<Vec<Arc<Memory>>> {
    let Wanted { rx, tx, config, .. } = *wanted;
    let mut rings = Vec::new();
    if let Some(mut place) = NonNull::new(rx) {
        if !std::mem::replace(has_rx, true) {
            connection.set_option(RX_RING, &config.rx_size.to_ne_bytes(), None)?;
        }
        // SAFETY: not null; the caller says the rest.
        rings.push(unsafe { map_ring::<Desc>(connection, PGOFF_RX, config.rx_size, rx, false) }?);
        // SAFETY: just written, its pointers into memory that is kept.
        unsafe {
            let rx = place.as_mut();
            rx.bell = connection.bell().as_raw_fd();
            // The first packet makes the descriptor readable.
            rx.flags.write_volatile(NEED_WAKEUP);
        }
    }
    if !tx.is_null() {
        if !std::mem::replace(has_tx, true) {
            connection.set_option(TX_RING, &config.tx_size.to_ne_bytes(), None)?;
        }
        // SAFETY: not null; the caller says the rest.
        rings.push(unsafe { map_ring::<Desc>(connection, PGOFF_TX, config.tx_size, tx, true) }?);
    }
    Ok(rings)
}

/// `xsk_socket__fd`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_socket__fd(socket: *const Socket) -> c_int {
    // SAFETY: null or the caller's.
    let socket = unsafe { socket.as_ref() };
    socket.map_or(-Errno::INVAL.raw_os_error(), |s| s.connection.bell().as_raw_fd())
}

/// `xsk_umem__fd`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_umem__fd(umem: *const Umem) -> c_int {
    // SAFETY: null or the caller's.
    let umem = unsafe { umem.as_ref() };
    umem.map_or(-Errno::INVAL.raw_os_error(), |umem| umem.first.bell().as_raw_fd())
}

/// `xsk_socket__delete`
///
/// # Safety
///
/// As C says it; the socket must not be used again.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_socket__delete(socket: *mut Socket) {
    if socket.is_null() {
        return;
    }
    // SAFETY: made by `xsk_socket__create_shared`, and not used again.
    let socket = unsafe { Box::from_raw(socket) };
    // SAFETY: C deletes the memory after its sockets (`xsk_umem__delete` refuses else).
    let umem = unsafe { socket.umem.as_ref() };
    let mut state = umem.state.lock();
    state.sockets = state.sockets.saturating_sub(1);
    state.queues.retain_mut(|(ifindex, queue, users, _)| {
        *users -= usize::from((*ifindex, *queue) == socket.place);
        *users > 0
    });
}

/// `xsk_umem__delete`
///
/// # Safety
///
/// As C says it; if it returns 0 the memory must not be used again.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_umem__delete(umem: *mut Umem) -> c_int {
    // SAFETY: null or the caller's.
    let Some(known) = (unsafe { umem.as_ref() }) else { return 0 };
    if known.state.lock().sockets > 0 {
        return -Errno::BUSY.raw_os_error();
    }
    // SAFETY: made by `create_umem`; no socket refers to it, and it is not used again.
    drop(unsafe { Box::from_raw(umem) });
    0
}

/// `xsk_socket__getsockopt`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_socket__getsockopt(
    socket: *const Socket,
    name: c_int,
    value: *mut c_void,
    len: *mut u32,
) -> c_int {
    // SAFETY: null or the caller's.
    let (Some(socket), Some(len)) = (unsafe { (socket.as_ref(), len.as_mut()) }) else {
        return -Errno::FAULT.raw_os_error();
    };
    if value.is_null() {
        return -Errno::FAULT.raw_os_error();
    }
    let Ok(name) = u32::try_from(name) else { return -Errno::OPNOTSUPP.raw_os_error() };
    status(socket.connection.get_option(name, *len).map(|bytes| {
        let count = bytes.len().min(*len as usize);
        // SAFETY: the caller has room for `*len` bytes there.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), count) };
        *len = count as u32;
    }))
}

/// `xsk_socket__setsockopt`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_socket__setsockopt(
    socket: *const Socket,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: u32,
) -> c_int {
    // SAFETY: null or the caller's.
    let Some(socket) = (unsafe { socket.as_ref() }) else { return -Errno::FAULT.raw_os_error() };
    if value.is_null() {
        return -Errno::FAULT.raw_os_error();
    }
    let level = match level {
        SOL_XDP => 0,
        libc::SOL_SOCKET => SOCKET_LEVEL,
        _ => return -Errno::NOPROTOOPT.raw_os_error(),
    };
    let name = match u32::try_from(name) {
        Ok(name) if name < SOCKET_LEVEL => level | name,
        _ => return -Errno::NOPROTOOPT.raw_os_error(),
    };
    // All options are numbers.
    if !(4..=8).contains(&len) {
        return -Errno::INVAL.raw_os_error();
    }
    // SAFETY: the caller has `len` bytes there.
    let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len as usize) };
    status(socket.connection.set_option(name, bytes, None))
}

/// `xsk_socket__kick`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_socket__kick(socket: *const Socket) -> c_int {
    // SAFETY: null or the caller's.
    let Some(socket) = (unsafe { socket.as_ref() }) else { return -Errno::FAULT.raw_os_error() };
    match send(socket.connection.bell(), &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // Already full of messages with the same meaning.
        Ok(_) | Err(Errno::AGAIN) => 0,
        Err(error) => -error.raw_os_error(),
    }
}

/// `xsk_socket__steer`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_socket__steer(socket: *const Socket) -> c_int {
    // SAFETY: null or the caller's.
    let socket = unsafe { socket.as_ref() };
    socket.map_or(-Errno::FAULT.raw_os_error(), |socket| status(socket.connection.steer()))
}

/// `xsk_socket__id`
///
/// # Safety
///
/// As C says it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn xsk_socket__id(socket: *const Socket) -> u32 {
    // SAFETY: null or the caller's.
    unsafe { socket.as_ref() }.map_or(0, |socket| socket.connection.id())
}

/// Sets C's `errno`.
fn set_errno(number: i32) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = number };
}

/// `SOL_XDP`
const SOL_XDP: c_int = 283;
/// `XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD`
const INHIBIT_PROG_LOAD: u32 = 1;
