//! Reception: gives buffers to the fill ring, and takes frames out of the RX ring.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use towpath_engine::port::{Rx, Wake};
use towpath_kernel::DriverHints;
use towpath_ring::{Consumer, Desc, Mapped, Producer};
use towpath_xdp::frame::rx_metadata::{RxChecksum, RxHash, RxMetadata, SupportedHints, VlanTag};
use towpath_xdp::frame::{HEADROOM_BYTES, LINEAR_BYTES_MAX};
use towpath_xdp::{Arena, Frame, Pool};

use super::options::Options;
use super::socket::{Socket, place};
use super::{CONTINUES, Counters};

/// The receiving side of a socket.
pub(super) struct Receiving {
    arena: Arc<Arena>,
    rx: Consumer<Mapped<Desc>>,
    fill: Producer<Mapped<u64>>,
    /// Frames whose buffers the kernel holds, by buffer number.
    held: Box<[Option<Frame>]>,
    held_count: u32,
    /// Number of buffers that the kernel should hold.
    held_goal: u32,
    /// The buffers so far of a packet whose last buffer has not arrived.
    partial: Option<Frame>,
    /// The packet that is arriving is invalid, and its rest is discarded.
    is_partial_bad: bool,
    /// Hints that the port's program writes in front of packets, if it does.
    told: Option<SupportedHints>,
    scratch: Vec<Frame>,
}

impl Receiving {
    pub(super) fn new(
        arena: &Arc<Arena>,
        rx: Consumer<Mapped<Desc>>,
        fill: Producer<Mapped<u64>>,
        held_goal: u32,
    ) -> Receiving {
        Receiving {
            arena: Arc::clone(arena),
            rx,
            fill,
            held: (0..arena.total()).map(|_| None).collect(),
            held_count: 0,
            held_goal,
            partial: None,
            is_partial_bad: false,
            told: None,
            scratch: Vec::with_capacity(REFILL_BATCH as usize),
        }
    }

    /// Gives the kernel new buffers in place of received ones.
    #[inline]
    fn refill(&mut self, pool: &mut Pool) {
        let missing = self.held_goal - self.held_count;
        if missing < REFILL_BATCH.min(self.held_goal) {
            return;
        }
        self.refill_by(missing, pool);
    }

    fn refill_by(&mut self, missing: u32, pool: &mut Pool) {
        let count = missing.min(self.fill.free(missing));
        let mut scratch = std::mem::take(&mut self.scratch);
        pool.take_many(count as usize, &mut scratch);
        for frame in scratch.drain(..) {
            // The kernel cannot receive into a frame outside the arena.
            let Some(index) = self.arena.index_of(&frame) else { continue };
            self.fill.write(u64::from(index) * BUFFER_STEP);
            assert!(self.held[index as usize].is_none(), "one owner for each buffer");
            self.held[index as usize] = Some(frame);
            self.held_count += 1;
        }
        self.fill.submit();
        self.scratch = scratch;
    }

    /// Appends up to `limit` frames.
    #[inline]
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
        counters: &Counters,
    ) -> usize {
        let mut count = 0;
        let mut left = self.rx.available(limit as u32);
        if left == 0 {
            return 0;
        }
        while left > 0 && count < limit {
            left -= 1;
            let desc = self.rx.read();
            let mut frame = self.take(&desc);
            if let Some(told) = self.told
                && self.partial.is_none()
                && let Some(frame) = &mut frame
            {
                note_hints(frame, told);
            }
            if desc.options & CONTINUES == 0
                && self.partial.is_none()
                && !self.is_partial_bad
                && let Some(frame) = frame
            {
                frames.push(frame);
                count += 1;
            } else if let Some(frame) = self.join(frame, &desc, pool, counters) {
                frames.push(frame);
                count += 1;
            }
        }
        self.rx.release();
        count
    }

    /// The frame that a descriptor refers to, if the kernel holds it and the packet lies inside it.
    #[inline]
    fn take(&mut self, desc: &Desc) -> Option<Frame> {
        let (index, offset) = place(desc.addr);
        let mut frame = self.held.get_mut(index)?.take()?;
        self.held_count -= 1;
        let len = desc.len as usize;
        if offset != HEADROOM_BYTES || len > LINEAR_BYTES_MAX {
            return None;
        }
        frame.set_linear(len);
        Some(frame)
    }

    /// Joins the buffers of packets, and discards invalid packets.
    #[cold]
    fn join(
        &mut self,
        piece: Option<Frame>,
        desc: &Desc,
        pool: &mut Pool,
        counters: &Counters,
    ) -> Option<Frame> {
        match (piece, &mut self.partial) {
            (None, _) => self.is_partial_bad = true,
            (Some(piece), _) if self.is_partial_bad => pool.give(piece),
            (Some(piece), None) => self.partial = Some(piece),
            (Some(piece), Some(frame)) => {
                if let Err(piece) = frame.append(piece) {
                    pool.give(piece);
                    self.is_partial_bad = true;
                }
            }
        }
        if desc.options & CONTINUES != 0 {
            return None;
        }
        let frame = self.partial.take();
        if std::mem::take(&mut self.is_partial_bad) {
            counters.invalid.add(1);
            frame.into_iter().for_each(|frame| pool.give(frame));
            return None;
        }
        frame
    }
}

/// Moves the hints that the port's program wrote in front of the packet into the frame's metadata.
fn note_hints(frame: &mut Frame, told: SupportedHints) {
    let mut bytes = [0; DriverHints::BYTES];
    let mut front = frame.in_front_mut(DriverHints::BYTES);
    front.as_shared().read(&mut bytes);
    // Cleared, so that the next packet in this buffer does not inherit these hints.
    front.by_ref().part(0..4).clear();
    let DriverHints { timestamp_ns, hash, vlan } = DriverHints::parse(&bytes).unwrap_or_default();
    frame.set_rx_metadata(&RxMetadata {
        hash: hash.map(|(value, kind)| RxHash { value, kind: kind as u16 }),
        timestamp_ns,
        vlan: vlan.map(|(protocol, tci)| VlanTag { protocol, tci }),
        checksum: RxChecksum::None,
    });
    frame.tells_rx_metadata(told);
}

/// A receive queue.
pub(super) struct Queue {
    socket: Arc<Socket>,
    /// The socket's receiving side, until this is dropped.
    receiving: Option<Box<Receiving>>,
    counters: Arc<Counters>,
    is_busy_polled: bool,
    needs_no_wakeup: bool,
    /// Consecutive calls that found nothing.
    idle: u32,
    /// Statistics as last read.
    missed: u64,
}

impl Queue {
    pub(super) fn new(
        socket: &Arc<Socket>,
        counters: &Arc<Counters>,
        options: &Options,
        told: Option<SupportedHints>,
    ) -> io::Result<Queue> {
        let receiving = socket.take_receiving();
        let mut receiving =
            receiving.ok_or_else(|| io::Error::other("the queue is open already"))?;
        receiving.told = told;
        // Frames may arrive before a worker polls the queue; without buffers they would be lost.
        let mut pool = Pool::new(&receiving.arena);
        receiving.refill(&mut pool);
        Ok(Queue {
            socket: Arc::clone(socket),
            receiving: Some(receiving),
            counters: Arc::clone(counters),
            is_busy_polled: options.busy_poll.is_some(),
            needs_no_wakeup: !options.need_wakeup,
            idle: 0,
            missed: 0,
        })
    }

    /// Asks the kernel whether the interface still exists; with busy polling, also receives.
    #[cold]
    fn call(&self) -> io::Result<()> {
        match recv(self.socket.fd(), &mut [0; 0][..], RecvFlags::DONTWAIT) {
            Err(Errno::NXIO | Errno::NODEV) => Err(self.socket.gone()),
            // No frames, or the interface is down and may come up again.
            _ => Ok(()),
        }
    }
}

impl Rx for Queue {
    #[inline]
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let Some(receiving) = &mut self.receiving else { return Ok(0) };
        let count = receiving.receive(pool, frames, limit, &self.counters);
        receiving.refill(pool);
        if count > 0 {
            self.idle = 0;
            if !self.needs_no_wakeup && self.socket.is_zero_copy && receiving.fill.needs_wakeup() {
                self.call()?;
            }
            return Ok(count);
        }
        self.idle += 1;
        let wants_call = self.is_busy_polled
            || self.idle.is_multiple_of(CHECK_ROUNDS)
            || (self.socket.is_zero_copy && receiving.fill.needs_wakeup());
        if wants_call {
            self.call()?;
        }
        Ok(0)
    }

    fn arm(&mut self) -> Wake<'_> {
        // The next round asks whether the interface exists, because its removal wakes the worker,
        // too.
        self.idle = CHECK_ROUNDS - 1;
        let available = self.receiving.as_mut().map_or(0, |receiving| receiving.rx.available(1));
        match available {
            0 => Wake::Readable(self.socket.fd()),
            _ => Wake::Now,
        }
    }

    fn take_missed(&mut self) -> u64 {
        let Ok(statistics) = self.socket.statistics() else { return 0 };
        let missed = statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0);
        let since = missed.saturating_sub(self.missed);
        self.missed = missed;
        since
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(receiving) = self.receiving.take() {
            self.socket.put_receiving(receiving);
        }
    }
}

/// Frames that a queue gives the kernel to receive into: as many as its fill ring has descriptors,
/// but at most an eighth of the arena's frames, and half of them for all queues of the port.
pub(super) fn buffers(options: &Options, queues: u32, frames: usize) -> u32 {
    let share = (frames / QUEUE_SHARE).min(frames / PORT_SHARE / queues.max(1) as usize);
    options.fill_ring.min(share.max(1) as u32)
}

/// Divisor of the arena's frames: the largest share of one queue.
const QUEUE_SHARE: usize = 8;
/// Divisor of the arena's frames: the largest share of all queues of a port.
const PORT_SHARE: usize = 2;
/// Buffers given to the kernel at a time.
const REFILL_BATCH: u32 = 64;
const _: () =
    assert!(REFILL_BATCH <= super::options::RING_MIN, "the smallest ring has room for a batch");
/// Bytes from one buffer to the next.
const BUFFER_STEP: u64 = towpath_xdp::frame::arena::STRIDE_BYTES as u64;
/// Rounds between two checks of an idle queue whether its interface exists.
const CHECK_ROUNDS: u32 = 4096;
const _: () = assert!(CHECK_ROUNDS > 1, "most rounds make no call");
