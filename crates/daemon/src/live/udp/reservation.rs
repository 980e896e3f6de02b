//! Sockets of the host that keep addresses and ports from its other sockets.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;

use rustix::process::{Resource, getrlimit};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use towpath_xsk::Errno;

/// Binds a socket of the host, which is never read, on an interface, and returns it with its port.
/// Port 0 asks for a free port. `None` if the host lacks the interface or the address: then no
/// socket of the host can conflict.
///
/// # Errors
///
/// `EADDRINUSE` if a socket of the host conflicts; `ENOBUFS` if the process has too few descriptors
/// left; else the host's error.
pub(super) fn reserve(
    interface: &Interface,
    address: SocketAddr,
    shares: bool,
) -> Result<Option<(u16, UdpSocket)>, Errno> {
    match bind(interface, address, shares) {
        Ok(bound) => Ok(Some(bound)),
        Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
            Errno::ADDRNOTAVAIL | Errno::NODEV | Errno::AFNOSUPPORT => Ok(None),
            errno => Err(errno),
        },
    }
}

/// An interface of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) ifindex: u32,
    pub(super) name: String,
}

fn bind(
    interface: &Interface,
    mut address: SocketAddr,
    shares: bool,
) -> std::io::Result<(u16, UdpSocket)> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if !has_room_behind(&socket) {
        return Err(Errno::NOBUFS.into());
    }
    // Datagrams that no AF_XDP socket takes must not use memory. The kernel keeps a minimum.
    socket.set_recv_buffer_size(0)?;
    if let SocketAddr::V6(address) = &mut address {
        socket.set_only_v6(true)?;
        if address.ip().is_unicast_link_local() {
            address.set_scope_id(interface.ifindex);
        }
    }
    socket.set_reuse_port(shares)?;
    socket.bind_device(Some(interface.name.as_bytes()))?;
    socket.bind(&SockAddr::from(address))?;
    let socket = UdpSocket::from(socket);
    Ok((socket.local_addr()?.port(), socket))
}

/// Whether the process has enough descriptors left for everything else. A new descriptor is the
/// lowest free number, so all below it are in use.
fn has_room_behind(socket: &Socket) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let others = (limit / 2).min(DESCRIPTORS_LEFT);
    u64::try_from(socket.as_raw_fd()).is_ok_and(|number| number < limit - others)
}

/// Number of descriptors that reservations leave free, the same as for the server of sockets.
const DESCRIPTORS_LEFT: u64 = 128;
