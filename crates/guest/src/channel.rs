//! Messages to and from a guest, over a socket: one connection at a time, by a thread of its own.
//!
//! A guest may send at any speed, any amount and any content. So a message takes no more memory
//! than its largest length and no more than a few seconds, a guest that does not read its answers
//! is disconnected, and a guest that asks too often has to wait.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, VsockAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_guest_client::wire::Receiver;
use towpath_host::socket::{Access, SocketFile, listen};

use crate::guest::Guest;

/// Address of a guest's agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Path of a socket at which this process listens (QEMU: `-chardev
    /// socket,path=...,reconnect=1`), and the users who may connect.
    Listen(PathBuf, Access),
    /// Path of a socket at which the monitor listens (QEMU: `server=on,wait=off`).
    Connect(PathBuf),
    /// Port `port` of the host's virtio sockets, only for the guest with this context id.
    Vsock {
        /// The guest's context id, 3 or more.
        cid: u32,
        /// The port at which this process listens.
        port: u32,
    },
}

/// A guest's channel, closed on drop.
#[derive(Debug)]
pub struct Channel {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The socket file that was made here. It is dropped after the thread has ended.
    _made: Option<SocketFile>,
}

impl Channel {
    /// Opens a guest's channel.
    ///
    /// # Errors
    ///
    /// Fails if the socket can't be made.
    pub fn start(guest: &Arc<Guest>, endpoint: &Endpoint) -> io::Result<Channel> {
        let (acceptor, made) = Acceptor::open(endpoint)?;
        let stop = Arc::new(AtomicBool::new(false));
        let work = Work { guest: Arc::clone(guest), stop: Arc::clone(&stop), acceptor };
        let builder = std::thread::Builder::new().name("guest".to_owned());
        let thread = builder.spawn(move || work.run())?;
        Ok(Channel { stop, thread: Some(thread), _made: made })
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread leaves nothing to clean up.
            let _ended = thread.join();
        }
    }
}

/// Source of connections from guests.
#[derive(Debug)]
enum Acceptor {
    Listener(OwnedFd),
    Path(PathBuf),
    Vsock { listener: OwnedFd, cid: u32 },
}

impl Acceptor {
    /// Opens the source of connections, and the file that is made for it.
    fn open(endpoint: &Endpoint) -> io::Result<(Acceptor, Option<SocketFile>)> {
        Ok(match endpoint {
            Endpoint::Listen(path, access) => {
                let (listener, made) = listen(path, access)?;
                (Acceptor::Listener(listener.into()), Some(made))
            }
            Endpoint::Connect(path) => (Acceptor::Path(path.clone()), None),
            &Endpoint::Vsock { cid, port } => {
                (Acceptor::Vsock { listener: listen_vsock(port)?, cid }, None)
            }
        })
    }

    /// The next connection, if there is one now or soon.
    fn next(&self) -> io::Result<Option<UnixStream>> {
        match self {
            Acceptor::Listener(listener) => accept(listener),
            Acceptor::Vsock { listener, cid } => {
                let Some(stream) = accept(listener)? else { return Ok(None) };
                let peer = nix::sys::socket::getpeername::<VsockAddr>(
                    std::os::fd::AsRawFd::as_raw_fd(&stream),
                )?;
                // Connections of other guests are dropped: they have channels of their own.
                Ok((peer.cid() == *cid).then_some(stream))
            }
            Acceptor::Path(path) => {
                let stream = UnixStream::connect(path);
                if stream.is_err() {
                    std::thread::sleep(TURN);
                }
                stream.map(Some)
            }
        }
    }
}

fn listen_vsock(port: u32) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = nix::sys::socket::socket(AddressFamily::Vsock, SockType::Stream, flags, None)?;
    let any = VsockAddr::new(VMADDR_CID_ANY, port);
    nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &any)?;
    nix::sys::socket::listen(&socket, Backlog::new(1)?)?;
    Ok(socket)
}

fn accept(listener: &OwnedFd) -> io::Result<Option<UnixStream>> {
    let mut waiting = [PollFd::new(listener, PollFlags::IN)];
    let turn = Timespec { tv_sec: 0, tv_nsec: TURN.subsec_nanos().into() };
    if poll(&mut waiting, Some(&turn))? == 0 {
        return Ok(None);
    }
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let stream = rustix::net::accept_with(listener, flags)?;
    Ok(Some(UnixStream::from(stream)))
}

struct Work {
    guest: Arc<Guest>,
    stop: Arc<AtomicBool>,
    acceptor: Acceptor,
}

impl Work {
    fn run(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            self.guest.look();
            // A guest that can't be reached now may be reachable later.
            let Ok(Some(stream)) = self.acceptor.next() else { continue };
            self.guest.note_connection(true);
            // The guest keeps its objects after any end of the connection.
            let _ended = self.talk(stream);
            self.guest.note_connection(false);
        }
    }

    fn talk(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TURN))?;
        stream.set_write_timeout(Some(WRITE_TIME_MAX))?;
        let (mut receiver, mut bytes) = (Receiver::new(), vec![0; READ_BYTES]);
        while !self.stop.load(Ordering::Relaxed) {
            match stream.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => receiver.push(&bytes[..count]),
                Err(error) if is_early(&error) => {}
                Err(error) => return Err(error),
            }
            self.answer(&mut stream, &mut receiver)?;
            receiver.expire(Instant::now());
            self.answer(&mut stream, &mut receiver)?;
            self.guest.look();
        }
        Ok(())
    }

    fn answer(&self, stream: &mut UnixStream, receiver: &mut Receiver) -> io::Result<()> {
        while let Some(arrived) = receiver.next(Instant::now()) {
            let (reply, is_done) = self.guest.answer(arrived, Instant::now());
            if !is_done {
                // A guest whose requests are refused is slowed down.
                std::thread::sleep(REFUSAL_PAUSE);
            }
            stream.write_all(&reply.encode())?;
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }
}

/// Whether nothing arrived in time.
fn is_early(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// `VMADDR_CID_ANY`.
const VMADDR_CID_ANY: u32 = u32::MAX;
/// Period of checks whether the guest restarted, and whether to stop.
const TURN: Duration = Duration::from_millis(50);
/// Longest time for a guest to read an answer.
const WRITE_TIME_MAX: Duration = Duration::from_secs(2);
const REFUSAL_PAUSE: Duration = Duration::from_millis(1);
const READ_BYTES: usize = 1 << 16;
