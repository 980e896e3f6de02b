//! Sockets of the host that keep addresses and ports from its other sockets.

use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use towpath_xsk::Errno;

/// Binds a socket of the host on an interface, which is never read; gives its port as well.
/// Port 0 asks for a free one. `None` if the host lacks the interface or the address: then none of
/// its sockets can conflict.
///
/// # Errors
///
/// `EADDRINUSE` if one of its sockets conflicts; else its error.
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
