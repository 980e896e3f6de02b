//! An application that receives and drops: what xdpsock does with `-r`. Its rings are Towpath's or
//! the kernel's, which is no difference once it is set up.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
    set_xdp_umem_reg, xdp_mmap_offsets,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_UMEM_PGOFF_FILL_RING, XdpRingOffset,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use towpath_ring::{Consumer, Desc, Entry, Mapped, Memory, OFFSETS, Producer};
use towpath_xsk_client::abi::{
    AF_XDP, Address, COPY, RX_RING, UMEM_COMPLETION_RING, UMEM_FILL_RING, UMEM_REG, UMEM_UNALIGNED,
    UmemReg,
};
use towpath_xsk_client::{Area, Connection};

/// How much packet memory an application has, and of what shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Chunks, and entries of each ring.
    pub(crate) entries: u32,
    /// Chunks lie a cache line further apart than they are long (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`).
    pub(crate) is_spread: bool,
}

impl Shape {
    /// Bytes from one chunk to the next. Of chunks a page apart, all packets fall into one set of
    /// the first-level cache.
    pub(crate) fn stride(self) -> u64 {
        if self.is_spread { SPREAD_BYTES + LINE_BYTES } else { PAGE_BYTES }
    }

    pub(crate) fn area(self) -> std::io::Result<Area> {
        Area::new(self.entries as usize * self.stride() as usize)
    }

    fn chunk_bytes(self) -> u32 {
        if self.is_spread { SPREAD_BYTES as u32 } else { PAGE_BYTES as u32 }
    }
}

/// The application.
#[derive(Debug)]
pub(crate) struct Application {
    rx: Consumer<Mapped<Desc>>,
    fill: Producer<Mapped<u64>>,
    /// Of the chunk in a descriptor's address.
    mask: u64,
    /// Closed before the memory goes.
    _socket: Socket,
    _area: Area,
}

/// What keeps the socket open.
#[derive(Debug)]
enum Socket {
    Kernel { _fd: OwnedFd },
    Towpath { _connection: Connection },
}

impl Application {
    /// Opens a socket of Towpath's for the first queue of a port, and has its frames steered there.
    pub(crate) fn open(path: &Path, port: &str, shape: Shape) -> anyhow::Result<Application> {
        let connection = Connection::open(path)?;
        let (area, entries) = (shape.area()?, shape.entries);
        let (addr, len, chunk_size) = (area.addr(), area.len() as u64, shape.chunk_bytes());
        let flags = if shape.is_spread { UMEM_UNALIGNED } else { 0 };
        let reg = UmemReg { addr, len, chunk_size, flags, ..UmemReg::default() };
        connection.set_option(UMEM_REG, &reg.to_bytes(), Some((area.fd(), 0)))?;
        for name in [UMEM_FILL_RING, UMEM_COMPLETION_RING, RX_RING] {
            connection.set_option(name, &entries.to_ne_bytes(), None)?;
        }
        let fd = connection.rings();
        let rx = Consumer::new(ring(fd, XDP_PGOFF_RX_RING, &OFFSETS, entries)?);
        let fill = filled(ring(fd, XDP_UMEM_PGOFF_FILL_RING, &OFFSETS, entries)?, shape);
        let ifindex = connection.ifindex(port)?;
        let address = Address { family: AF_XDP, flags: COPY, ifindex, ..Address::default() };
        connection.bind(&address, None)?;
        connection.steer()?;
        let socket = Socket::Towpath { _connection: connection };
        Ok(Application { rx, fill, mask: mask(shape), _socket: socket, _area: area })
    }

    /// Opens a socket of the kernel's for the first queue of an interface, in copy mode. Gives its
    /// descriptor as well, for an XSKMAP.
    pub(crate) fn open_kernel(ifindex: u32, shape: Shape) -> anyhow::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        let (area, entries) = (shape.area()?, shape.entries);
        let unaligned = XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG;
        let reg = XdpUmemReg {
            addr: area.addr(),
            len: area.len() as u64,
            chunk_size: shape.chunk_bytes(),
            headroom: 0,
            flags: if shape.is_spread { unaligned } else { XdpUmemRegFlags::empty() },
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&fd, reg)?;
        set_xdp_umem_fill_ring_size(&fd, entries)?;
        set_xdp_umem_completion_ring_size(&fd, entries)?;
        set_xdp_rx_ring_size(&fd, entries)?;
        let offsets = xdp_mmap_offsets(&fd)?;
        let rx = Consumer::new(ring(fd.as_fd(), XDP_PGOFF_RX_RING, &offsets.rx, entries)?);
        let fill = ring(fd.as_fd(), XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, entries)?;
        let fill = filled(fill, shape);
        bind(&fd, &SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, ifindex, 0))?;
        let socket = Socket::Kernel { _fd: fd.try_clone()? };
        Ok((Application { rx, fill, mask: mask(shape), _socket: socket, _area: area }, fd))
    }

    /// Takes a burst and gives its chunks back; gives the number of packets.
    #[inline]
    pub(crate) fn turn(&mut self) -> usize {
        let mut packets = [Desc::default(); BURST];
        let count = self.rx.peek_burst(&mut packets);
        let chunks = packets[..count].iter().map(|packet| packet.addr & self.mask);
        // There are as many chunks as places for them.
        let count = self.fill.write_burst(count, chunks);
        self.fill.submit();
        self.rx.advance(count as u32);
        self.rx.release();
        count
    }
}

/// Gives all chunks to the other side.
fn filled(ring: Mapped<u64>, shape: Shape) -> Producer<Mapped<u64>> {
    let mut fill = Producer::new(ring);
    let chunks = (0..shape.entries).map(|number| u64::from(number) * shape.stride());
    fill.write_burst(shape.entries as usize, chunks);
    fill.submit();
    fill
}

fn ring<T: Entry>(
    fd: BorrowedFd<'_>,
    page_offset: u64,
    at: &XdpRingOffset,
    entries: u32,
) -> anyhow::Result<Mapped<T>> {
    Ok(Mapped::new(&Memory::map::<T>(fd, page_offset, at, entries)?, at, entries)?)
}

/// What to keep of a descriptor's address: unaligned ones have the packet's offset in their upper
/// bits, others in their lower.
fn mask(shape: Shape) -> u64 {
    if shape.is_spread { (1 << 48) - 1 } else { !(PAGE_BYTES - 1) }
}

/// libxdp's usual size of a chunk (`XSK_UMEM__DEFAULT_FRAME_SIZE`).
const PAGE_BYTES: u64 = 4096;
const SPREAD_BYTES: u64 = 2048;
const LINE_BYTES: u64 = 64;
/// Packets at a time, as xdpsock takes them.
const BURST: usize = 64;
