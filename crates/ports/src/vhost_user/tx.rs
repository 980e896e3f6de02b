//! Transmission to the guest: each frame is copied into buffers that the driver made available.

use std::io;
use std::sync::Arc;

use towpath_engine::offload::prepare_xmit;
use towpath_engine::port::Tx;
use towpath_xdp::frame::{ETH_HLEN, scatter};
use towpath_xdp::{Frame, Pool, SharedBytes};

use super::Shared;
use super::burst::{Burst, Direction, Violation};
use super::feature::MRG_RXBUF;
use super::memory::{Memory, Piece};
use super::run::{Buffer, Run, Wanted};
use super::vring::Active;
use crate::vnet;

pub(super) struct Transmitter {
    shared: Arc<Shared>,
    burst: Burst,
    /// Frames already copied.
    sent: Vec<Frame>,
    /// Segments of a frame.
    pieces: Vec<Frame>,
    /// Frames by queue.
    queues: Vec<Vec<Frame>>,
    /// Queues whose driver may want an interrupt.
    unsignalled: u64,
}

/// The reason why a frame was not put into buffers.
enum Refused {
    /// Too few buffers are available now.
    Full,
    /// No buffer is long enough, or the frame is inconsistent.
    Never(io::Error),
}

impl Transmitter {
    pub(super) fn new(shared: &Arc<Shared>) -> Transmitter {
        Transmitter {
            shared: Arc::clone(shared),
            burst: Burst::default(),
            sent: Vec::new(),
            pieces: Vec::new(),
            queues: Vec::new(),
            unsignalled: 0,
        }
    }

    /// Sends frames to one queue, from the front.
    fn transmit_to(
        &mut self,
        pair: u32,
        frames: &mut Vec<Frame>,
        pool: &mut Pool,
    ) -> io::Result<()> {
        let Self { shared, burst, sent, pieces, unsignalled, .. } = self;
        let vring = shared.guest_rx(pair);
        let mut state = vring.lock();
        let Some(active) = state.active.as_mut().filter(|_| vring.is_running()) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        *unsignalled |= 1 << pair;
        let mut count = put_run(active, frames);
        let mut buffers = count;
        burst.clear();
        let mut result = Ok(());
        if count < frames.len() {
            let mut filler = Filler::new(active, burst);
            filler.collect(frames.len() - count);
            while let Some(frame) = frames.get(count) {
                match filler.put(frame, pool, pieces) {
                    Ok(()) => count += 1,
                    Err(Refused::Full) => break,
                    Err(Refused::Never(why)) => {
                        result = Err(why);
                        break;
                    }
                }
            }
            buffers += filler.complete();
        }
        vring.take_room(buffers);
        if let Some(violation) = burst.violation {
            vring.break_down(&mut state, violation);
        }
        drop(state);
        if count < frames.len() {
            sent.extend(frames.drain(..count));
            pool.give_all(sent);
        } else {
            pool.give_all(frames);
        }
        result
    }

    /// Spreads frames over the guest's queues, each flow to one queue.
    fn spread(&mut self, open: &[u32], frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let mut queues = std::mem::take(&mut self.queues);
        queues.resize_with(open.len().max(queues.len()), Vec::new);
        let shared = &self.shared;
        scatter(frames, &mut queues[..open.len()], |frame| shared.place(frame, open));
        let mut result = Ok(());
        for (&pair, queue) in open.iter().zip(&mut queues) {
            if !queue.is_empty() && result.is_ok() {
                result = self.transmit_to(pair, queue, pool);
            }
            // The frame that an error concerns comes first.
            let at = if result.is_err() && !queue.is_empty() { 0 } else { frames.len() };
            frames.splice(at..at, queue.drain(..));
        }
        self.queues = queues;
        result
    }
}

impl Tx for Transmitter {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        let mut open = [0; super::QUEUES_MAX as usize];
        match self.shared.open_to_guest(&mut open) {
            [] => Err(io::ErrorKind::NotConnected.into()),
            [pair] => self.transmit_to(*pair, frames, pool),
            open => self.spread(open, frames, pool),
        }
    }

    /// Unlimited if the guest does not receive, so that frames do not wait.
    fn credit(&mut self) -> usize {
        let mut open = [0; super::QUEUES_MAX as usize];
        match self.shared.open_to_guest(&mut open) {
            [] => usize::MAX,
            // The queue of each frame is not known yet.
            open => {
                let rooms = open.iter().map(|&pair| self.shared.guest_rx(pair).room());
                rooms.min().unwrap_or(0)
            }
        }
    }

    fn flush(&mut self, _pool: &mut Pool) -> io::Result<()> {
        let mut left = std::mem::take(&mut self.unsignalled);
        while left != 0 {
            self.shared.guest_rx(left.trailing_zeros()).lock().signal();
            left &= left - 1;
        }
        Ok(())
    }
}

/// Puts frames from the front into simple buffers, as long as frames need no offload work and fit
/// into one buffer. Returns their number.
fn put_run(active: &mut Active, frames: &[Frame]) -> usize {
    let Active { ring, memory, features, log, .. } = active;
    if log.is_some() {
        // Writes must be logged.
        return 0;
    }
    let header = features.header_bytes();
    let mut run = Run::new();
    let bytes = ((header + ETH_HLEN) as u32, u32::MAX);
    ring.look(memory, &Wanted::new(frames.len(), Direction::ToGuest, bytes), &mut run);
    let mut count = 0;
    for (frame, Buffer { place, written, .. }) in frames.iter().zip(&mut run) {
        let fits = |bytes: &&[u8]| header + bytes.len() <= place.len() as usize;
        let Some(bytes) = frame.plain_linear().filter(fits) else { break };
        if header == vnet::BYTES_WITH_BUFFERS {
            place.write_behind(ONE_BUFFER, bytes.into());
        } else {
            place.write_behind([0; vnet::BYTES], bytes.into());
        }
        *written = (header + bytes.len()) as u32;
        count += 1;
    }
    if count > 0 {
        ring.give_back(&run[..count]);
    }
    count
}

/// Puts frames into a ring's buffers.
struct Filler<'a> {
    active: &'a mut Active,
    burst: &'a mut Burst,
    /// Number of buffers filled so far.
    used: usize,
    header: usize,
}

impl<'a> Filler<'a> {
    fn new(active: &'a mut Active, burst: &'a mut Burst) -> Filler<'a> {
        let header = active.features.header_bytes();
        Filler { active, burst, used: 0, header }
    }

    /// Reads up to `limit` further buffers.
    fn collect(&mut self, limit: usize) {
        if self.burst.violation.is_none() {
            let Active { ring, memory, .. } = &mut *self.active;
            ring.collect(memory, limit, Direction::ToGuest, self.burst);
        }
    }

    /// Returns the filled buffers; the rest count as unread again. Returns the number of filled
    /// buffers.
    fn complete(self) -> usize {
        let filled = &self.burst.chains[..self.used];
        if !self.burst.chains.is_empty() {
            self.active.complete(filled);
        }
        self.used
    }

    /// Puts any frame into buffers, as a whole or not at all. Offloads that the guest does not
    /// support are done here.
    fn put(
        &mut self,
        frame: &Frame,
        pool: &mut Pool,
        pieces: &mut Vec<Frame>,
    ) -> Result<(), Refused> {
        let offload = frame.offload();
        let features = self.active.features.takes(offload.and_then(|offload| offload.gso));
        let is_taken = offload.is_none_or(|offload| {
            let segments = features.tx_tso && features.tx_checksum;
            features.tx_checksum && (offload.gso.is_none() || segments)
        });
        if is_taken {
            let header = vnet::emit(offload.as_ref(), frame.len());
            return self.put_pieces(&header, frame.shared_pieces(), frame.len());
        }
        let copy = pool.copy(frame).ok_or_else(no_memory)?;
        match prepare_xmit(copy, &features, pool, pieces) {
            Ok(_) => {}
            Err((copy, why)) => {
                pool.give(copy);
                let why = io::Error::other(format!("it cannot be cut: {}", why.name()));
                return Err(Refused::Never(why));
            }
        }
        let before = self.used;
        let mut put = || {
            pieces.iter().try_for_each(|piece| {
                let offload = piece.offload();
                let header = vnet::emit(offload.as_ref(), piece.len());
                self.put_pieces(&header, piece.shared_pieces(), piece.len())
            })
        };
        let result = put();
        let has_begun = self.used > before;
        if result.is_err() {
            self.used = before;
        }
        pool.give_all(pieces);
        match result {
            Err(Refused::Full) if has_begun => Err(too_few()),
            result => result,
        }
    }

    /// Puts a header and a packet into as many buffers as needed.
    fn put_pieces<'b>(
        &mut self,
        header: &[u8; vnet::BYTES],
        packet: impl Iterator<Item = SharedBytes<'b>>,
        len: usize,
    ) -> Result<(), Refused> {
        let chains = self.gather((self.header + len) as u64)?;
        let mut full = [0; vnet::BYTES_WITH_BUFFERS];
        full[..vnet::BYTES].copy_from_slice(header);
        full[vnet::BYTES..].copy_from_slice(&(chains.len() as u16).to_le_bytes());
        let pieces = self.burst.pieces_of(chains.clone());
        let mut writer = Writer { memory: &self.active.memory, pieces, at: 0 };
        writer.write(SharedBytes::from(&full[..self.header]));
        packet.for_each(|piece| writer.write(piece));
        let mut left = (self.header + len) as u64;
        for chain in &mut self.burst.chains[chains.clone()] {
            chain.written = left.min(chain.bytes) as u32;
            left -= u64::from(chain.written);
        }
        debug_assert_eq!(left, 0, "there was room");
        self.used = chains.end;
        self.mark(chains);
        Ok(())
    }

    /// Takes buffers with room for `bytes` bytes; returns their indexes.
    fn gather(&mut self, bytes: u64) -> Result<std::ops::Range<usize>, Refused> {
        let start = self.used;
        let (mut end, mut room) = (start, 0);
        while room < bytes {
            if end == self.burst.chains.len() {
                self.collect(MORE);
            }
            let Some(chain) = self.burst.chains.get(end) else {
                return Err(if end > start { too_few() } else { Refused::Full });
            };
            if end == start && chain.bytes < self.header as u64 {
                self.burst.violation.get_or_insert(Violation::Short(chain.bytes));
                return Err(Refused::Full);
            }
            room += chain.bytes;
            end += 1;
            if room < bytes && !self.active.features.has(MRG_RXBUF) {
                let why = "the guest's buffers are shorter than the frame";
                return Err(Refused::Never(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
        }
        Ok(start..end)
    }

    /// Marks written pages, while the monitor asks for it.
    fn mark(&self, chains: std::ops::Range<usize>) {
        let Some(log) = &self.active.log else { return };
        for chain in &self.burst.chains[chains] {
            let mut left = u64::from(chain.written);
            for &piece in self.burst.pieces(chain) {
                let part = left.min(u64::from(piece.len));
                log.mark(self.active.memory.guest_address(piece), part);
                left -= part;
            }
        }
    }
}

/// Writes pieces one after the other.
struct Writer<'a> {
    memory: &'a Memory,
    pieces: &'a [Piece],
    /// Bytes of the first piece already written.
    at: usize,
}

impl Writer<'_> {
    fn write(&mut self, bytes: SharedBytes<'_>) {
        let mut done = 0;
        while let Some(&piece) = self.pieces.first().filter(|_| done < bytes.len()) {
            let part = (piece.len as usize - self.at).min(bytes.len() - done);
            self.memory.write(piece, self.at, bytes.part(done..done + part));
            done += part;
            self.at += part;
            if self.at == piece.len as usize {
                (self.pieces, self.at) = (&self.pieces[1..], 0);
            }
        }
    }
}

/// The error for this frame; later frames may fit.
fn too_few() -> Refused {
    let why = "the guest has too few buffers for the frame";
    Refused::Never(io::Error::new(io::ErrorKind::StorageFull, why))
}

fn no_memory() -> Refused {
    Refused::Never(io::ErrorKind::OutOfMemory.into())
}

/// The header of a frame in one buffer, without offload work.
const ONE_BUFFER: [u8; vnet::BYTES_WITH_BUFFERS] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
/// Buffers read at a time when a frame needs more.
const MORE: usize = 16;
