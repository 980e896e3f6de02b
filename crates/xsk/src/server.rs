//! Serving applications over a unix socket: one connection, one AF_XDP socket.
//!
//! One thread serves all: requests are few, and none waits for an application. Each message of an
//! application is answered, or its connection and its socket are closed.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, chmod};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use rustix::process::{Resource, getrlimit};
use towpath_xsk_client::protocol::{Greeting, Reply, Request};
use towpath_xsk_client::wire::{receive, send};

use crate::Errno;
use crate::abi::{Address, SHARED_UMEM};
use crate::socket::{Shared, Socket};
use crate::sockets::Sockets;

/// A listening socket and its thread. Dropping it closes all connections and their sockets.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    mode: u32,
    /// The inode of its file, which no other file has while the socket is open.
    inode: AtomicU64,
    /// Signalled when the thread must end, or must listen at another socket.
    stop: Arc<OwnedFd>,
    next: Arc<Mutex<Option<OwnedFd>>>,
    strangers: Arc<Mutex<Strangers>>,
    thread: Option<JoinHandle<()>>,
}

/// Connections that the server closed.
#[derive(Debug, Clone, Default)]
pub struct Strangers {
    /// Their number.
    pub count: u64,
    /// The reason of the last one.
    pub why: &'static str,
}

impl Strangers {
    fn note(&mut self, why: &'static str) {
        (self.count, self.why) = (self.count + 1, why);
    }
}

impl Server {
    /// Listens at a path where no file exists. `mode` decides which users may connect.
    pub fn start(sockets: &Arc<Sockets>, path: &Path, mode: u32) -> io::Result<Server> {
        let (listener, inode) = listen_at(path, mode)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let next = Arc::new(Mutex::new(None));
        let strangers = Arc::new(Mutex::default());
        let mut serving = Serving {
            sockets: Arc::clone(sockets),
            listener,
            stop: Arc::clone(&stop),
            next: Arc::clone(&next),
            strangers: Arc::clone(&strangers),
            peers: HashMap::new(),
            peers_max: peers_max(),
            last: 0,
            pause: None,
        };
        let thread = std::thread::Builder::new().name("xsk-server".into());
        let thread = Some(thread.spawn(move || serving.run())?);
        let (path, inode) = (path.to_owned(), inode.into());
        Ok(Server { path, mode, inode, stop, next, strangers, thread })
    }

    /// Connections that the server closed so far: their messages were malformed, or there were too
    /// many.
    pub fn strangers(&self) -> Strangers {
        self.strangers.lock().clone()
    }

    /// Whether its file still exists.
    pub fn is_there(&self) -> bool {
        let inode = std::fs::symlink_metadata(&self.path).map(|file| file.ino());
        inode.is_ok_and(|inode| inode == self.inode.load(Ordering::Relaxed))
    }

    /// Listens at its path again after its file was removed; the path must be free. Open
    /// connections stay.
    ///
    /// # Errors
    ///
    /// Fails with the system's error. The old socket then stays.
    pub fn listen_again(&self) -> io::Result<()> {
        let (listener, inode) = listen_at(&self.path, self.mode)?;
        self.inode.store(inode, Ordering::Relaxed);
        *self.next.lock() = Some(listener);
        rustix::io::write(&*self.stop, &1u64.to_ne_bytes())?;
        Ok(())
    }
}

/// A listening socket, and the number of its file.
fn listen_at(path: &Path, mode: u32) -> io::Result<(OwnedFd, u64)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&listener, &SocketAddrUnix::new(path)?)?;
    chmod(path, Mode::from_raw_mode(mode))?;
    listen(&listener, BACKLOG)?;
    Ok((listener, std::fs::symlink_metadata(path)?.ino()))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _rung = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _panicked = thread.join();
        }
        if self.is_there() {
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

/// State of the serving thread.
struct Serving {
    sockets: Arc<Sockets>,
    listener: OwnedFd,
    stop: Arc<OwnedFd>,
    next: Arc<Mutex<Option<OwnedFd>>>,
    strangers: Arc<Mutex<Strangers>>,
    peers: HashMap<u64, Peer>,
    /// Most connections: more would leave too few descriptors for everything else.
    peers_max: usize,
    last: u64,
    /// No client is accepted before this time, for lack of descriptors.
    pause: Option<Instant>,
}

impl Serving {
    fn run(&mut self) {
        while let Ok(ready) = self.wait() {
            // Ended connections are closed first, since other applications may want their queues,
            // and all together, since each call waits for the workers.
            self.close(ready.iter().filter_map(Who::gone));
            let mut strange = Vec::new();
            for who in ready {
                match who {
                    Who::Stop if self.take_next() => {}
                    Who::Stop => {
                        let all: Vec<u64> = self.peers.keys().copied().collect();
                        return self.close(all.into_iter());
                    }
                    Who::Listener => self.accept(),
                    Who::Peer(number) => {
                        let Some(Err(why)) = self.peers.get(&number).map(Peer::serve) else {
                            continue;
                        };
                        if why.kind() == io::ErrorKind::InvalidData {
                            self.strangers.lock().note("a malformed request");
                        }
                        strange.push(number);
                    }
                    Who::Gone(_) => {}
                }
            }
            self.close(strange.into_iter());
        }
    }

    /// Starts listening at another socket, if there is one; otherwise the thread must end.
    fn take_next(&mut self) -> bool {
        let Some(listener) = self.next.lock().take() else { return false };
        let mut count = [0; 8];
        // Only this thread reads it.
        let _rung = rustix::io::read(&*self.stop, &mut count);
        self.listener = listener;
        true
    }

    /// Closes connections, and their sockets.
    fn close(&mut self, numbers: impl Iterator<Item = u64>) {
        let peers: Vec<Peer> = numbers.filter_map(|it| self.peers.remove(&it)).collect();
        let sockets: Vec<_> = peers.iter().map(|peer| Arc::clone(&peer.socket)).collect();
        self.sockets.close(&sockets);
    }

    /// Waits for the next request or connection.
    fn wait(&mut self) -> io::Result<Vec<Who>> {
        let left = self.pause.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.filter(|left| !left.is_zero());
        if left.is_none() {
            self.pause = None;
        }
        let mut who = vec![Who::Stop];
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.stop.as_fd()];
        if left.is_none() {
            who.push(Who::Listener);
            descriptors.push(self.listener.as_fd());
        }
        who.extend(self.peers.keys().copied().map(Who::Peer));
        descriptors.extend(self.peers.values().map(|peer| peer.stream.as_fd()));
        let mut polls: Vec<PollFd<'_>> =
            descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let limit = left.and_then(|left| Timespec::try_from(left).ok());
        loop {
            match poll(&mut polls, limit.as_ref()) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let ready = who.into_iter().zip(polls.iter().map(PollFd::revents));
        let ready = ready.filter(|(_, events)| !events.is_empty());
        Ok(ready.map(|(who, events)| who.after(events)).collect())
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = match accept_with(&self.listener, flags) {
            Ok(stream) => stream,
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => return,
            Err(_no_descriptors) => {
                // This client keeps waiting; served connections are not delayed.
                self.pause = Some(Instant::now() + PAUSE);
                return;
            }
        };
        if self.peers.len() >= self.peers_max || is_among_last(&stream) {
            self.strangers.lock().note("there are descriptors for no more sockets (EMFILE)");
            let greeting = Greeting { id: 0, errno: Errno::MFILE.raw_os_error() };
            // The application has disconnected, or gets the reason.
            let _refused = send(stream.as_fd(), &greeting.to_bytes(), &[]);
            return;
        }
        match Peer::greet(&self.sockets, stream) {
            Ok(peer) => {
                self.last += 1;
                self.peers.insert(self.last, peer);
            }
            // The application has disconnected, or got the reason.
            Err(_refused) => {}
        }
    }
}

/// The source of an event.
enum Who {
    Stop,
    Listener,
    Peer(u64),
    /// The application has disconnected.
    Gone(u64),
}

impl Who {
    fn after(self, events: PollFlags) -> Who {
        match self {
            Who::Peer(number) if events.contains(PollFlags::HUP) => Who::Gone(number),
            who => who,
        }
    }

    fn gone(&self) -> Option<u64> {
        if let Who::Gone(number) = self { Some(*number) } else { None }
    }
}

/// One application's connection; dropping it closes its socket.
#[derive(Debug)]
pub struct Peer {
    stream: OwnedFd,
    sockets: Arc<Sockets>,
    socket: Arc<Socket>,
}

impl Peer {
    /// Opens a new socket for the application at the other end of `stream`.
    pub fn greet(sockets: &Arc<Sockets>, stream: OwnedFd) -> io::Result<Peer> {
        let user = socket_peercred(&stream)?.uid.as_raw();
        let socket = match sockets.open_for(user) {
            Ok(socket) => socket,
            Err(errno) => {
                let greeting = Greeting { id: 0, errno: errno.raw_os_error() };
                send(stream.as_fd(), &greeting.to_bytes(), &[])?;
                return Err(errno.into());
            }
        };
        // From here on dropping closes it.
        let peer = Peer { stream, sockets: Arc::clone(sockets), socket };
        let bell = peer.socket.take_bell().ok_or(Errno::BADF)?;
        let greeting = Greeting { id: towpath_engine::Socket::id(&*peer.socket), errno: 0 };
        let files = [peer.socket.rings(), bell.as_fd()];
        send(peer.stream.as_fd(), &greeting.to_bytes(), &files)?;
        Ok(peer)
    }

    /// Answers one request; fails if the application is gone, or sends a malformed message.
    pub fn serve(&self) -> io::Result<()> {
        let (bytes, files) = match receive(&self.stream) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            result => result?,
        };
        let request = Request::from_bytes(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        let reply = answer(&self.sockets, &self.socket, request, files);
        send(self.stream.as_fd(), &reply.to_bytes(), &[])
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.socket.close();
    }
}

/// Executes a request of the application.
pub fn answer(
    sockets: &Arc<Sockets>,
    socket: &Arc<Socket>,
    request: Request,
    mut files: Vec<OwnedFd>,
) -> Reply {
    let file = files.pop();
    let result = match request {
        Request::SetOption { name, start, value } => {
            let file = file.map(|file| (file, start));
            socket.set_option(name, &value, file).map(|()| Vec::new())
        }
        Request::GetOption { name, room } => socket.get_option(name, room as usize),
        Request::Bind { address } => {
            let is_shared =
                Address::from_bytes(&address).is_some_and(|a| a.flags & SHARED_UMEM != 0);
            let shared = match file.filter(|_| is_shared) {
                Some(file) => sockets.of_file(&file),
                None => Shared::NoSocket,
            };
            socket.bind(&address, &shared).map(|()| Vec::new())
        }
        Request::Ifindex { name } => match sockets.host().ifindex(&name) {
            Some(ifindex) => Ok(ifindex.to_ne_bytes().to_vec()),
            None => Err(Errno::NODEV),
        },
        Request::Insert { map, key } => {
            sockets.host().insert(socket, &map, key).map(|()| Vec::new())
        }
        Request::Steer => sockets.host().steer(socket).map(|()| Vec::new()),
        Request::BindUdp(binding) => {
            let bound = sockets.host().bind_udp(socket, &binding);
            bound.map(|port| u32::from(port).to_ne_bytes().to_vec())
        }
        Request::UnbindUdp { address } => {
            sockets.host().unbind_udp(socket, address).map(|()| Vec::new())
        }
        Request::DrainUdp { address } => {
            sockets.host().drain_udp(socket, address).map(|()| Vec::new())
        }
        Request::Route { destination } => {
            sockets.host().route(socket, destination).map(|route| route.to_bytes())
        }
    };
    match result {
        Ok(value) => Reply { errno: 0, value },
        Err(errno) => Reply { errno: errno.raw_os_error(), value: Vec::new() },
    }
}

/// Limit of the process's descriptors, and how many of them are not for sockets.
fn descriptors() -> (u64, u64) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit, (limit / 2).min(DESCRIPTORS_LEFT))
}

/// Whether a new descriptor is one of the last of all: it is the lowest free number, so all below
/// it are in use, by whatever part of the process.
fn is_among_last(stream: &OwnedFd) -> bool {
    let (limit, others) = descriptors();
    u64::try_from(stream.as_raw_fd()).is_ok_and(|number| number >= limit - others / 4)
}

/// Largest number of sockets: each needs descriptors, of which some are left for the rest of the
/// process.
fn peers_max() -> usize {
    let (limit, others) = descriptors();
    usize::try_from((limit - others) / DESCRIPTORS_EACH).unwrap_or(usize::MAX).max(1)
}

const BACKLOG: i32 = 64;
/// A socket's connection, rings, bell, and its application's memory twice.
const DESCRIPTORS_EACH: u64 = 5;
const DESCRIPTORS_LEFT: u64 = 128;
/// Pause before the next attempt to accept when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(20);
