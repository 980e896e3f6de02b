//! Interfaces of the host: what ports over them need to know (`RTM_GETLINK`).
//!
//! Asked of the kernel each time, in the network namespace of the calling thread; `/sys` would show
//! those of whoever mounted it.

mod channels_unsafe;

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

pub use channels_unsafe::rx_queues;

/// An interface as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in its namespace.
    pub index: u32,
    /// Its Ethernet address; all zeros when it has none.
    pub mac: [u8; 6],
    /// Largest payload, without the Ethernet header.
    pub mtu: u32,
    /// It is set up (`IFF_UP`).
    pub is_up: bool,
    /// Frames can leave and arrive (`IFF_LOWER_UP`).
    pub has_link: bool,
    /// An XDP program is attached.
    pub xdp: Option<XdpAttached>,
}

/// What is attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpAttached {
    /// Where it runs; `multi` when there are several.
    pub mode: &'static str,
    /// Its number; 0 when there are several.
    pub id: u32,
}

impl Interface {
    /// The interface of that name.
    pub fn find(name: &str) -> io::Result<Interface> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let what = format!("an interface's name has 1 to {NAME_BYTES_MAX} bytes, not `{name}`");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let answer = request(name)?;
        parse(&answer).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => {
                let what = format!("there is no interface {name} in this network namespace");
                io::Error::new(io::ErrorKind::NotFound, what)
            }
            _ => error,
        })
    }
}

fn request(name: &str) -> io::Result<Vec<u8>> {
    let flags = SocketFlags::CLOEXEC;
    // Protocol 0 is `NETLINK_ROUTE`.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let attribute = (4 + name.len() + 1) as u16;
    let total = HEADERS_BYTES + usize::from(attribute).next_multiple_of(4);
    let mut message = Vec::with_capacity(total);
    message.extend((total as u32).to_ne_bytes());
    message.extend(RTM_GETLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence and port number, then an empty `ifinfomsg`.
    message.resize(HEADERS_BYTES, 0);
    message.extend(attribute.to_ne_bytes());
    message.extend(IFLA_IFNAME.to_ne_bytes());
    message.extend(name.as_bytes());
    message.resize(total, 0);
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    answer.truncate(len);
    Ok(answer)
}

fn parse(answer: &[u8]) -> io::Result<Interface> {
    let malformed = || io::Error::other("the kernel's answer to RTM_GETLINK cannot be read");
    let kind = bytes(answer, 4).map(u16::from_ne_bytes).ok_or_else(malformed)?;
    if kind == NLMSG_ERROR {
        let errno = bytes(answer, 16).map(i32::from_ne_bytes).ok_or_else(malformed)?;
        return Err(io::Error::from_raw_os_error(-errno));
    }
    let index = bytes(answer, 20).map(u32::from_ne_bytes).ok_or_else(malformed)?;
    let flags = bytes(answer, 24).map(u32::from_ne_bytes).ok_or_else(malformed)?;
    if kind != RTM_NEWLINK {
        return Err(malformed());
    }
    let mut interface = Interface {
        index,
        is_up: flags & IFF_UP != 0,
        has_link: flags & IFF_LOWER_UP != 0,
        ..Interface::default()
    };
    for (kind, value) in Attributes(answer.get(HEADERS_BYTES..).unwrap_or_default()) {
        match kind {
            IFLA_ADDRESS => interface.mac = bytes(value, 0).unwrap_or_default(),
            IFLA_IFNAME => {
                let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
                interface.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_MTU => interface.mtu = bytes(value, 0).map_or(0, u32::from_ne_bytes),
            IFLA_XDP => interface.xdp = attached(value),
            _ => {}
        }
    }
    Ok(interface)
}

fn attached(nest: &[u8]) -> Option<XdpAttached> {
    let mut found = XdpAttached { mode: "multi", id: 0 };
    for (kind, value) in Attributes(nest) {
        match (kind, value) {
            (IFLA_XDP_ATTACHED, [0, ..]) => return None,
            (IFLA_XDP_ATTACHED, [1, ..]) => found.mode = "native",
            (IFLA_XDP_ATTACHED, [2, ..]) => found.mode = "generic",
            (IFLA_XDP_ATTACHED, [3, ..]) => found.mode = "offloaded",
            (IFLA_XDP_PROG_ID, value) => found.id = bytes(value, 0).map_or(0, u32::from_ne_bytes),
            _ => {}
        }
    }
    Some(found)
}

/// Attributes (`struct nlattr`), as far as they are whole.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from(u16::from_ne_bytes(bytes(self.0, 0)?));
        let kind = u16::from_ne_bytes(bytes(self.0, 2)?) & NLA_TYPE_MASK;
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at + N)?.try_into().ok()
}

/// `IFNAMSIZ` without the terminating zero.
const NAME_BYTES_MAX: usize = 15;
/// `struct nlmsghdr` and `struct ifinfomsg`.
const HEADERS_BYTES: usize = 32;
/// Interfaces with statistics of many virtual functions have long descriptions.
const ANSWER_BYTES_MAX: usize = 1 << 16;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLA_TYPE_MASK: u16 = 0x3fff;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_found() {
        let lo = Interface::find("lo").unwrap();
        assert_eq!((lo.name.as_str(), lo.index, lo.mac), ("lo", 1, [0; 6]));
        let error = Interface::find("no-such-iface").unwrap_err();
        assert!(error.to_string().contains("no-such-iface"), "{error}");
        assert!(Interface::find("a-name-that-is-too-long").is_err());
    }

    #[test]
    fn cut_answers_are_errors() {
        let answer = request("lo").unwrap();
        for len in 0..answer.len() {
            let _whatever = parse(&answer[..len]);
        }
        assert!(parse(&answer[..20]).is_err());
    }
}
