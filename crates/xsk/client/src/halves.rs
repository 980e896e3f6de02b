//! A socket in two halves, which two threads may use at the same time.
//!
//! [`Receiver`] and [`Sender`] have a part of the packet memory each, so that neither waits for the
//! other. Packets are read and written where they lie, and a ring's index is published once for a
//! whole burst.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use towpath_ring::{Consumer, Desc, Mapped, Producer};

use crate::area_unsafe::Area;
use crate::connection::Connection;
use crate::socket::{CHUNK_BYTES, Options, Parts, bind};

/// Opens and binds a socket. Each half gets half of [`Options::chunks`].
pub fn open(options: &Options) -> io::Result<(Receiver, Sender)> {
    let Parts { connection, rx, tx, fill, completion, area } = Parts::new(options)?;
    let middle = options.chunks / 2;
    let (receiving, sending) = area.split_at(middle as usize * CHUNK_BYTES as usize);
    let connection = Arc::new(connection);
    let mut receiver = Receiver {
        rx: Consumer::new(rx),
        fill: Producer::new(fill),
        area: receiving,
        free: chunks(0..middle),
        is_inside: false,
        connection: Arc::clone(&connection),
    };
    let sender = Sender {
        tx: Producer::new(tx),
        completion: Consumer::new(completion),
        area: sending,
        free: chunks(middle..options.chunks),
        connection: Arc::clone(&connection),
    };
    receiver.refill();
    bind(&connection, options)?;
    Ok((receiver, sender))
}

fn chunks(numbers: Range<u32>) -> Vec<u64> {
    numbers.rev().map(|number| u64::from(number) * CHUNK_BYTES).collect()
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    rx: Consumer<Mapped<Desc>>,
    fill: Producer<Mapped<u64>>,
    area: Area,
    /// Chunks that are neither in the fill ring nor kept.
    free: Vec<u64>,
    /// The last descriptor was of a packet that goes on.
    is_inside: bool,
    connection: Arc<Connection>,
}

/// A received packet whose memory stays in use until [`Receiver::free`].
#[derive(Debug)]
pub struct Kept {
    address: u64,
    len: u32,
}

impl Receiver {
    /// Shows up to `limit` received packets to `look`. A packet for which it returns a value is
    /// kept and appended to `kept` with it; the memory of the others is free again. Returns the
    /// number of packets.
    ///
    /// Packets of several descriptors are passed over; only sockets with `USE_SG` get them.
    #[inline]
    pub fn receive<T>(
        &mut self,
        limit: usize,
        kept: &mut Vec<(T, Kept)>,
        mut look: impl FnMut(&[u8]) -> Option<T>,
    ) -> usize {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let count = self.rx.available(limit).min(limit);
        for _ in 0..count {
            let desc = self.rx.read();
            let goes_on = desc.options & Desc::CONTINUES != 0;
            let is_whole = !goes_on && !std::mem::replace(&mut self.is_inside, goes_on);
            self.is_inside = goes_on;
            let bytes = self.area.bytes(desc.addr, desc.len as usize);
            match bytes.filter(|_| is_whole).and_then(&mut look) {
                Some(value) => kept.push((value, Kept { address: desc.addr, len: desc.len })),
                None => self.free.push(desc.addr & !(CHUNK_BYTES - 1)),
            }
        }
        self.rx.release();
        self.refill();
        count as usize
    }

    /// The bytes of a kept packet.
    pub fn bytes(&self, kept: &Kept) -> &[u8] {
        self.area.bytes(kept.address, kept.len as usize).unwrap_or_default()
    }

    /// Frees the memory of a kept packet.
    #[expect(clippy::needless_pass_by_value, reason = "so that it is freed once")]
    pub fn free(&mut self, kept: Kept) {
        self.free.push(kept.address & !(CHUNK_BYTES - 1));
    }

    /// Asks to be woken when a packet arrives; returns whether the caller may sleep: there is none.
    pub fn arm(&mut self) -> bool {
        self.rx.arm()
    }

    /// Readable when packets arrive, after [`Receiver::arm`], or when sent packets have left, after
    /// [`Sender::arm`]. It hangs up when the port or the daemon is gone.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.connection.bell()
    }

    /// The connection, for options, statistics and requests.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Gives the daemon chunks to receive into.
    fn refill(&mut self) {
        let count = self.free.len().min(self.fill.free(u32::MAX) as usize);
        for chunk in self.free.drain(self.free.len() - count..) {
            self.fill.write(chunk);
        }
        self.fill.submit();
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    tx: Producer<Mapped<Desc>>,
    completion: Consumer<Mapped<u64>>,
    area: Area,
    free: Vec<u64>,
    connection: Arc<Connection>,
}

impl Sender {
    /// Packets that can be queued now, at least as far as `wanted`.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        if self.free.len() < wanted {
            self.reclaim();
        }
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        self.free.len().min(self.tx.free(wanted) as usize)
    }

    /// Queues a packet of `len` bytes, which `write` writes in place; returns whether there was
    /// room for it. [`Sender::submit`] sends it.
    #[inline]
    pub fn queue(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if len > CHUNK_BYTES as usize || self.room(1) == 0 {
            return false;
        }
        let Some(chunk) = self.free.pop() else { return false };
        let at = place(chunk, len);
        let Some(bytes) = self.area.bytes_mut(at, len) else { return false };
        write(bytes);
        self.tx.write(Desc { addr: at, len: len as u32, options: 0 });
        true
    }

    /// Sends the queued packets, and wakes the daemon if it sleeps.
    #[inline]
    pub fn submit(&mut self) -> io::Result<()> {
        self.tx.submit();
        if self.tx.needs_wakeup() { self.wake() } else { Ok(()) }
    }

    #[cold]
    fn wake(&self) -> io::Result<()> {
        match send(self.connection.bell(), &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            // The daemon ended before it took earlier messages.
            Err(Errno::CONNRESET) => Err(Errno::PIPE.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks to be woken when queued packets have left; returns whether the caller may sleep: there
    /// is no room for `wanted` packets yet.
    pub fn arm(&mut self, wanted: usize) -> bool {
        self.completion.arm();
        self.room(wanted) < wanted
    }

    /// Packets that were queued and not taken by the daemon yet.
    pub fn unsent(&self) -> u32 {
        self.tx.waiting()
    }

    /// Takes back the chunks of packets that were sent.
    fn reclaim(&mut self) {
        for _ in 0..self.completion.available(u32::MAX) {
            self.free.push(self.completion.read() & !(CHUNK_BYTES - 1));
        }
        self.completion.release();
    }
}

/// The place of a packet in its chunk. Chunks begin at multiples of a page, so packets at their
/// beginnings would share a few sets of the first-level cache.
#[inline]
fn place(chunk: u64, len: usize) -> u64 {
    let shift = (chunk / CHUNK_BYTES % 16) * 64;
    if len + 16 * 64 <= CHUNK_BYTES as usize { chunk + shift } else { chunk }
}

/// The descriptor of [`Receiver::bell`].
impl std::os::fd::AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.bell()
    }
}
