//! One AF_XDP socket: one queue of an interface, its rings, and the frames that the kernel holds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets, xdp_options, xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpMmapOffsets,
    XdpOptionsFlags, XdpRingOffset, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use towpath_ring::{Consumer, Entry, Mapped, Memory, Producer};
use towpath_xdp::Arena;
use towpath_xdp::frame::arena::STRIDE_BYTES;
use towpath_xdp::frame::{BUFFER_BYTES, TAILROOM_BYTES};

use super::busy_poll_unsafe::{set_busy_poll, set_tx_budget};
use super::options::{Mode, Options};
use super::rx::Receiving;
use super::tx::Sending;

/// A bound socket. Buffers that the kernel may access belong to [`Receiving`] and [`Sending`],
/// which are stored here while no queue uses them, and dropped only after the descriptor.
pub(super) struct Socket {
    fd: Option<OwnedFd>,
    pub(super) queue: u32,
    pub(super) is_zero_copy: bool,
    /// The interface was deleted: nothing can be sent any more.
    is_gone: AtomicBool,
    receiving: Mutex<Option<Box<Receiving>>>,
    sending: Mutex<Sending>,
}

impl Socket {
    /// Opens a socket for a queue, with the whole arena as UMEM. `first` is another socket of the
    /// same port, whose memory registration it shares. The kernel gets `buffers` frames to receive
    /// into.
    pub(super) fn open(
        ifindex: u32,
        (queue, buffers): (u32, u32),
        options: &Options,
        arena: &Arc<Arena>,
        first: Option<&Socket>,
    ) -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
            .map_err(|errno| explain(errno, "socket"))?;
        if first.is_none() {
            set_xdp_umem_reg(&fd, registration(arena)).map_err(|errno| explain(errno, "memory"))?;
        }
        let rings = Rings::new(&fd, options).map_err(|errno| explain(errno, "rings"))?;
        bind_to(&fd, ifindex, queue, options, first, arena.has_huge_pages())?;
        if let Some(microseconds) = options.busy_poll {
            set_busy_poll(fd.as_fd(), microseconds, options.busy_poll_budget)?;
        }
        // This fails with kernels before 6.17, which send 32 frames per call.
        let _kept = set_tx_budget(fd.as_fd(), options.tx_ring.min(TX_BUDGET));
        let is_zero_copy = xdp_options(&fd)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        let (receiving, sending) = rings.map(&fd, options, arena, buffers)?;
        Ok(Socket {
            fd: Some(fd),
            queue,
            is_zero_copy,
            is_gone: AtomicBool::new(false),
            receiving: Mutex::new(Some(Box::new(receiving))),
            sending: Mutex::new(sending),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("taken only when dropped").as_fd()
    }

    /// The receiving side, for the worker that polls the queue; `None` if it is taken.
    pub(super) fn take_receiving(&self) -> Option<Box<Receiving>> {
        self.receiving.lock().take()
    }

    pub(super) fn put_receiving(&self, receiving: Box<Receiving>) {
        *self.receiving.lock() = Some(receiving);
    }

    /// The sending side, locked; callers hold it only to write or read a few descriptors.
    pub(super) fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock()
    }

    /// Notes that the interface was deleted, and returns the error for that.
    #[cold]
    pub(super) fn gone(&self) -> io::Error {
        self.is_gone.store(true, Ordering::Relaxed);
        io::Error::new(io::ErrorKind::NotConnected, "its interface is gone")
    }

    /// Whether [`Socket::gone`] was called.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    pub(super) fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(xdp_statistics(self.fd())?)
    }
}

impl Drop for Socket {
    /// Closes the descriptor first, so that the kernel releases the buffers before they are reused.
    fn drop(&mut self) {
        self.fd = None;
    }
}

/// The offsets of a socket's rings, before they are mapped.
struct Rings(XdpMmapOffsets);

impl Rings {
    fn new(fd: &OwnedFd, options: &Options) -> Result<Rings, Errno> {
        set_xdp_umem_fill_ring_size(fd, options.fill_ring)?;
        set_xdp_umem_completion_ring_size(fd, options.tx_ring)?;
        set_xdp_rx_ring_size(fd, options.rx_ring)?;
        set_xdp_tx_ring_size(fd, options.tx_ring)?;
        Ok(Rings(xdp_mmap_offsets(fd)?))
    }

    fn map(
        &self,
        fd: &OwnedFd,
        options: &Options,
        arena: &Arc<Arena>,
        buffers: u32,
    ) -> io::Result<(Receiving, Sending)> {
        let Rings(XdpMmapOffsets { rx, tx, fr, cr }) = self;
        let fd = fd.as_fd();
        let fill = ring(fd, XDP_UMEM_PGOFF_FILL_RING, fr, options.fill_ring)?;
        let completion = ring(fd, XDP_UMEM_PGOFF_COMPLETION_RING, cr, options.tx_ring)?;
        let received = ring(fd, XDP_PGOFF_RX_RING, rx, options.rx_ring)?;
        let sent = ring(fd, XDP_PGOFF_TX_RING, tx, options.tx_ring)?;
        Ok((
            Receiving::new(arena, Consumer::new(received), Producer::new(fill), buffers),
            Sending::new(arena, Producer::new(sent), Consumer::new(completion), options),
        ))
    }
}

fn ring<T: Entry>(
    fd: BorrowedFd<'_>,
    page_offset: u64,
    at: &XdpRingOffset,
    entries: u32,
) -> io::Result<Mapped<T>> {
    Mapped::new(&Memory::map::<T>(fd, page_offset, at, entries)?, at, entries)
}

/// The memory registration of the whole arena.
///
/// A chunk is the part of a buffer that packets may use, without the tailroom that programs never
/// get. So the kernel puts packets exactly where [`towpath_xdp::Frame`] expects them, and splits
/// long ones as `BPF_PROG_TEST_RUN` does. Such chunks lie [`STRIDE_BYTES`] apart, which the kernel
/// calls `unaligned`. They cross page boundaries, which devices support only if pages are
/// contiguous: in huge pages.
fn registration(arena: &Arena) -> XdpUmemReg {
    XdpUmemReg {
        addr: arena.base(),
        len: (arena.total() * STRIDE_BYTES) as u64,
        chunk_size: CHUNK_BYTES as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG,
        tx_metadata_len: 0,
    }
}

fn bind_to(
    fd: &OwnedFd,
    ifindex: u32,
    queue: u32,
    options: &Options,
    first: Option<&Socket>,
    has_huge_pages: bool,
) -> io::Result<()> {
    let bound = match first {
        Some(first) => {
            let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
            let addr = SocketAddrXdp::new(flags, ifindex, queue);
            let address = SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: first.fd() };
            when_free(options.patience, || bind(fd, &address))
        }
        None => {
            let mut flags = match options.mode {
                Mode::Auto if has_huge_pages => SocketAddrXdpFlags::empty(),
                Mode::Auto => SocketAddrXdpFlags::XDP_COPY,
                Mode::Copy => SocketAddrXdpFlags::XDP_COPY,
                Mode::ZeroCopy if has_huge_pages => SocketAddrXdpFlags::XDP_ZEROCOPY,
                Mode::ZeroCopy => return Err(io::Error::new(io::ErrorKind::Unsupported, NO_HUGE)),
            };
            flags.set(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, options.need_wakeup);
            flags.set(SocketAddrXdpFlags::XDP_USE_SG, options.multi_buffer);
            when_free(options.patience, || bind(fd, &SocketAddrXdp::new(flags, ifindex, queue)))
        }
    };
    bound.map_err(|errno| explain_bind(errno, queue, options))
}

/// Binds a socket, and waits until the queue is free: the kernel releases a queue some time after
/// its socket was closed (`xdp_umem_release_deferred`), so a port that is opened again would
/// conflict with its own old socket.
fn when_free(patience: Duration, bind: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    let until = Instant::now() + patience;
    loop {
        match bind() {
            Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(RELEASE_POLL),
            bound => return bound,
        }
    }
}

fn explain(errno: Errno, what: &str) -> io::Error {
    let error = io::Error::from(errno);
    let hint = match errno {
        Errno::PERM => ": AF_XDP needs CAP_NET_RAW",
        Errno::AFNOSUPPORT => ": this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
        Errno::NOBUFS => ": raise the limit of locked memory (ulimit -l), or use fewer frames",
        _ => "",
    };
    io::Error::new(error.kind(), format!("AF_XDP {what}: {error}{hint}"))
}

fn explain_bind(errno: Errno, queue: u32, options: &Options) -> io::Error {
    let error = io::Error::from(errno);
    let hint = match errno {
        Errno::BUSY => ": another process has an AF_XDP socket on this queue",
        Errno::OPNOTSUPP if options.mode == Mode::ZeroCopy => {
            ": the driver cannot do without copies; set mode = copy or auto"
        }
        Errno::INVAL if options.mode == Mode::ZeroCopy => {
            ": the interface's MTU does not fit zero copy, or there is no such queue"
        }
        Errno::INVAL => ": the interface has no such queue",
        Errno::NODEV => ": the interface is gone",
        _ => "",
    };
    io::Error::new(error.kind(), format!("AF_XDP socket for queue {queue}: {error}{hint}"))
}

const RELEASE_POLL: Duration = Duration::from_millis(2);

/// Buffer number of an address from the kernel, and the offset in the buffer. Unaligned addresses
/// carry an offset in their upper 16 bits (`XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
#[inline]
pub(super) fn place(addr: u64) -> (usize, usize) {
    let at = (addr & ((1 << 48) - 1)) + (addr >> 48);
    ((at / STRIDE_BYTES as u64) as usize, (at % STRIDE_BYTES as u64) as usize)
}

/// Bytes of a buffer that the kernel may use, its headroom included.
pub(super) const CHUNK_BYTES: usize = BUFFER_BYTES - TAILROOM_BYTES;
const _: () = assert!(CHUNK_BYTES <= STRIDE_BYTES, "no chunk reaches into the next buffer");
const NO_HUGE: &str = "zero copy needs frames in huge pages: set vm.nr_hugepages, then start again";
/// Most frames that one system call sends.
const TX_BUDGET: u32 = 256;
