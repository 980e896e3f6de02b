//! One queue of a port: the halves of its AF_XDP socket, and what goes through them.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use towpath_xsk_client::halves::{Kept, Receiver, Sender};

use crate::datagram::{RxDatagram, TxDatagram};
use crate::header::Header;
use crate::packet::{Refusal, parse};
use crate::routes::{Entry, Way};
use crate::stack::{Number, Statistics};

/// A queue. Each half has a lock of its own.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) receiving: Mutex<Receiving>,
    pub(crate) sending: Mutex<Sending>,
}

/// The receiving half of a queue.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) receiver: Receiver,
    number: u32,
    /// Packets for sockets other than the one that read them, by the socket's number.
    waiting: FxHashMap<Number, VecDeque<Kept>>,
    /// Number of packets in `waiting`.
    held: usize,
    /// Maximum number of packets in `waiting`: sockets that do not receive must leave memory for
    /// others.
    held_max: usize,
    /// Packets for other sockets that were read by the last call.
    strays: Vec<(Number, Kept)>,
    statistics: Statistics,
}

/// The owner of a datagram.
pub(crate) enum Owner {
    /// The socket that receives now.
    Caller,
    /// Another socket.
    Other(Number),
    /// No socket.
    Nobody,
}

impl Receiving {
    /// `chunks` is the number of packets that its memory holds.
    pub(crate) fn new(receiver: Receiver, number: u32, chunks: usize) -> Receiving {
        Receiving {
            receiver,
            number,
            waiting: FxHashMap::default(),
            held: 0,
            held_max: chunks / 2,
            strays: Vec::new(),
            statistics: Statistics::default(),
        }
    }

    /// Shows up to `limit` datagrams for the socket `caller` to `look`, and returns their number.
    /// Queues datagrams for other sockets, and calls `wake` for each of these sockets.
    pub(crate) fn receive(
        &mut self,
        caller: Number,
        limit: usize,
        owner: impl Fn(SocketAddr) -> Owner,
        look: &mut impl FnMut(&RxDatagram<'_>),
        wake: impl FnMut(Number),
    ) -> usize {
        let mut count = self.receive_waiting(caller, limit, look);
        let (queue, statistics) = (self.number, &mut self.statistics);
        self.receiver.receive(limit - count, &mut self.strays, |frame| {
            let datagram = match parse(frame, queue) {
                Ok(datagram) => datagram,
                Err(refusal) => {
                    statistics.count(refusal);
                    return None;
                }
            };
            match owner(datagram.destination) {
                Owner::Caller => {
                    count += 1;
                    statistics.received += 1;
                    look(&datagram);
                    None
                }
                Owner::Other(number) => Some(number),
                Owner::Nobody => {
                    statistics.without_socket += 1;
                    None
                }
            }
        });
        if !self.strays.is_empty() {
            self.sort_strays(wake);
        }
        count
    }

    /// Shows datagrams that another socket read.
    fn receive_waiting(
        &mut self,
        caller: Number,
        limit: usize,
        look: &mut impl FnMut(&RxDatagram<'_>),
    ) -> usize {
        let Some(waiting) = self.waiting.get_mut(&caller) else { return 0 };
        let mut count = 0;
        while count < limit
            && let Some(kept) = waiting.pop_front()
        {
            // It was parsed before; only the daemon could have changed it.
            if let Ok(datagram) = parse(self.receiver.bytes(&kept), self.number) {
                count += 1;
                self.statistics.received += 1;
                look(&datagram);
            }
            self.held -= 1;
            self.receiver.free(kept);
        }
        if waiting.is_empty() {
            self.waiting.remove(&caller);
        }
        count
    }

    /// Queues packets for the sockets that own them.
    #[cold]
    fn sort_strays(&mut self, mut wake: impl FnMut(Number)) {
        let mut last = None;
        for (number, kept) in self.strays.drain(..) {
            let waiting = self.waiting.entry(number).or_default();
            if waiting.len() < WAITING_MAX && self.held < self.held_max {
                self.held += 1;
                waiting.push_back(kept);
            } else {
                self.statistics.socket_full += 1;
                self.receiver.free(kept);
            }
            if last.replace(number) != Some(number) {
                wake(number);
            }
        }
    }

    /// Asks to be woken for packets; returns whether the socket may sleep, because it has no
    /// packets.
    pub(crate) fn arm(&mut self, caller: Number) -> bool {
        self.receiver.arm() && !self.waiting.contains_key(&caller)
    }

    /// Frees the packets of a socket that is closed.
    pub(crate) fn forget(&mut self, number: Number) {
        for kept in self.waiting.remove(&number).into_iter().flatten() {
            self.held -= 1;
            self.receiver.free(kept);
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.statistics
    }
}

/// The sending half of a queue.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) sender: Sender,
    /// Headers of flows, with the entry and the version of the route that they are for.
    headers: FxHashMap<Flow, Known>,
    sent: u64,
}

/// The values, other than lengths, on which the headers of a datagram depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub(crate) source_port: u16,
    pub(crate) source: Option<IpAddr>,
    pub(crate) destination: SocketAddr,
    pub(crate) ecn: u8,
}

#[derive(Debug)]
struct Known {
    entry: Arc<Entry>,
    version: u32,
    header: Header,
    mtu: usize,
}

/// The result for one run of datagrams.
pub(crate) enum Sent {
    /// All of them are queued.
    All,
    /// There is no room for all; none is queued.
    Full,
    /// The way is not known yet.
    Unresolved(Arc<Entry>),
    /// They can't be sent, for the reason of this error number.
    Never(i32),
}

impl Sending {
    pub(crate) fn new(sender: Sender) -> Sending {
        Sending { sender, headers: FxHashMap::default(), sent: 0 }
    }

    /// Queues a run of datagrams, or none of them.
    #[inline]
    pub(crate) fn send(
        &mut self,
        flow: &Flow,
        datagram: &TxDatagram<'_>,
        entry: impl FnOnce(IpAddr) -> Arc<Entry>,
    ) -> Sent {
        let is_fresh = |known: &&Known| known.entry.touch() == known.version;
        if self.headers.get(flow).filter(is_fresh).is_none()
            && let Err(why) = self.learn(flow, entry)
        {
            return why;
        }
        let Some(known) = self.headers.get(flow) else { return Sent::Full };
        if known.header.packet_overhead() + datagram.largest() > known.mtu {
            return Sent::Never(EMSGSIZE);
        }
        let count = datagram.count();
        if self.sender.room(count) < count {
            return Sent::Full;
        }
        for segment in datagram.segments() {
            let len = known.header.frame_len(segment.len());
            let is_queued = self.sender.queue(len, |frame| known.header.write(frame, segment));
            debug_assert!(is_queued, "there was room");
        }
        self.sent += count as u64;
        Sent::All
    }

    /// Makes the headers of a flow.
    #[cold]
    fn learn(&mut self, flow: &Flow, entry: impl FnOnce(IpAddr) -> Arc<Entry>) -> Result<(), Sent> {
        // The entry of old headers may be one that is no longer kept up to date.
        self.headers.remove(flow);
        let entry = entry(flow.destination.ip());
        let (route, version) = match entry.way() {
            (Way::Open(route), version) => (route, version),
            (Way::Unresolved, _) => return Err(Sent::Unresolved(entry)),
            (Way::Closed(errno), _) => return Err(Sent::Never(errno)),
        };
        let source = flow.source.unwrap_or(route.source);
        if source.is_ipv4() != flow.destination.is_ipv4() {
            return Err(Sent::Never(EAFNOSUPPORT));
        }
        if self.headers.len() >= FLOWS_MAX {
            self.headers.clear();
        }
        let source = SocketAddr::new(source, flow.source_port);
        let header = Header::new(&route, source, flow.destination, flow.ecn);
        let known = Known { entry, version, header, mtu: route.mtu as usize };
        self.headers.insert(*flow, known);
        Ok(())
    }

    /// Publishes what was queued.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.sender.submit()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }
}

impl Statistics {
    fn count(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Malformed => self.malformed += 1,
            Refusal::Checksum => self.bad_checksum += 1,
        }
    }
}

/// Maximum number of packets that wait in one queue for one socket.
const WAITING_MAX: usize = 1024;
/// Maximum number of flows whose headers are kept.
const FLOWS_MAX: usize = 1 << 16;
const EMSGSIZE: i32 = rustix::io::Errno::MSGSIZE.raw_os_error();
const EAFNOSUPPORT: i32 = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
