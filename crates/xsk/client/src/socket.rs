//! A socket with memory of its own: for applications in Rust.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use towpath_ring::{Consumer, Desc, Entry, Mapped, Memory, OFFSETS, Producer};

use crate::abi::{
    AF_XDP, Address, BUSY_POLL, BUSY_POLL_BUDGET, PGOFF_COMPLETION, PGOFF_FILL, PGOFF_RX, PGOFF_TX,
    PREFER_BUSY_POLL, RX_RING, TX_RING, UMEM_COMPLETION_RING, UMEM_FILL_RING, UMEM_REG,
    USE_NEED_WAKEUP, UmemReg,
};
use crate::area_unsafe::Area;
use crate::connection::{Connection, default_path};

/// Options of a socket.
#[derive(Debug, Clone)]
pub struct Options {
    /// The path at which the daemon listens.
    pub path: PathBuf,
    /// The port's name.
    pub port: String,
    /// Its queue.
    pub queue: u32,
    /// Places for packets, of 4096 bytes; half of them to receive into.
    pub chunks: u32,
    /// Entries of each ring, a power of two.
    pub entries: u32,
    /// `COPY`, `ZEROCOPY`, `USE_SG`; `USE_NEED_WAKEUP` is always on.
    pub flags: u16,
    /// Whether all frames of the queue come here, without a program that redirects them.
    pub steer: bool,
}

impl Options {
    /// The usual ones, for a queue.
    pub fn new(port: &str, queue: u32) -> Options {
        Options {
            path: default_path(),
            port: port.to_owned(),
            queue,
            chunks: 4096,
            entries: 2048,
            flags: 0,
            steer: true,
        }
    }
}

/// The time for which both sides look for packets before they sleep (`SO_BUSY_POLL` and related
/// options).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BusyPoll {
    /// The time for which [`Socket::wait`] looks into the rx ring before it sleeps. 0 is not at
    /// all.
    pub microseconds: u32,
    /// Whether the daemon's worker stays awake for the same time after the last packet, so that
    /// [`Socket::kick`] finds it awake: at most a second.
    pub prefer: bool,
    /// Packets that the worker takes from the tx ring at a time; 0 leaves it to the worker.
    pub budget: u16,
}

/// Action on a received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Its memory is free again.
    Drop,
    /// It is sent, as it is now.
    Send,
}

/// The memory and the rings of a socket that is not bound yet.
pub(crate) struct Parts {
    pub(crate) connection: Connection,
    pub(crate) rx: Mapped<Desc>,
    pub(crate) tx: Mapped<Desc>,
    pub(crate) fill: Mapped<u64>,
    pub(crate) completion: Mapped<u64>,
    pub(crate) area: Area,
}

impl Parts {
    pub(crate) fn new(options: &Options) -> io::Result<Parts> {
        let connection = Connection::open(&options.path)?;
        let area = Area::new(options.chunks as usize * CHUNK_BYTES as usize)?;
        let reg = UmemReg {
            addr: area.addr(),
            len: area.len() as u64,
            chunk_size: CHUNK_BYTES as u32,
            ..UmemReg::default()
        };
        connection.set_option(UMEM_REG, &reg.to_bytes(), Some((area.fd(), 0)))?;
        for name in [UMEM_FILL_RING, UMEM_COMPLETION_RING, RX_RING, TX_RING] {
            connection.set_option(name, &options.entries.to_ne_bytes(), None)?;
        }
        Ok(Parts {
            rx: ring(&connection, PGOFF_RX, options.entries)?,
            tx: ring(&connection, PGOFF_TX, options.entries)?,
            fill: ring(&connection, PGOFF_FILL, options.entries)?,
            completion: ring(&connection, PGOFF_COMPLETION, options.entries)?,
            connection,
            area,
        })
    }
}

/// Binds a socket to its queue.
pub(crate) fn bind(connection: &Connection, options: &Options) -> io::Result<()> {
    let address = Address {
        family: AF_XDP,
        flags: options.flags | USE_NEED_WAKEUP,
        ifindex: connection.ifindex(&options.port)?,
        queue: options.queue,
        shared_umem_fd: 0,
    };
    connection.bind(&address, None)?;
    if options.steer { connection.steer() } else { Ok(()) }
}

/// A bound socket.
#[derive(Debug)]
pub struct Socket {
    rx: Consumer<Mapped<Desc>>,
    tx: Producer<Mapped<Desc>>,
    fill: Producer<Mapped<u64>>,
    completion: Consumer<Mapped<u64>>,
    area: Area,
    /// Free chunks.
    free: Vec<u64>,
    /// A packet of several chunks that was not sent whole.
    pieces: Vec<Desc>,
    /// The time for which it looks before it sleeps.
    busy_poll: Duration,
    connection: Connection,
}

impl Socket {
    /// Opens and binds a socket.
    pub fn open(options: &Options) -> io::Result<Socket> {
        let Parts { connection, rx, tx, fill, completion, area } = Parts::new(options)?;
        let mut socket = Socket {
            rx: Consumer::new(rx),
            tx: Producer::new(tx),
            fill: Producer::new(fill),
            completion: Consumer::new(completion),
            area,
            free: (0..u64::from(options.chunks)).rev().map(|chunk| chunk * CHUNK_BYTES).collect(),
            pieces: Vec::new(),
            busy_poll: Duration::ZERO,
            connection,
        };
        socket.refill(options.chunks as usize / 2);
        bind(&socket.connection, options)?;
        Ok(socket)
    }

    /// Shows up to `limit` received packets to `look`, piece by piece as they lie in memory: each
    /// piece comes with a flag that is set if more of its packet follows. The action for a packet's
    /// last piece holds for all of it. Returns the number of packets.
    pub fn receive(
        &mut self,
        limit: usize,
        mut look: impl FnMut(&mut [u8], bool) -> Action,
    ) -> usize {
        let mut count = 0;
        let mut left = self.rx.available(u32::MAX);
        while left > 0 && count < limit {
            left -= 1;
            let desc = self.rx.read();
            let continues = desc.options & Desc::CONTINUES != 0;
            let Some(bytes) = self.area.bytes_mut(desc.addr, desc.len as usize) else { continue };
            let action = look(bytes, continues);
            self.pieces.push(desc);
            if !continues {
                count += 1;
                self.send_or_free(action);
            }
        }
        self.rx.release();
        self.tx.submit();
        self.reclaim();
        self.refill(usize::MAX);
        count
    }

    /// Queues a packet of at most one chunk; returns whether there was room. [`Socket::kick`] makes
    /// sure that it is sent.
    pub fn send(&mut self, packet: &[u8]) -> bool {
        if packet.len() > CHUNK_BYTES as usize || self.tx.free(1) == 0 {
            return false;
        }
        if self.free.is_empty() {
            self.reclaim();
        }
        let Some(chunk) = self.free.pop() else { return false };
        let Some(place) = self.area.bytes_mut(chunk, packet.len()) else { return false };
        place.copy_from_slice(packet);
        self.tx.write(Desc { addr: chunk, len: packet.len() as u32, options: 0 });
        self.tx.submit();
        true
    }

    /// Wakes the daemon if it sleeps while there is something to send.
    pub fn kick(&self) -> io::Result<()> {
        if self.tx.waiting() > 0 && self.tx.needs_wakeup() {
            match send(self.connection.bell(), &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until a packet was received, or the time is up; returns whether one was. An error
    /// means that the daemon or the port is gone.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let spin = self.busy_poll.min(timeout);
        let start = Instant::now();
        while !spin.is_zero() && start.elapsed() < spin {
            if self.rx.available(1) > 0 {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        let timeout = timeout.saturating_sub(spin);
        // Takes old messages first: those that come from here on are about packets that we would
        // miss.
        while let Ok((_, 1..)) = recv(self.connection.bell(), &mut [0; 8][..], RecvFlags::DONTWAIT)
        {
        }
        // It stays armed, for applications that poll the descriptor themselves.
        if !self.rx.arm() {
            return Ok(true);
        }
        let bell = self.connection.bell();
        let mut fds = [PollFd::new(&bell, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        poll(&mut fds, Some(&timeout))?;
        let is_gone = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        if is_gone {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the port or daemon is gone"));
        }
        Ok(self.rx.available(1) > 0)
    }

    /// Sets for how long both sides poll.
    pub fn set_busy_poll(&mut self, busy: BusyPoll) -> io::Result<()> {
        for (name, value) in [
            (BUSY_POLL, busy.microseconds),
            (PREFER_BUSY_POLL, u32::from(busy.prefer)),
            (BUSY_POLL_BUDGET, u32::from(busy.budget)),
        ] {
            self.connection.set_option(name, &value.to_ne_bytes(), None)?;
        }
        self.busy_poll = Duration::from_micros(u64::from(busy.microseconds));
        Ok(())
    }

    /// The connection, for options and statistics.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Packets that were queued and not sent yet, in descriptors.
    pub fn unsent(&self) -> u32 {
        self.tx.waiting()
    }

    /// Sends or frees the packet whose pieces were collected.
    fn send_or_free(&mut self, action: Action) {
        let pieces = std::mem::take(&mut self.pieces);
        if action == Action::Send && self.tx.free(pieces.len() as u32) as usize >= pieces.len() {
            pieces.iter().for_each(|&piece| self.tx.write(piece));
        } else {
            let chunks = pieces.iter().map(|piece| piece.addr & !(CHUNK_BYTES - 1));
            self.free.extend(chunks);
        }
        self.pieces = pieces;
        self.pieces.clear();
    }

    /// Takes back the chunks of packets that were sent.
    fn reclaim(&mut self) {
        for _ in 0..self.completion.available(u32::MAX) {
            self.free.push(self.completion.read() & !(CHUNK_BYTES - 1));
        }
        self.completion.release();
    }

    /// Gives the daemon chunks to receive into, and keeps some for sending.
    fn refill(&mut self, most: usize) {
        let spare = self.free.len().saturating_sub(KEPT_TO_SEND);
        let count = spare.min(most).min(self.fill.free(u32::MAX) as usize);
        for chunk in self.free.drain(self.free.len() - count..) {
            self.fill.write(chunk);
        }
        self.fill.submit();
    }
}

/// Ready to be polled for packets by other means than [`Socket::wait`], which must be called, with
/// no time to wait, before.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.bell()
    }
}

fn ring<T: Entry>(connection: &Connection, at: u64, entries: u32) -> io::Result<Mapped<T>> {
    let memory = Memory::map::<T>(connection.rings(), at, &OFFSETS, entries)?;
    Mapped::new(&memory, &OFFSETS, entries)
}

/// Bytes of a chunk.
pub(crate) const CHUNK_BYTES: u64 = 4096;
/// Chunks that are not given to the daemon.
const KEPT_TO_SEND: usize = 64;
