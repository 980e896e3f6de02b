//! Requests and answers on a netlink socket (netlink(7)).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt,
};

/// A table that the kernel lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Table {
    /// What it is called in errors.
    pub(crate) what: &'static str,
    /// `RTM_GET*`
    request: u16,
    /// `RTM_NEW*`: the type of each entry.
    entry: u16,
    /// Bytes of the structure that follows the header.
    body: usize,
}

pub(crate) const LINKS: Table = Table { what: "interfaces", request: 18, entry: 16, body: 16 };
pub(crate) const ADDRESSES: Table = Table { what: "addresses", request: 22, entry: 20, body: 8 };
pub(crate) const ROUTES: Table = Table { what: "routes", request: 26, entry: 24, body: 12 };
pub(crate) const NEIGHBOURS: Table = Table { what: "neighbours", request: 30, entry: 28, body: 12 };
pub(crate) const NEXTHOPS: Table = Table { what: "next hops", request: 106, entry: 104, body: 8 };

/// A socket of `NETLINK_ROUTE`, in the namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Socket {
    /// A socket that also receives what is sent to `groups`.
    pub(crate) fn open(groups: u32) -> io::Result<Socket> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // `NETLINK_ROUTE` is protocol 0.
        let fd = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(ANSWER_TIME_MAX))?;
        Ok(Socket { fd, buffer: vec![0; BUFFER_BYTES], sequence: 0 })
    }

    /// Asks for room for so many bytes that were not read yet. Less than that only means that more
    /// is read again.
    pub(crate) fn set_backlog(&self, bytes: usize) {
        if sockopt::set_socket_recv_buffer_size_force(&self.fd, bytes).is_err() {
            let _smaller = sockopt::set_socket_recv_buffer_size(&self.fd, bytes);
        }
    }

    /// The descriptor, to wait for.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Every entry of a table, as `parse` reads its body. A table that changed meanwhile is read
    /// again.
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
        // It changes faster than it is read. What comes next brings another chance.
        Err(io::Error::other("it changes all the time"))
    }

    /// As [`Socket::dump`], or nothing when the table changed meanwhile.
    fn dump_once<T>(
        &mut self,
        table: Table,
        family: u8,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<Dump<T>>> {
        self.request(table, family)?;
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

    fn request(&mut self, table: Table, family: u8) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = vec![0; HEADER_BYTES + table.body];
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[4..6].copy_from_slice(&table.request.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[HEADER_BYTES] = family;
        send(&self.fd, &bytes, SendFlags::empty())?;
        Ok(())
    }

    /// The next datagram: any number of messages. `ENOBUFS` says that some were lost.
    pub(crate) fn receive(&mut self, flags: RecvFlags) -> io::Result<&[u8]> {
        loop {
            match recv(&self.fd, self.buffer.as_mut_slice(), flags) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok((len, _)) => return Ok(&self.buffer[..len]),
            }
        }
    }
}

/// Entries of a table, and how many could not be made sense of.
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

/// `struct nlmsgerr`: a negated error number first.
fn error_of(body: &[u8]) -> io::Error {
    let number = body.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    io::Error::from_raw_os_error(number.saturating_neg())
}

/// `struct nlmsghdr`
const HEADER_BYTES: usize = 16;
/// The kernel fills 32 KiB at most.
const BUFFER_BYTES: usize = 64 << 10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const DUMP_TRIES: u32 = 10;
/// The kernel answers at once, or never.
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
}
