//! Transmission: puts frames into the TX ring, and takes their memory back from the completion
//! ring.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use towpath_engine::port::Tx;
use towpath_ring::{Consumer, Desc, Mapped, Producer};
use towpath_xdp::frame::arena::STRIDE_BYTES;
use towpath_xdp::{Arena, Frame, Pool, SharedBytes};

use super::live::{LiveSender, WayOut};
use super::options::Options;
use super::socket::{CHUNK_BYTES, Socket, place};
use super::{CONTINUES, Counters};

/// The sending side of a socket.
pub(super) struct Sending {
    arena: Arc<Arena>,
    tx: Producer<Mapped<Desc>>,
    completion: Consumer<Mapped<u64>>,
    size: u32,
    /// Frames lent to the kernel, by buffer number.
    held: Box<[Held]>,
    /// Number of descriptors not yet completed.
    outstanding: u32,
    scratch: Vec<Frame>,
}

/// State of one buffer that the kernel may hold.
#[derive(Debug, Default)]
struct Held {
    /// The frame, at the number of its first buffer.
    frame: Option<Frame>,
    /// Number of the frame's first buffer; valid while `is_out`.
    first: u32,
    /// Descriptors of the frame that are not completed, at the number of the first.
    left: u16,
    /// Number of those descriptors with this buffer.
    out: u16,
}

impl Sending {
    pub(super) fn new(
        arena: &Arc<Arena>,
        tx: Producer<Mapped<Desc>>,
        completion: Consumer<Mapped<u64>>,
        options: &Options,
    ) -> Sending {
        Sending {
            arena: Arc::clone(arena),
            tx,
            completion,
            size: options.tx_ring,
            held: (0..arena.total()).map(|_| Held::default()).collect(),
            outstanding: 0,
            scratch: Vec::new(),
        }
    }

    /// Takes back frames that the kernel has completed.
    #[inline]
    fn reclaim(&mut self, pool: &mut Pool, counters: &Counters) {
        let count = self.completion.available(self.size);
        if count == 0 {
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        for _ in 0..count {
            let addr = self.completion.read();
            match self.complete(place(addr).0) {
                Ok(frame) => scratch.extend(frame),
                Err(NotOurs) => counters.invalid.add(1),
            }
        }
        self.completion.release();
        pool.give_all(&mut scratch);
        self.scratch = scratch;
    }

    /// Completes a descriptor; returns the frame if it was the frame's last.
    #[inline]
    fn complete(&mut self, index: usize) -> Result<Option<Frame>, NotOurs> {
        let held = self.held.get_mut(index).filter(|held| held.out > 0).ok_or(NotOurs)?;
        held.out -= 1;
        self.outstanding -= 1;
        let first = held.first as usize;
        let first = &mut self.held[first];
        first.left -= 1;
        Ok(if first.left == 0 { first.frame.take() } else { None })
    }

    /// Number of descriptors that there is room for, at most `wanted`.
    #[inline]
    fn room(&mut self, wanted: u32) -> u32 {
        assert!(self.outstanding <= self.size, "the completion ring holds all of them");
        self.tx.free(wanted).min(self.size - self.outstanding)
    }

    /// Number of single-descriptor frames that there is room for, once completed ones are
    /// reclaimed.
    fn credit(&mut self) -> usize {
        let done = self.completion.available(self.size).min(self.outstanding);
        let free = self.tx.free(self.size).min(self.size - (self.outstanding - done));
        free as usize
    }

    /// Moves frames from the front into the tx ring, as far as there is room.
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let mut room = self.room(frames.len() as u32);
        let mut fits = 0;
        let mut failure = Ok(());
        for frame in frames.iter_mut() {
            let pieces = match self.prepare(frame, pool) {
                Ok(pieces) => pieces,
                Err(error) => {
                    failure = Err(error);
                    break;
                }
            };
            if pieces > room {
                break;
            }
            room -= pieces;
            fits += 1;
        }
        for frame in frames.drain(..fits) {
            self.post(frame);
        }
        self.tx.submit();
        failure
    }

    /// Converts a frame to memory that the kernel can read; returns the number of its descriptors.
    #[inline]
    fn prepare(&self, frame: &mut Frame, pool: &mut Pool) -> io::Result<u32> {
        if frame.is_plain() && self.arena.index_of(frame).is_some() {
            return Ok(1);
        }
        if !frame.shared_pieces().all(|piece| self.index_of(piece).is_some()) {
            // The frame is outside the arena, e.g. linearised in memory of its own.
            let copy = pool.frame(&frame.to_vec()).map_err(io::Error::other)?;
            let none = || io::Error::new(io::ErrorKind::OutOfMemory, "no free frames");
            pool.give(std::mem::replace(frame, copy.ok_or_else(none)?));
        }
        let count = parts(frame).count();
        if count > DESCRIPTORS_MAX {
            let what = format!("{} bytes are more than the kernel sends at once", frame.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(count as u32)
    }

    /// Number of the arena's buffer that contains `bytes`.
    #[inline]
    fn index_of(&self, bytes: SharedBytes<'_>) -> Option<usize> {
        let index = self.offset_of(bytes.as_ptr()) / STRIDE_BYTES as u64;
        (index < self.held.len() as u64).then_some(index as usize)
    }

    #[inline]
    fn offset_of(&self, first: *const u8) -> u64 {
        (first.addr() as u64).wrapping_sub(self.arena.base())
    }

    /// Writes the descriptors of a prepared frame, and keeps it.
    #[inline]
    fn post(&mut self, frame: Frame) {
        if frame.is_plain() {
            let bytes = frame.shared_linear();
            let addr = self.offset_of(bytes.as_ptr());
            self.tx.write(Desc { addr, len: bytes.len() as u32, options: 0 });
            let (index, _) = place(addr);
            self.keep(index, index as u32, 1);
            self.held[index].frame = Some(frame);
            return;
        }
        self.post_pieces(frame);
    }

    #[cold]
    fn post_pieces(&mut self, frame: Frame) {
        let count = parts(&frame).count();
        let Some(first) = self.index_of(frame.shared_linear()) else { return };
        for (number, part) in parts(&frame).enumerate() {
            let addr = self.offset_of(part.as_ptr());
            let options = if number + 1 < count { CONTINUES } else { 0 };
            self.tx.write(Desc { addr, len: part.len() as u32, options });
            self.keep(place(addr).0, first as u32, count as u16);
        }
        self.held[first].frame = Some(frame);
    }

    #[inline]
    fn keep(&mut self, index: usize, first: u32, left: u16) {
        let held = &mut self.held[index];
        assert!(held.out == 0 || held.first == first, "one owner for each buffer");
        held.out += 1;
        held.first = first;
        held.left = left;
        self.outstanding += 1;
    }
}

/// The pieces of a frame, split where they are longer than a descriptor allows.
fn parts(frame: &Frame) -> impl Iterator<Item = SharedBytes<'_>> {
    frame.shared_pieces().flat_map(|piece| {
        let starts = (0..piece.len()).step_by(CHUNK_BYTES);
        starts.map(move |at| piece.part(at..piece.len().min(at + CHUNK_BYTES)))
    })
}

/// Most descriptors of a packet: a linear part and `MAX_SKB_FRAGS` others (`xsk_build_skb`).
const DESCRIPTORS_MAX: usize = 18;
const _: () = assert!(
    DESCRIPTORS_MAX <= super::options::RING_MIN as usize,
    "the smallest ring takes any frame"
);

/// Error for a completion by the kernel of a buffer that was not sent.
struct NotOurs;

/// A transmitter of one worker; several may share a socket.
pub(super) struct Transmitter {
    socket: Arc<Socket>,
    counters: Arc<Counters>,
    always_call: bool,
    live: Option<LiveSender>,
}

impl Transmitter {
    pub(super) fn new(
        socket: &Arc<Socket>,
        counters: &Arc<Counters>,
        options: &Options,
        way_out: Option<&Arc<WayOut>>,
    ) -> Transmitter {
        let (socket, counters) = (Arc::clone(socket), Arc::clone(counters));
        let live = way_out.map(LiveSender::new);
        Transmitter { socket, counters, always_call: !options.need_wakeup, live }
    }

    /// Makes the kernel send the frames in the ring. In copy mode one call sends a part of them.
    fn kick(&self) -> io::Result<()> {
        let (mut waiting, wants) = {
            let sending = self.socket.sending();
            (sending.tx.waiting(), self.always_call || sending.tx.needs_wakeup())
        };
        if !wants {
            return Ok(());
        }
        while waiting > 0 {
            match send(self.socket.fd(), &[], SendFlags::DONTWAIT) {
                Ok(_) => {}
                // The budget is used up, the device is busy, it dropped a frame, or memory ran out.
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => {}
                Err(Errno::NETDOWN) => {
                    return Err(io::Error::new(
                        io::ErrorKind::NetworkDown,
                        "the interface is down",
                    ));
                }
                Err(Errno::NXIO | Errno::NODEV) => return Err(self.socket.gone()),
                Err(errno) => return Err(errno.into()),
            }
            let before = std::mem::replace(&mut waiting, self.socket.sending().tx.waiting());
            if waiting >= before {
                break;
            }
        }
        Ok(())
    }
}

impl Transmitter {
    /// Sends by the socket.
    fn transmit_by_socket(&self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let result = {
            let mut sending = self.socket.sending();
            sending.reclaim(pool, &self.counters);
            sending.transmit(frames, pool)
        };
        if result.is_ok() && !frames.is_empty() {
            // The ring is full: tried once more after the kernel has emptied it.
            self.kick()?;
            let mut sending = self.socket.sending();
            sending.reclaim(pool, &self.counters);
            return sending.transmit(frames, pool);
        }
        result
    }

    /// Gives a burst to the live-frames path, if that is open and faster.
    #[inline]
    fn transmit_live(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> bool {
        let Some(live) = &mut self.live else { return false };
        let is_idle = || {
            let mut sending = self.socket.sending();
            sending.reclaim(pool, &self.counters);
            sending.outstanding == 0
        };
        live.accept(frames, is_idle)
    }

    /// Sends the frames given to the live-frames path, by the socket if that path fails.
    fn flush_live(&mut self, pool: &mut Pool) -> io::Result<()> {
        let Some(live) = &mut self.live else { return Ok(()) };
        if live.is_empty() {
            return Ok(());
        }
        live.send(pool, &self.counters);
        if live.is_empty() { Ok(()) } else { self.flush_rest(pool) }
    }

    /// Sends frames that the live-frames path left by the socket, as far as there is room.
    #[cold]
    fn flush_rest(&mut self, pool: &mut Pool) -> io::Result<()> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let mut rest = live.close();
        let result = self.transmit_by_socket(&mut rest, pool);
        self.counters.refused.add(rest.len() as u64);
        pool.give_all(&mut rest);
        result
    }
}

impl Tx for Transmitter {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        if self.socket.is_gone() {
            return Err(self.socket.gone());
        }
        if self.transmit_live(frames, pool) {
            return Ok(());
        }
        // Keeps the order. An error here does not concern the new frames.
        let _noted = self.flush_live(pool);
        self.transmit_by_socket(frames, pool)
    }

    fn flush(&mut self, pool: &mut Pool) -> io::Result<()> {
        let result = self.flush_live(pool);
        self.kick()?;
        self.socket.sending().reclaim(pool, &self.counters);
        result
    }

    /// Frames held by the live-frames path count, as they may have to go by the socket. A full ring
    /// is offered to the kernel once more.
    fn credit(&mut self) -> usize {
        if self.socket.is_gone() {
            return usize::MAX;
        }
        let mut credit = self.socket.sending().credit();
        if credit == 0 && self.kick().is_ok() {
            credit = self.socket.sending().credit();
        }
        let held = self.live.as_ref().map_or(0, LiveSender::held);
        credit.saturating_sub(held)
    }

    fn flush_some(&mut self, pool: &mut Pool) -> io::Result<bool> {
        match &self.live {
            Some(live) if !live.is_empty() && !live.is_full() => Ok(true),
            _ => self.flush(pool).map(|()| false),
        }
    }

    fn reap(&mut self, pool: &mut Pool) -> bool {
        // If the interface is gone, the next send reports it.
        let _failed = self.flush_live(pool);
        let _gone = self.kick();
        let mut sending = self.socket.sending();
        sending.reclaim(pool, &self.counters);
        sending.outstanding > 0
    }
}
