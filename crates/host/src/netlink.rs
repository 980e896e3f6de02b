//! Requests and answers on a netlink socket (netlink(7)), in the network namespace of the thread
//! that made it.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use netlink_sys::SocketAddr;
pub use netlink_sys::protocols;
use rustix::net::{RecvFlags, sockopt};

/// A table that the kernel lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Table {
    /// Name of the table in errors.
    pub(crate) what: &'static str,
    /// Type of requests (`RTM_GET*`).
    request: u16,
    /// Type of each entry (`RTM_NEW*`).
    entry: u16,
    /// Size in bytes of the structure that follows the header.
    body: usize,
}

pub(crate) const LINKS: Table = Table { what: "interfaces", request: 18, entry: 16, body: 16 };
pub(crate) const ADDRESSES: Table = Table { what: "addresses", request: 22, entry: 20, body: 8 };
pub(crate) const ROUTES: Table = Table { what: "routes", request: 26, entry: 24, body: 12 };
pub(crate) const NEIGHBOURS: Table = Table { what: "neighbours", request: 30, entry: 28, body: 12 };
pub(crate) const NEXTHOPS: Table = Table { what: "next hops", request: 106, entry: 104, body: 8 };

/// A netlink socket.
pub struct Socket {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

/// The answer to a request about one object.
#[derive(Debug)]
pub struct Answer {
    /// Type of the message.
    pub kind: u16,
    /// Bytes behind `struct nlmsghdr`.
    pub content: Vec<u8>,
}

impl Socket {
    /// A socket of a protocol ([`protocols`]) that also receives messages to `groups`.
    pub fn open(protocol: isize, groups: u32) -> io::Result<Socket> {
        let mut socket = netlink_sys::Socket::new(protocol)?;
        socket.bind(&SocketAddr::new(0, groups))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_TIME_MAX))?;
        Ok(Socket { socket, buffer: Vec::with_capacity(BUFFER_BYTES), sequence: 0 })
    }

    /// Sends a request of this type; gives the kernel's answer, or its error.
    pub fn ask(&mut self, kind: u16, body: &[u8]) -> io::Result<Answer> {
        self.request(kind, NLM_F_REQUEST, body)?;
        loop {
            let sequence = self.sequence;
            let bytes = self.receive(RecvFlags::empty())?;
            if let Some(answer) = answer_in(bytes, sequence) {
                return answer;
            }
        }
    }

    /// Sends a command of this type, and waits until the kernel has executed it. `flags` are
    /// further ones of the header (`NLM_F_*`).
    pub(crate) fn command(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.request(kind, NLM_F_REQUEST | NLM_F_ACK | flags, body)?;
        loop {
            let sequence = self.sequence;
            let bytes = self.receive(RecvFlags::empty())?;
            match answer_in(bytes, sequence) {
                // An acknowledgement is an error with the number 0.
                Some(Err(error)) if error.raw_os_error() != Some(0) => return Err(error),
                Some(_) => return Ok(()),
                None => {}
            }
        }
    }

    /// Requests a receive buffer of this number of bytes. With a smaller one, tables are only read
    /// again more often.
    pub(crate) fn set_backlog(&self, bytes: usize) {
        if sockopt::set_socket_recv_buffer_size_force(&self.socket, bytes).is_err() {
            let _smaller = sockopt::set_socket_recv_buffer_size(&self.socket, bytes);
        }
    }

    /// The file descriptor, for polling.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Every entry of a table, parsed from its body by `parse`. A table that changed meanwhile is
    /// read again.
    pub(crate) fn dump<T>(
        &mut self,
        table: Table,
        family: u8,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Dump<T>> {
        for _ in 0..DUMP_TRIES {
            if let Some(dump) = self.dump_once(table, family, &parse)? {
                return Ok(dump);
            }
        }
        // The table changes faster than it is read. The next notification starts another attempt.
        Err(io::Error::other("it changes all the time"))
    }

    /// As [`Socket::dump`], but `None` if the table changed meanwhile.
    fn dump_once<T>(
        &mut self,
        table: Table,
        family: u8,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<Dump<T>>> {
        let mut body = vec![0; table.body];
        body[0] = family;
        self.request(table.request, NLM_F_REQUEST | NLM_F_DUMP, &body)?;
        let mut dump = Dump { entries: Vec::new(), unreadable: 0 };
        let mut is_whole = true;
        loop {
            let sequence = self.sequence;
            let bytes = self.receive(RecvFlags::empty())?;
            for message in Messages(bytes) {
                if message.sequence != sequence {
                    continue;
                }
                is_whole &= message.flags & NLM_F_DUMP_INTR == 0;
                match message.kind {
                    NLMSG_DONE => return Ok(is_whole.then_some(dump)),
                    NLMSG_ERROR => return Err(error_of(message.body)),
                    kind if kind == table.entry => match parse(message.body) {
                        Some(entry) => dump.entries.push(entry),
                        None => dump.unreadable += 1,
                    },
                    _ => {}
                }
            }
        }
    }

    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let len = (HEADER_BYTES + body.len()).next_multiple_of(4);
        let mut bytes = Vec::with_capacity(len);
        bytes.extend((len as u32).to_ne_bytes());
        bytes.extend([kind, flags].map(u16::to_ne_bytes).concat());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(body);
        bytes.resize(len, 0);
        self.socket.send(&bytes, 0)?;
        Ok(())
    }

    /// The next datagram, with any number of messages. `ENOBUFS` means that some were lost.
    pub(crate) fn receive(&mut self, flags: RecvFlags) -> io::Result<&[u8]> {
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, flags.bits().cast_signed()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_len) => return Ok(&self.buffer),
            }
        }
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Socket").field(&self.fd()).finish()
    }
}

/// The answer to the request with this number, if it is in a datagram.
fn answer_in(datagram: &[u8], sequence: u32) -> Option<io::Result<Answer>> {
    let answer = Messages(datagram).find(|message| message.sequence == sequence)?;
    Some(match answer.kind {
        NLMSG_ERROR => Err(error_of(answer.body)),
        kind => Ok(Answer { kind, content: answer.body.to_vec() }),
    })
}

/// Encodes an attribute to send.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut attribute = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute
}

/// Attributes (`struct nlattr`); an incomplete one ends the iteration.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// The first attribute of a kind.
    pub fn value(mut self, wanted: u16) -> Option<&'a [u8]> {
        self.find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [len0, len1, kind0, kind1] = *self.0.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([len0, len1]));
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([kind0, kind1]) & NLA_TYPE_MASK, value))
    }
}

/// Entries of a table, and the number of those that could not be parsed.
#[derive(Debug)]
pub(crate) struct Dump<T> {
    pub(crate) entries: Vec<T>,
    pub(crate) unreadable: usize,
}

/// One message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    flags: u16,
    sequence: u32,
    pub(crate) body: &'a [u8],
}

/// The messages of a datagram.
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header: &[u8; HEADER_BYTES] = self.0.first_chunk()?;
        let [a, b, c, d, kind0, kind1, flags0, flags1, e, f, g, h, ..] = *header;
        let len = u32::from_ne_bytes([a, b, c, d]) as usize;
        let body = self.0.get(HEADER_BYTES..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([kind0, kind1]),
            flags: u16::from_ne_bytes([flags0, flags1]),
            sequence: u32::from_ne_bytes([e, f, g, h]),
            body,
        })
    }
}

/// The error in a `struct nlmsgerr`, which begins with a negated error number.
fn error_of(body: &[u8]) -> io::Error {
    let number = body.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    io::Error::from_raw_os_error(number.saturating_neg())
}

/// Size of `struct nlmsghdr`, in bytes.
const HEADER_BYTES: usize = 16;
/// Size of the buffer in bytes: the kernel fills 32 KiB at most.
const BUFFER_BYTES: usize = 64 << 10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLA_TYPE_MASK: u16 = 0x3fff;
const DUMP_TRIES: u32 = 10;
/// Longest wait for an answer: the kernel answers at once, or never.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_their_lengths_say() {
        let mut bytes = vec![18, 0, 0, 0, 24, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0];
        bytes.extend([16, 0, 0, 0, 3, 0, 0x10, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        let found: Vec<_> = Messages(&bytes).map(|m| (m.kind, m.flags, m.body.len())).collect();
        assert_eq!(found, [(24, 0, 2), (NLMSG_DONE, NLM_F_DUMP_INTR, 0)]);
        for broken in [&bytes[..17], &[15, 0, 0, 0][..], &[], &[0; 16], &[0xff; 40]] {
            assert_eq!(Messages(broken).count(), 0, "{broken:?}");
        }
    }
    #[test]
    fn answers_are_read_as_far_as_they_go() {
        let refusal = [20, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0xed, 0xff, 0xff, 0xff];
        let refused = |bytes| answer_in(bytes, 7).map(|answer| answer.unwrap_err().raw_os_error());
        assert_eq!(refused(&refusal), Some(Some(19)), "ENODEV");
        for len in 0..refusal.len() {
            assert_eq!(refused(&refusal[..len]), None);
        }
        assert!(answer_in(&refusal, 8).is_none(), "somebody else's");
        let sent = [attribute(7, b"abc"), vec![0], attribute(9, &[1])].concat();
        let read: Vec<_> = Attributes(&sent).collect();
        assert_eq!(read, [(7, &b"abc"[..]), (9, &[1][..])]);
        assert_eq!(Attributes(&sent).value(9), Some(&[1][..]));
    }
}
