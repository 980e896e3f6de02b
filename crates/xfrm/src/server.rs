//! Serves a door at a unix socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, recv, send, socketpair,
};
use towpath_host::socket::{Access, SocketFile, listen_packets};
use towpath_supervise::protocol::socket_name;
use towpath_xsk_client::wire;
use zeroize::{Zeroize as _, Zeroizing};

use crate::door::{Client, Door, Notification};

/// A listening socket and the thread that serves its clients. Dropping it closes all connections;
/// the door's SAs and policies stay.
#[derive(Debug)]
pub struct Server {
    file: SocketFile,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at a path. A socket file without a listener is replaced.
    ///
    /// # Errors
    ///
    /// As of [`listen_packets`]; or the system has no resources for a thread.
    pub fn start(door: &Arc<Door>, path: &Path, access: &Access) -> io::Result<Server> {
        let (listener, file) = listen_packets(path, access)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let serving = Serving {
            door: Arc::clone(door),
            listener,
            stop: Arc::clone(&stop),
            peers: Vec::new(),
            buffer: Zeroizing::new(vec![0; MESSAGE_MAX + 1]),
            sockets_made: fastrand::u32(..),
        };
        let thread = std::thread::Builder::new().name("xfrm".into());
        let thread = Some(thread.spawn(move || serving.run())?);
        Ok(Server { file, stop, thread })
    }

    /// Whether its file is still at its path.
    pub fn is_there(&self) -> bool {
        self.file.is_there()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _rung = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _panicked = thread.join();
        }
    }
}

struct Serving {
    door: Arc<Door>,
    listener: OwnedFd,
    stop: Arc<OwnedFd>,
    peers: Vec<Peer>,
    buffer: Zeroizing<Vec<u8>>,
    /// Number of the last socket, for its name.
    sockets_made: u32,
}

struct Peer {
    socket: OwnedFd,
    client: Client,
    is_open: bool,
}

impl Serving {
    fn run(mut self) {
        let mut next = Instant::now();
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            let Ok(ready) = self.wait(wait) else { return };
            if ready.stops {
                return;
            }
            ready.peers.iter().for_each(|&peer| self.receive(peer));
            if ready.comes {
                self.accept();
            }
            if Instant::now() >= next {
                next = Instant::now() + TURN;
                let news = self.door.turn();
                news.iter().for_each(|news| self.notify(news));
            }
            self.peers.retain(|peer| peer.is_open);
        }
    }

    /// Waits for requests, connections or the end.
    fn wait(&self, limit: Duration) -> rustix::io::Result<Ready> {
        let fixed = [self.stop.as_fd(), self.listener.as_fd()];
        let all = fixed.into_iter().chain(self.peers.iter().map(|peer| peer.socket.as_fd()));
        let mut polled: Vec<_> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let limit = Timespec { tv_sec: 0, tv_nsec: limit.as_nanos().min(999_999_999) as i64 };
        match poll(&mut polled, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let is_ready = |at: usize| !polled[at].revents().is_empty();
        let peers = (0..self.peers.len()).filter(|at| is_ready(at + fixed.len())).collect();
        Ok(Ready { stops: is_ready(0), comes: is_ready(1), peers })
    }

    /// Answers a connection with a socket for an IKE daemon, if there is room for one more.
    fn accept(&mut self) {
        let Ok(connection) = accept_with(&self.listener, SocketFlags::CLOEXEC) else { return };
        if self.peers.len() >= PEERS_MAX {
            return;
        }
        self.sockets_made = self.sockets_made.wrapping_add(1);
        // A failure closes the connection, so that the other side sees the end.
        if let Ok(socket) = give_socket(&connection, self.sockets_made) {
            self.peers.push(Peer { socket, client: Client::default(), is_open: true });
        }
    }

    /// Answers one datagram.
    fn receive(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        let len = match recv(&peer.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((len, _)) if len > 0 && len <= MESSAGE_MAX => len,
            Err(Errno::AGAIN | Errno::INTR) => return,
            // The end of the connection, or a message longer than any of an IKE daemon.
            _ => return peer.is_open = false,
        };
        for message in self.door.answer(&mut peer.client, &self.buffer[..len]) {
            peer.send(&message);
        }
        self.buffer[..len].zeroize();
    }

    fn notify(&mut self, news: &Notification) {
        let peers = self.peers.iter_mut().filter(|peer| news.is_for(&peer.client));
        peers.for_each(|peer| peer.send(&news.bytes));
    }
}

impl Peer {
    /// Sends a message. Closes the connection if the client's buffer is full.
    fn send(&mut self, message: &[u8]) {
        if self.is_open && send(&self.socket, message, FLAGS).is_err() {
            self.is_open = false;
        }
    }
}

/// Makes a pair of sockets and sends one of them; returns the other one. Nobody can connect to it.
fn give_socket(connection: &OwnedFd, number: u32) -> io::Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    bind(&ours, &SocketAddrUnix::new_abstract_name(&socket_name(number))?)?;
    wire::send(connection.as_fd(), &[0], &[theirs.as_fd()])?;
    Ok(ours)
}

/// Descriptors that are ready.
struct Ready {
    stops: bool,
    comes: bool,
    /// Positions of clients.
    peers: Vec<usize>,
}

const FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
/// Time between two looks at limits of time.
const TURN: Duration = Duration::from_millis(250);
/// Bytes of the longest datagram that is taken.
const MESSAGE_MAX: usize = 16_384;
const PEERS_MAX: usize = 64;
