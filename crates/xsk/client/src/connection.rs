//! A connection to the daemon: the system calls of an AF_XDP socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::abi::Address;
use crate::protocol::{Greeting, Reply, Request, Route, UdpBinding};
use crate::wire::{receive, send};

/// One AF_XDP socket, without memory of its own so far.
#[derive(Debug)]
pub struct Connection {
    stream: OwnedFd,
    rings: OwnedFd,
    bell: OwnedFd,
    id: u32,
    /// Held from a request until its answer.
    asking: Mutex<()>,
}

impl Connection {
    /// Connects to the daemon that listens at a path.
    pub fn open(path: &Path) -> io::Result<Connection> {
        let flags = SocketFlags::CLOEXEC;
        let stream = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&stream, &SocketAddrUnix::new(path)?)?;
        Connection::over(stream)
    }

    /// Uses a connection opened by the caller.
    pub fn over(stream: OwnedFd) -> io::Result<Connection> {
        let (bytes, mut files) = receive(&stream)?;
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "not the socket of a towpath");
        let greeting = Greeting::from_bytes(&bytes).ok_or_else(strange)?;
        if greeting.errno != 0 {
            return Err(io::Error::from_raw_os_error(greeting.errno));
        }
        let (Some(bell), Some(rings)) = (files.pop(), files.pop()) else { return Err(strange()) };
        Ok(Connection { stream, rings, bell, id: greeting.id, asking: Mutex::default() })
    }

    /// The socket's number in maps.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The file of the rings, each at its offset (`XDP_PGOFF_*`); it also proves to the daemon that
    /// we may share the socket's memory.
    pub fn rings(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }

    /// Readable when packets came; an empty message to it wakes the daemon.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// `setsockopt`; for `UMEM_REG`, with the memory's file and the offset at which the memory
    /// begins in it.
    pub fn set_option(
        &self,
        name: u32,
        value: &[u8],
        file: Option<(BorrowedFd<'_>, u64)>,
    ) -> io::Result<()> {
        let start = file.map_or(0, |(_, start)| start);
        let request = Request::SetOption { name, start, value: value.to_vec() };
        self.ask(&request, file.map(|(file, _)| file)).map(drop)
    }

    /// `getsockopt`
    pub fn get_option(&self, name: u32, room: u32) -> io::Result<Vec<u8>> {
        self.ask(&Request::GetOption { name, room }, None)
    }

    /// `bind`; with `SHARED_UMEM` to the memory of another.
    pub fn bind(&self, address: &Address, shared: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.ask(&Request::Bind { address: address.to_bytes().to_vec() }, shared).map(drop)
    }

    /// `if_nametoindex`, among the daemon's ports.
    pub fn ifindex(&self, name: &str) -> io::Result<u32> {
        let value = self.ask(&Request::Ifindex { name: name.to_owned() }, None)?;
        Ok(crate::abi::number(&value))
    }

    /// Requests delivery of the frames of the socket's queue to it, unless a program decides
    /// otherwise.
    pub fn steer(&self) -> io::Result<()> {
        self.ask(&Request::Steer, None).map(drop)
    }

    /// Puts the bound socket into an XSKMAP of a program on its port.
    pub fn insert(&self, map: &str, key: u32) -> io::Result<()> {
        self.ask(&Request::Insert { map: map.to_owned(), key }, None).map(drop)
    }

    /// Requests delivery of UDP datagrams that arrive at the bound socket's queue for an address
    /// and port of the host. Port 0 asks for a free one; returns the port.
    ///
    /// # Errors
    ///
    /// Fails with `EADDRINUSE` if another group, or a socket of the host, has the address and port,
    /// with `EADDRNOTAVAIL` if the address is not the host's, with `EEXIST` if another group has
    /// the server ID there, and with `ENXIO` before `bind`.
    pub fn bind_udp(&self, binding: UdpBinding) -> io::Result<u16> {
        let value = self.ask(&Request::BindUdp(binding), None)?;
        Ok(crate::abi::number(&value) as u16)
    }

    /// Ends what [`Connection::bind_udp`] began.
    pub fn unbind_udp(&self, address: SocketAddr) -> io::Result<()> {
        self.ask(&Request::UnbindUdp { address }, None).map(drop)
    }

    /// Ends new connections of a QUIC server: the socket's group gets only packets with its server
    /// ID from now on.
    ///
    /// # Errors
    ///
    /// Fails with `ENOENT` if the address and port are not bound, and with `EINVAL` if they are
    /// bound without a server ID.
    pub fn drain_udp(&self, address: SocketAddr) -> io::Result<()> {
        self.ask(&Request::DrainUdp { address }, None).map(drop)
    }

    /// The route to a destination by the bound socket's port.
    ///
    /// # Errors
    ///
    /// Fails with `EAGAIN` while the next hop's Ethernet address is requested from it, with
    /// `ENETUNREACH` if no route leads there by this port, and with `EOPNOTSUPP` if the destination
    /// is the host itself.
    pub fn route(&self, destination: IpAddr) -> io::Result<Route> {
        let value = self.ask(&Request::Route { destination }, None)?;
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "a route that makes no sense");
        Route::from_bytes(&value).ok_or_else(strange)
    }

    fn ask(&self, request: &Request, file: Option<BorrowedFd<'_>>) -> io::Result<Vec<u8>> {
        let _answer_is_ours = self.asking.lock();
        send(self.stream.as_fd(), &request.to_bytes(), file.as_slice())?;
        let (bytes, _files) = receive(&self.stream)?;
        let reply = Reply::from_bytes(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the daemon is gone"))?;
        match reply.errno {
            0 => Ok(reply.value),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// The path at which a daemon listens for applications: `TOWPATH_XSK`, or the usual one.
pub fn default_path() -> PathBuf {
    std::env::var_os("TOWPATH_XSK").map_or_else(|| PathBuf::from(USUAL_PATH), PathBuf::from)
}

const USUAL_PATH: &str = "/run/towpath/xsk.sock";
