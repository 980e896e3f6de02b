//! Ends of wires: packet sockets on interfaces of the host's, which come and go.

#![expect(unsafe_code, reason = "an address of a packet socket is none of the standard library's")]

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// One end: it sends, or receives frames of the walk's protocol.
#[derive(Debug)]
pub(crate) struct Wire {
    name: String,
    protocol: u16,
    socket: Option<(u32, OwnedFd)>,
    /// Asks for interfaces' numbers.
    asker: OwnedFd,
}

impl Wire {
    /// An end that sends.
    pub(crate) fn sender(name: &str) -> Wire {
        Wire::new(name, 0)
    }

    /// An end that receives frames of a protocol.
    pub(crate) fn receiver(name: &str, protocol: u16) -> Wire {
        Wire::new(name, protocol)
    }

    fn new(name: &str, protocol: u16) -> Wire {
        let flags = SocketFlags::CLOEXEC;
        let asker = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
        let asker = asker.expect("there are descriptors");
        Wire { name: name.to_owned(), protocol, socket: None, asker }
    }

    /// Sends, if the interface is there and takes it.
    pub(crate) fn send(&mut self, frame: &[u8]) -> bool {
        let Some(socket) = self.socket() else { return false };
        send(socket, frame, SendFlags::DONTWAIT).is_ok()
    }

    /// The next frame, if there is one; its first bytes.
    pub(crate) fn receive(&mut self, frame: &mut [u8]) -> Option<usize> {
        let socket = self.socket()?;
        recv(socket, frame, RecvFlags::DONTWAIT).ok().map(|(len, _)| len)
    }

    /// Forgets sockets whose interface is gone, or another one by now.
    pub(crate) fn look(&mut self) {
        let now = name_to_index(&self.asker, &self.name).ok();
        if now != self.socket.as_ref().map(|(index, _)| *index) {
            self.socket = None;
        }
    }

    fn socket(&mut self) -> Option<&OwnedFd> {
        if self.socket.is_none() {
            let index = name_to_index(&self.asker, &self.name).ok()?;
            self.socket = Some((index, open(index, self.protocol).ok()?));
        }
        self.socket.as_ref().map(|(_, socket)| socket)
    }
}

fn open(index: u32, protocol: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    // SAFETY: all zeros is a `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index.cast_signed();
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is a `sockaddr_ll` of that size.
    let bound =
        unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) };
    if bound == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}
