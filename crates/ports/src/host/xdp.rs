//! The XDP program that an interface has already (`RTM_GETLINK`, `IFLA_XDP`).

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// What is attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct XdpAttached {
    /// Where it runs; `multi` when there are several.
    pub(crate) mode: &'static str,
    /// Its number; 0 when there are several.
    pub(crate) id: u32,
}

/// Asks for the program on an interface of the calling thread's namespace.
pub(crate) fn xdp_attached(index: u32) -> io::Result<Option<XdpAttached>> {
    let flags = SocketFlags::CLOEXEC;
    // Protocol 0 is `NETLINK_ROUTE`.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    sendto(&socket, &request(index), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    parse(&answer[..len])
}

/// `struct nlmsghdr` and a `struct ifinfomsg` with nothing but the number.
fn request(index: u32) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADERS_BYTES);
    message.extend((HEADERS_BYTES as u32).to_ne_bytes());
    message.extend(RTM_GETLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.resize(INDEX_OFFSET, 0);
    message.extend(index.to_ne_bytes());
    message.resize(HEADERS_BYTES, 0);
    message
}

fn parse(answer: &[u8]) -> io::Result<Option<XdpAttached>> {
    let malformed = || io::Error::other("the kernel's answer to RTM_GETLINK cannot be read");
    match bytes(answer, 4).map(u16::from_ne_bytes) {
        Some(NLMSG_ERROR) => {
            let errno = bytes(answer, 16).map(i32::from_ne_bytes).ok_or_else(malformed)?;
            Err(io::Error::from_raw_os_error(errno.wrapping_neg()))
        }
        Some(RTM_NEWLINK) => {
            let attributes = answer.get(HEADERS_BYTES..).ok_or_else(malformed)?;
            let nest = Attributes(attributes).find(|(kind, _)| *kind == IFLA_XDP);
            Ok(nest.and_then(|(_, nest)| attached(nest)))
        }
        _ => Err(malformed()),
    }
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
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

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

pub(super) fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at + N)?.try_into().ok()
}

/// `struct nlmsghdr` and `struct ifinfomsg`.
const HEADERS_BYTES: usize = 32;
/// `ifi_index`, behind the first header.
const INDEX_OFFSET: usize = 20;
/// Interfaces with many virtual functions have long descriptions.
const ANSWER_BYTES_MAX: usize = 1 << 16;
pub(super) const NLM_F_REQUEST: u16 = 1;
pub(super) const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLA_TYPE_MASK: u16 = 0x3fff;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_none() {
        assert_eq!(xdp_attached(1).unwrap(), None);
        let nobody = xdp_attached(1 << 30).unwrap_err();
        assert_eq!(nobody.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn nests_are_read_as_far_as_they_go() {
        let native = [5, 0, 2, 0, 1, 0, 0, 0, 8, 0, 4, 0, 7, 0, 0, 0];
        assert_eq!(attached(&native), Some(XdpAttached { mode: "native", id: 7 }));
        assert_eq!(attached(&[5, 0, 2, 0, 0]), None);
        for len in 0..native.len() {
            let _whatever = attached(&native[..len]);
            assert!(parse(&native[..len]).is_err());
        }
    }
}
