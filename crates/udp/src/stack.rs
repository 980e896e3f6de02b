//! The rings of one application on one port, and the sockets over them.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxBuildHasher;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use towpath_xsk_client::abi::SHARE_QUEUE;
use towpath_xsk_client::protocol::{ServerId, UdpBinding};
use towpath_xsk_client::{Connection, default_path, halves};

pub(crate) use crate::bindings::Number;
use crate::bindings::{Bindings, Bound, Signal};
use crate::datagram::{RxDatagram, TxDatagram};
use crate::queue::{Flow, Owner, Queue, Receiving, Sending, Sent};
use crate::routes::{Entry, Routes, Waiting, Way};
use crate::socket::UdpSocket;

/// Options of a stack.
#[derive(Debug, Clone)]
pub struct Options {
    /// The path at which the daemon listens for applications.
    pub path: PathBuf,
    /// The port's name.
    pub port: String,
    /// Queues of the port to use; `None` for all. Datagrams that arrive at another queue do not
    /// reach the stack's sockets.
    pub queues: Option<Vec<u32>>,
    /// Number of packet buffers of each queue, 4096 bytes each; half of them are for sending.
    pub chunks: u32,
    /// Entries of each ring, a power of two.
    pub entries: u32,
}

impl Options {
    /// The default options, for a port.
    pub fn new(port: &str) -> Options {
        Options {
            path: default_path(),
            port: port.to_owned(),
            queues: None,
            chunks: 4096,
            entries: 2048,
        }
    }
}

/// Counters of a stack, in datagrams unless the field says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Received by sockets.
    pub received: u64,
    /// Sent, each segment counted.
    pub sent: u64,
    /// Frames that are not UDP datagrams, or whose lengths contradict each other.
    pub malformed: u64,
    /// Dropped for a wrong checksum, or a missing one in IPv6.
    pub bad_checksum: u64,
    /// Dropped because no socket of the stack has the address and port.
    pub without_socket: u64,
    /// Dropped because too many wait for a socket that does not receive.
    pub socket_full: u64,
    /// Destinations in use.
    pub destinations: usize,
}

/// The rings of an application on the queues of a port. Clones are the same stack.
#[derive(Debug, Clone)]
pub struct UdpStack {
    inner: Arc<Inner>,
}

/// Datagrams for which there was no room.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Blocked {
    queue: usize,
    /// Their number.
    count: usize,
}

/// State that sockets share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) queues: Vec<Queue>,
    /// The connection of each queue.
    connections: Vec<Arc<Connection>>,
    pub(crate) bindings: RwLock<Bindings>,
    routes: Routes,
    /// Identifies the stack to the daemon.
    group: u64,
}

impl UdpStack {
    /// Opens the rings.
    ///
    /// # Errors
    ///
    /// Fails with the system's error if the daemon does not listen at the path, with `ENODEV` if it
    /// has no such port, with `EINVAL` if the port has no such queue, and with `EMFILE` if
    /// descriptors have run out at either side.
    pub fn open(options: &Options) -> io::Result<UdpStack> {
        let (mut queues, mut connections) = (Vec::new(), Vec::new());
        for number in numbers(options) {
            let (receiver, sender) = match halves::open(&xsk_options(options, number)) {
                Err(error) if options.queues.is_none() && number > 0 && is_invalid(&error) => break,
                halves => halves?,
            };
            connections.push(Arc::clone(receiver.connection()));
            let receiving = Receiving::new(receiver, number, options.chunks as usize / 2);
            let sending = Sending::new(sender);
            queues.push(Queue { receiving: Mutex::new(receiving), sending: Mutex::new(sending) });
        }
        let first = connections.first().ok_or(Errno::INVAL)?;
        let (routes, answers) = Routes::new(Arc::clone(first));
        let inner = Inner {
            queues,
            connections,
            bindings: RwLock::default(),
            routes,
            group: RandomState::new().build_hasher().finish(),
        };
        let inner = Arc::new(inner);
        let weak = Arc::downgrade(&inner);
        answers.run(move |entry, found| {
            if let Some(inner) = weak.upgrade() {
                inner.send_waiting(entry, found);
            }
        })?;
        Ok(UdpStack { inner })
    }

    /// A socket for an address of the host and a port; port 0 asks for a free one, and the
    /// unspecified address is all addresses of its family.
    ///
    /// # Errors
    ///
    /// Fails with `EADDRINUSE` if another application, or the host itself, has the address and
    /// port, and with `EADDRNOTAVAIL` if the address is not the host's.
    pub fn bind(&self, address: SocketAddr) -> io::Result<UdpSocket> {
        self.bind_with(address, false, None)
    }

    /// As [`UdpStack::bind`], for a port that other applications of the same user may bind in the
    /// same way: each flow has one of them (`SO_REUSEPORT`).
    ///
    /// # Errors
    ///
    /// As [`UdpStack::bind`].
    pub fn bind_shared(&self, address: SocketAddr) -> io::Result<UdpSocket> {
        self.bind_with(address, true, None)
    }

    /// As [`UdpStack::bind_shared`], for a QUIC server whose connection IDs have this server ID, or
    /// a random one: packets with it reach this socket, whatever address the client has at the
    /// moment. Packets whose connection ID the client chose are distributed by that ID, over the
    /// sockets that take new connections ([`UdpSocket::drain`]).
    ///
    /// # Errors
    ///
    /// As [`UdpStack::bind`]; also `EEXIST` if another socket of the address and port has the
    /// server ID.
    pub fn bind_quic(
        &self,
        address: SocketAddr,
        server: Option<ServerId>,
    ) -> io::Result<UdpSocket> {
        if server.is_some() {
            return self.bind_with(address, true, server);
        }
        let mut bound = Err(Errno::EXIST.into());
        for _ in 0..SERVER_ID_TRIES {
            let random = RandomState::new().build_hasher().finish() as u16;
            bound = self.bind_with(address, true, ServerId::new(0, random));
            if !bound.as_ref().is_err_and(is_taken) {
                break;
            }
        }
        bound
    }

    fn bind_with(
        &self,
        address: SocketAddr,
        shares: bool,
        server: Option<ServerId>,
    ) -> io::Result<UdpSocket> {
        let binding = UdpBinding { address, group: self.inner.group, shares, server };
        let bound = self.inner.bind(binding)?;
        Ok(UdpSocket::new(self.clone(), bound, server))
    }

    /// Number of queues.
    pub fn queues(&self) -> usize {
        self.inner.queues.len()
    }

    /// Counters, since the stack was opened.
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics { destinations: self.inner.routes.len(), ..Statistics::default() };
        for queue in &self.inner.queues {
            let one = queue.receiving.lock().statistics();
            sum.received += one.received;
            sum.malformed += one.malformed;
            sum.bad_checksum += one.bad_checksum;
            sum.without_socket += one.without_socket;
            sum.socket_full += one.socket_full;
            sum.sent += queue.sending.lock().sent();
        }
        sum
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    fn bind(&self, mut binding: UdpBinding) -> io::Result<Arc<Bound>> {
        for (number, connection) in self.connections.iter().enumerate() {
            match connection.bind_udp(binding) {
                Ok(port) => binding.address.set_port(port),
                Err(error) => {
                    self.unbind_at(&self.connections[..number], binding.address);
                    return Err(error);
                }
            }
        }
        let added = self.bindings.write().add(binding.address);
        if added.is_err() {
            self.unbind_at(&self.connections, binding.address);
        }
        added
    }

    /// Ends new connections to a socket with a server ID.
    pub(crate) fn drain(&self, bound: &Bound) -> io::Result<()> {
        let first = self.connections.first().ok_or(Errno::NOTCONN)?;
        first.drain_udp(bound.address)
    }

    fn unbind_at(&self, connections: &[Arc<Connection>], address: SocketAddr) {
        for connection in connections {
            // The daemon may be gone, and then so is the binding.
            let _gone = connection.unbind_udp(address);
        }
    }

    pub(crate) fn unbind(&self, bound: &Bound) {
        self.unbind_at(&self.connections, bound.address);
        self.bindings.write().remove(bound);
        for queue in &self.queues {
            queue.receiving.lock().forget(bound.number);
        }
    }

    /// Shows up to `limit` datagrams of one queue to `look`.
    pub(crate) fn receive(
        &self,
        bound: &Bound,
        queue: usize,
        limit: usize,
        look: &mut impl FnMut(&RxDatagram<'_>),
    ) -> usize {
        let bindings = self.bindings.read();
        let is_alone = bindings.is_alone();
        let owner = |destination: SocketAddr| {
            if is_alone && bound.covers(destination) {
                return Owner::Caller;
            }
            match bindings.owner(destination) {
                Some(owner) if owner.number == bound.number => Owner::Caller,
                Some(owner) => Owner::Other(owner.number),
                None => Owner::Nobody,
            }
        };
        let wake = |number| {
            if let Some(other) = bindings.get(number) {
                other.receives.ring();
            }
        };
        let mut receiving = self.queues[queue].receiving.lock();
        receiving.receive(bound.number, limit, owner, look, wake)
    }

    /// Asks for wake-ups when datagrams arrive; returns whether the socket may sleep, because no
    /// datagram has arrived that may be for it.
    pub(crate) fn arm_receiving(&self, bound: &Bound) -> bool {
        self.pass_on_wakeups(&bound.receives);
        let mut is_empty = true;
        for queue in &self.queues {
            is_empty &= queue.receiving.lock().arm(bound.number);
        }
        is_empty
    }

    /// Asks for a wake-up when there is room; returns whether there is none yet.
    pub(crate) fn arm_sending(&self, bound: &Bound, blocked: Blocked) -> bool {
        self.pass_on_wakeups(&bound.sends);
        let queue = self.queues.get(blocked.queue);
        queue.is_some_and(|queue| queue.sending.lock().sender.arm(blocked.count))
    }

    /// Takes the messages from the queues' descriptors, which all sockets share, and wakes every
    /// sleeper that they may have been for, also in the other direction of the same socket. The
    /// caller is left out: it looks for work itself.
    fn pass_on_wakeups(&self, caller: &Signal) {
        let mut was_rung = false;
        for connection in &self.connections {
            while let Ok((_, 1..)) = recv(connection.bell(), &mut [0; 8][..], RecvFlags::DONTWAIT) {
                was_rung = true;
            }
        }
        if was_rung {
            let bindings = self.bindings.read();
            let signals = bindings.all().flat_map(|bound| [&bound.receives, &bound.sends]);
            signals.filter(|signal| !std::ptr::eq(*signal, caller)).for_each(Signal::ring);
        }
    }

    /// The descriptor of each queue.
    pub(crate) fn bells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.connections.iter().map(|connection| connection.bell())
    }

    /// The largest payload to a destination, in bytes.
    pub(crate) fn max_payload(&self, destination: SocketAddr) -> Option<usize> {
        let headers = if destination.is_ipv4() { 20 + 8 } else { 40 + 8 };
        match self.routes.entry(destination.ip()).way().0 {
            Way::Open(route) => Some((route.mtu as usize).saturating_sub(headers)),
            Way::Unresolved | Way::Closed(_) => None,
        }
    }

    /// Sends datagrams in order; returns the number of leading ones that were taken. `blocked` is
    /// set if there is no room for the next.
    pub(crate) fn send(
        &self,
        bound: &Bound,
        datagrams: &[TxDatagram<'_>],
        blocked: &mut Option<Blocked>,
    ) -> io::Result<usize> {
        let (mut done, mut queue, mut result) = (0, usize::MAX, Ok(()));
        let mut sending = None;
        for datagram in datagrams {
            let next = self.queue_for(datagram.destination);
            if next != queue {
                submit(sending.take())?;
                queue = next;
            }
            let sending = sending.get_or_insert_with(|| self.queues[queue].sending.lock());
            result = self.send_one(sending, bound, datagram);
            if let Err(error) = &result {
                let is_full = error.kind() == io::ErrorKind::WouldBlock;
                *blocked = is_full.then(|| Blocked { queue, count: datagram.count() });
                break;
            }
            done += 1;
        }
        submit(sending)?;
        if done > 0 { Ok(done) } else { result.map(|()| 0) }
    }

    fn send_one(
        &self,
        sending: &mut Sending,
        bound: &Bound,
        datagram: &TxDatagram<'_>,
    ) -> io::Result<()> {
        if datagram.segment_size == Some(0)
            || datagram.count() > SEGMENTS_MAX
            || datagram.destination.port() == 0
        {
            return Err(Errno::INVAL.into());
        }
        let own = bound.address.ip();
        let flow = Flow {
            source_port: bound.address.port(),
            source: if own.is_unspecified() { datagram.source } else { Some(own) },
            destination: datagram.destination,
            ecn: datagram.ecn,
        };
        if own.is_ipv4() != datagram.destination.is_ipv4() {
            return Err(Errno::AFNOSUPPORT.into());
        }
        loop {
            match sending.send(&flow, datagram, |destination| self.routes.entry(destination)) {
                Sent::All => return Ok(()),
                Sent::Full => return Err(Errno::AGAIN.into()),
                Sent::Never(errno) => return Err(io::Error::from_raw_os_error(errno)),
                Sent::Unresolved(entry) if entry.wait(waiting(&flow, datagram)).is_ok() => {
                    return Ok(());
                }
                // It was resolved in between.
                Sent::Unresolved(_) => {}
            }
        }
    }

    /// Sends datagrams that waited for the way to their destination. A datagram that
    /// finds no room is lost, as in a congested network.
    fn send_waiting(&self, entry: &Entry, found: Vec<Waiting>) {
        for it in found {
            let destination = SocketAddr::new(entry.destination(), it.destination_port);
            let flow =
                Flow { source_port: it.source_port, source: it.source, destination, ecn: it.ecn };
            let datagram = TxDatagram {
                payload: &it.payload,
                destination,
                source: it.source,
                ecn: it.ecn,
                segment_size: it.segment_size,
            };
            let mut sending = self.queues[self.queue_for(destination)].sending.lock();
            let _sent =
                sending.send(&flow, &datagram, |destination| self.routes.entry(destination));
            // The daemon may be gone.
            let _gone = sending.submit();
        }
    }

    /// The queue by which datagrams to a destination leave, always the same, so that they keep
    /// their order.
    #[inline]
    fn queue_for(&self, destination: SocketAddr) -> usize {
        match self.queues.len() {
            1 => 0,
            // The low bits of this hash are the weak ones.
            count => (FxBuildHasher.hash_one(destination) >> 32) as usize % count,
        }
    }
}

fn submit(sending: Option<parking_lot::MutexGuard<'_, Sending>>) -> io::Result<()> {
    sending.map_or(Ok(()), |mut sending| sending.submit())
}

fn waiting(flow: &Flow, datagram: &TxDatagram<'_>) -> Waiting {
    Waiting {
        source_port: flow.source_port,
        destination_port: flow.destination.port(),
        source: flow.source,
        ecn: flow.ecn,
        segment_size: datagram.segment_size,
        payload: datagram.payload.to_vec(),
    }
}

/// The numbers of the queues to try to open: the requested ones, or all numbers from 0 on.
fn numbers(options: &Options) -> Box<dyn Iterator<Item = u32> + '_> {
    match &options.queues {
        Some(numbers) => Box::new(numbers.iter().copied()),
        None => Box::new(0..),
    }
}

fn xsk_options(options: &Options, queue: u32) -> towpath_xsk_client::Options {
    towpath_xsk_client::Options {
        path: options.path.clone(),
        chunks: options.chunks,
        entries: options.entries,
        flags: SHARE_QUEUE,
        steer: false,
        ..towpath_xsk_client::Options::new(&options.port, queue)
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EXIST.raw_os_error())
}

fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// Attempts to find a random server ID that no other socket has.
const SERVER_ID_TRIES: u32 = 8;
/// Maximum number of datagrams of a run (`UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 64;
