//! An AF_XDP socket of the kernel or of a daemon, with the same operations.

use std::cell::{RefCell, RefMut};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpRingOffset, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, sockopt};
use towpath_ring::{Consumer, Desc, Entry, Mapped, Memory, OFFSETS, Producer};
use towpath_xsk_client::abi::*;
use towpath_xsk_client::{Area, Connection};

use crate::packets::PATIENCE;
use crate::world::{End, World, index};

/// Options of a socket.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) end: End,
    /// Bytes of a chunk.
    pub(crate) chunk: u32,
    pub(crate) headroom: u32,
    /// `UMEM_*`
    pub(crate) umem_flags: u32,
    /// Bind flags.
    pub(crate) flags: u16,
    /// Entries of the rx, tx, fill and completion rings; 0 for none.
    pub(crate) rings: [u32; 4],
    /// A socket whose memory it uses.
    pub(crate) shares: Option<&'a Socket>,
    /// Frames of the queue go to it.
    pub(crate) is_steered: bool,
}

impl Plan<'_> {
    /// The usual, with all rings.
    pub(crate) fn new(end: End) -> Plan<'static> {
        Plan {
            end,
            chunk: 4096,
            headroom: 0,
            umem_flags: 0,
            flags: COPY | USE_NEED_WAKEUP,
            rings: [512; 4],
            shares: None,
            is_steered: true,
        }
    }
}

/// A bound socket.
pub(crate) struct Socket {
    rx: Option<Consumer<Mapped<Desc>>>,
    tx: Option<Producer<Mapped<Desc>>>,
    fill: Option<Producer<Mapped<u64>>>,
    completion: Option<Consumer<Mapped<u64>>>,
    area: Rc<RefCell<Area>>,
    pub(crate) system: System,
    pub(crate) chunk: u64,
}

/// The system that serves the socket.
pub(crate) enum System {
    Kernel(OwnedFd),
    Towpath(Connection),
}

impl World {
    /// Opens and binds a socket. One that was there before may take a moment to go.
    #[track_caller]
    pub(crate) fn open(&self, plan: &Plan<'_>) -> Socket {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.try_open(plan) {
                Err(error) if error.raw_os_error() == Some(16) && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => break opened.unwrap(),
            }
        }
    }

    pub(crate) fn try_open(&self, plan: &Plan<'_>) -> io::Result<Socket> {
        let system = match self {
            World::Kernel(_) => {
                System::Kernel(rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None)?)
            }
            World::Towpath(daemon) => System::Towpath(Connection::open(&daemon.sockets())?),
        };
        let area = match plan.shares {
            Some(other) => Rc::clone(&other.area),
            None => {
                let area = Area::new(AREA_BYTES)?;
                system.register(&area, plan)?;
                Rc::new(RefCell::new(area))
            }
        };
        for (which, entries) in plan.rings.into_iter().enumerate().filter(|(_, size)| *size > 0) {
            system.set_ring(which, entries)?;
        }
        let [rx, tx, fill, completion] = plan.rings;
        let chunk = u64::from(plan.chunk);
        let mut socket = Socket {
            rx: (rx > 0).then(|| system.ring(0, rx)).transpose()?.map(Consumer::new),
            tx: (tx > 0).then(|| system.ring(1, tx)).transpose()?.map(Producer::new),
            fill: (fill > 0).then(|| system.ring(2, fill)).transpose()?.map(Producer::new),
            completion: (completion > 0)
                .then(|| system.ring(3, completion))
                .transpose()?
                .map(Consumer::new),
            area,
            system,
            chunk,
        };
        socket.system.bind(plan)?;
        if plan.is_steered {
            self.steer(&mut socket, plan.end)?;
        }
        Ok(socket)
    }

    /// From now on frames of the queue go to this socket.
    pub(crate) fn steer(&self, socket: &mut Socket, end: End) -> io::Result<()> {
        match (self, &socket.system) {
            (World::Kernel(veth), System::Kernel(fd)) => veth
                .steering(end)
                .set(0, fd.as_fd())
                .map_err(|errno| io::Error::from_raw_os_error(errno.0)),
            (_, System::Towpath(connection)) => connection.steer(),
            (World::Towpath(_), System::Kernel(_)) => unreachable!("sockets stay in their world"),
        }
    }
}

impl System {
    fn register(&self, area: &Area, plan: &Plan<'_>) -> io::Result<()> {
        let (addr, len) = (area.addr(), area.len() as u64);
        match self {
            System::Kernel(fd) => {
                let reg = XdpUmemReg {
                    addr,
                    len,
                    chunk_size: plan.chunk,
                    headroom: plan.headroom,
                    flags: XdpUmemRegFlags::from_bits_retain(plan.umem_flags),
                    tx_metadata_len: 0,
                };
                Ok(sockopt::set_xdp_umem_reg(fd, reg)?)
            }
            System::Towpath(connection) => {
                let reg = UmemReg {
                    addr,
                    len,
                    chunk_size: plan.chunk,
                    headroom: plan.headroom,
                    flags: plan.umem_flags,
                    tx_metadata_len: 0,
                };
                connection.set_option(UMEM_REG, &reg.to_bytes(), Some((area.fd(), 0)))
            }
        }
    }

    fn set_ring(&self, which: usize, entries: u32) -> io::Result<()> {
        match self {
            System::Kernel(fd) => {
                let set = match which {
                    0 => sockopt::set_xdp_rx_ring_size(fd, entries),
                    1 => sockopt::set_xdp_tx_ring_size(fd, entries),
                    2 => sockopt::set_xdp_umem_fill_ring_size(fd, entries),
                    _ => sockopt::set_xdp_umem_completion_ring_size(fd, entries),
                };
                Ok(set?)
            }
            System::Towpath(connection) => {
                let name = [RX_RING, TX_RING, UMEM_FILL_RING, UMEM_COMPLETION_RING][which];
                connection.set_option(name, &entries.to_ne_bytes(), None)
            }
        }
    }

    fn ring<T: Entry>(&self, which: usize, entries: u32) -> io::Result<Mapped<T>> {
        let (fd, offsets) = self.offsets(which)?;
        let at = [PGOFF_RX, PGOFF_TX, PGOFF_FILL, PGOFF_COMPLETION][which];
        let memory = Memory::map::<T>(fd, at, &offsets, entries)?;
        Mapped::new(&memory, &offsets, entries)
    }

    fn offsets(&self, which: usize) -> io::Result<(BorrowedFd<'_>, XdpRingOffset)> {
        match self {
            System::Kernel(fd) => {
                let all = sockopt::xdp_mmap_offsets(fd)?;
                Ok((fd.as_fd(), [all.rx, all.tx, all.fr, all.cr][which]))
            }
            System::Towpath(connection) => Ok((connection.rings(), OFFSETS)),
        }
    }

    fn bind(&self, plan: &Plan<'_>) -> io::Result<()> {
        let flags = if plan.shares.is_some() { SHARED_UMEM } else { plan.flags };
        match (self, plan.shares.map(|other| &other.system)) {
            (System::Kernel(fd), None) => {
                let flags = SocketAddrXdpFlags::from_bits_retain(flags);
                Ok(rustix::net::bind(fd, &SocketAddrXdp::new(flags, index(plan.end), 0))?)
            }
            (System::Kernel(fd), Some(System::Kernel(other))) => {
                let flags = SocketAddrXdpFlags::from_bits_retain(flags);
                let addr = SocketAddrXdp::new(flags, index(plan.end), 0);
                let shared_umem_fd = other.as_fd();
                let addr = SocketAddrXdpWithSharedUmem { addr, shared_umem_fd };
                Ok(rustix::net::bind(fd, &addr)?)
            }
            (System::Towpath(connection), other) => {
                let ifindex = connection.ifindex(plan.end.name())?;
                let address = Address { family: AF_XDP, flags, ifindex, ..Address::default() };
                let shared = other.and_then(|other| match other {
                    System::Towpath(other) => Some(other.rings()),
                    System::Kernel(_) => None,
                });
                connection.bind(&address, shared)
            }
            (System::Kernel(_), Some(System::Towpath(_))) => Err(Errno::NOTSOCK.into()),
        }
    }

    fn wake(&self) -> Result<(), Errno> {
        let fd = match self {
            System::Kernel(fd) => fd.as_fd(),
            System::Towpath(connection) => connection.bell(),
        };
        let sent = rustix::net::send(fd, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        match sent {
            // Later, says the kernel; its ring or the application's is full.
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// `XDP_STATISTICS`
    pub(crate) fn statistics(&self) -> [u64; 6] {
        match self {
            System::Kernel(fd) => {
                let it = sockopt::xdp_statistics(fd).unwrap();
                let newer = [it.rx_ring_full, it.rx_fill_ring_empty_descs, it.tx_ring_empty_descs];
                let [full, empty, tx_empty] = newer.map(Option::unwrap);
                [it.rx_dropped, it.rx_invalid_descs, it.tx_invalid_descs, full, empty, tx_empty]
            }
            System::Towpath(connection) => {
                let bytes = connection.get_option(STATISTICS, 48).unwrap();
                let mut words = bytes.chunks_exact(8);
                [(); 6].map(|()| u64::from_ne_bytes(words.next().unwrap().try_into().unwrap()))
            }
        }
    }
}

impl Socket {
    /// The memory.
    pub(crate) fn area(&self) -> RefMut<'_, Area> {
        self.area.borrow_mut()
    }

    /// Gives chunks to receive into.
    #[track_caller]
    pub(crate) fn fill(&mut self, addresses: impl IntoIterator<Item = u64>) {
        let fill = self.fill.as_mut().unwrap();
        for address in addresses {
            assert!(fill.free(1) > 0, "room in the fill ring");
            fill.write(address);
        }
        fill.submit();
    }

    /// Descriptors of received packets.
    pub(crate) fn receive(&mut self) -> Vec<Desc> {
        let rx = self.rx.as_mut().unwrap();
        let came = (0..rx.available(u32::MAX)).map(|_| rx.read()).collect();
        rx.release();
        came
    }

    /// Queues descriptors to send; gives how many there was room for.
    pub(crate) fn transmit(&mut self, descs: &[Desc]) -> usize {
        let tx = self.tx.as_mut().unwrap();
        let count = descs.len().min(tx.free(descs.len() as u32) as usize);
        descs[..count].iter().for_each(|&desc| tx.write(desc));
        tx.submit();
        count
    }

    /// Wakes who sends, if that is wanted.
    pub(crate) fn kick(&self) {
        if self.tx.as_ref().unwrap().needs_wakeup() {
            self.system.wake().unwrap();
        }
    }

    /// Descriptors that were queued and not taken yet.
    pub(crate) fn unsent(&self) -> u32 {
        self.tx.as_ref().unwrap().waiting()
    }

    /// Addresses of completed packets.
    pub(crate) fn completed(&mut self) -> Vec<u64> {
        let completion = self.completion.as_mut().unwrap();
        let done = (0..completion.available(u32::MAX)).map(|_| completion.read()).collect();
        completion.release();
        done
    }

    /// Sleeps until something came; gives whether something did.
    pub(crate) fn wait(&mut self, timeout: Duration) -> bool {
        let rx = self.rx.as_mut().unwrap();
        let fd = match &self.system {
            System::Kernel(fd) => fd.as_fd(),
            System::Towpath(connection) => {
                let bell = connection.bell();
                // Old messages are no news.
                while let Ok((_, 1..)) =
                    rustix::net::recv(bell, &mut [0; 8][..], RecvFlags::DONTWAIT)
                {}
                if !rx.arm() {
                    return true;
                }
                bell
            }
        };
        let timeout = Timespec::try_from(timeout).unwrap();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap();
        rx.available(1) > 0
    }
}

/// Bytes of packet memory.
pub(crate) const AREA_BYTES: usize = 4 << 20;
