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
    AF_XDP, Address, COPY, RX_RING, UMEM_COMPLETION_RING, UMEM_FILL_RING, UMEM_REG, UmemReg,
};
use towpath_xsk_client::{Area, Connection};

/// The application.
#[derive(Debug)]
pub(crate) struct Application {
    rx: Consumer<Mapped<Desc>>,
    fill: Producer<Mapped<u64>>,
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
    pub(crate) fn open(path: &Path, port: &str, entries: u32) -> anyhow::Result<Application> {
        let connection = Connection::open(path)?;
        let area = Area::new(entries as usize * CHUNK_BYTES as usize)?;
        let (addr, len) = (area.addr(), area.len() as u64);
        let reg = UmemReg { addr, len, chunk_size: CHUNK_BYTES as u32, ..UmemReg::default() };
        connection.set_option(UMEM_REG, &reg.to_bytes(), Some((area.fd(), 0)))?;
        for name in [UMEM_FILL_RING, UMEM_COMPLETION_RING, RX_RING] {
            connection.set_option(name, &entries.to_ne_bytes(), None)?;
        }
        let fd = connection.rings();
        let rx = Consumer::new(ring(fd, XDP_PGOFF_RX_RING, &OFFSETS, entries)?);
        let fill = filled(ring(fd, XDP_UMEM_PGOFF_FILL_RING, &OFFSETS, entries)?, entries);
        let ifindex = connection.ifindex(port)?;
        let address = Address { family: AF_XDP, flags: COPY, ifindex, ..Address::default() };
        connection.bind(&address, None)?;
        connection.steer()?;
        let socket = Socket::Towpath { _connection: connection };
        Ok(Application { rx, fill, _socket: socket, _area: area })
    }

    /// Opens a socket of the kernel's for the first queue of an interface, in copy mode. Gives its
    /// descriptor as well, for an XSKMAP.
    pub(crate) fn open_kernel(ifindex: u32, entries: u32) -> anyhow::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        let area = Area::new(entries as usize * CHUNK_BYTES as usize)?;
        let reg = XdpUmemReg {
            addr: area.addr(),
            len: area.len() as u64,
            chunk_size: CHUNK_BYTES as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&fd, reg)?;
        set_xdp_umem_fill_ring_size(&fd, entries)?;
        set_xdp_umem_completion_ring_size(&fd, entries)?;
        set_xdp_rx_ring_size(&fd, entries)?;
        let offsets = xdp_mmap_offsets(&fd)?;
        let rx = Consumer::new(ring(fd.as_fd(), XDP_PGOFF_RX_RING, &offsets.rx, entries)?);
        let fill = ring(fd.as_fd(), XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, entries)?;
        let fill = filled(fill, entries);
        bind(&fd, &SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, ifindex, 0))?;
        let socket = Socket::Kernel { _fd: fd.try_clone()? };
        Ok((Application { rx, fill, _socket: socket, _area: area }, fd))
    }

    /// Takes a burst and gives its chunks back; gives the number of packets.
    #[inline]
    pub(crate) fn turn(&mut self) -> usize {
        let mut packets = [Desc::default(); BURST];
        let count = self.rx.peek_burst(&mut packets);
        let chunks = packets[..count].iter().map(|packet| packet.addr & !(CHUNK_BYTES - 1));
        // There are as many chunks as places for them.
        let count = self.fill.write_burst(count, chunks);
        self.fill.submit();
        self.rx.advance(count as u32);
        self.rx.release();
        count
    }
}

/// Gives all chunks to the other side.
fn filled(ring: Mapped<u64>, entries: u32) -> Producer<Mapped<u64>> {
    let mut fill = Producer::new(ring);
    fill.write_burst(entries as usize, (0..entries).map(|number| u64::from(number) * CHUNK_BYTES));
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

/// libxdp's usual size (`XSK_UMEM__DEFAULT_FRAME_SIZE`).
const CHUNK_BYTES: u64 = 4096;
/// Packets at a time, as xdpsock takes them.
const BURST: usize = 64;
