//! Questions to the kernel over netlink, of the network namespace in which they are asked.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with,
};

/// A netlink socket.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
}

/// An answer: its type, and what is behind `struct nlmsghdr`.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) kind: u16,
    pub(super) content: Vec<u8>,
}

impl Netlink {
    /// Opens a socket; no protocol is `NETLINK_ROUTE`.
    pub(super) fn open(protocol: Option<Protocol>) -> io::Result<Netlink> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        Ok(Netlink { socket })
    }

    /// Sends a request of this type, gives what the kernel answers, or the error that it answers.
    pub(super) fn ask(&self, kind: u16, content: &[u8]) -> io::Result<Answer> {
        let len = HEADER_BYTES + content.len().next_multiple_of(4);
        let mut message = Vec::with_capacity(len);
        message.extend((len as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(NLM_F_REQUEST.to_ne_bytes());
        message.resize(HEADER_BYTES, 0);
        message.extend(content);
        message.resize(len, 0);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &message, SendFlags::empty(), &kernel)?;
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        let (len, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        answer_of(&answer[..len])
    }
}

fn answer_of(message: &[u8]) -> io::Result<Answer> {
    let content = message.get(HEADER_BYTES..).ok_or_else(malformed)?;
    let kind = bytes(message, 4).map(u16::from_ne_bytes).ok_or_else(malformed)?;
    if kind == NLMSG_ERROR {
        let errno = bytes(content, 0).map(i32::from_ne_bytes).ok_or_else(malformed)?;
        return Err(io::Error::from_raw_os_error(errno.wrapping_neg()));
    }
    Ok(Answer { kind, content: content.to_vec() })
}

/// An attribute, to be sent.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut attribute = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute
}

/// Attributes (`struct nlattr`), as far as they are whole.
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Attributes<'a> {
    /// The first attribute of a kind.
    pub(super) fn value(&mut self, wanted: u16) -> Option<&'a [u8]> {
        self.find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }
}

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

pub(super) fn malformed() -> io::Error {
    io::Error::other("the kernel's answer over netlink cannot be read")
}

/// `struct nlmsghdr`
const HEADER_BYTES: usize = 16;
/// Interfaces with many virtual functions have long descriptions.
const ANSWER_BYTES_MAX: usize = 1 << 16;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLA_TYPE_MASK: u16 = 0x3fff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_far_as_they_go() {
        let refusal = [20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xed, 0xff, 0xff, 0xff];
        let errno = answer_of(&refusal).unwrap_err().raw_os_error();
        assert_eq!(errno, Some(libc::ENODEV));
        for len in 0..refusal.len() {
            assert_eq!(answer_of(&refusal[..len]).unwrap_err().raw_os_error(), None);
        }
        let sent = [attribute(7, b"abc"), vec![0], attribute(9, &[1])].concat();
        let read: Vec<_> = Attributes(&sent).collect();
        assert_eq!(read, [(7, &b"abc"[..]), (9, &[1][..])]);
        assert_eq!(Attributes(&sent).value(9), Some(&[1][..]));
    }
}
