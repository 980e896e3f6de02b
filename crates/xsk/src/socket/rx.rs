//! Receiving: from frames into chunks (`xsk_rcv`).
//!
//! The fill ring never asks for a wake-up (`XDP_RING_NEED_WAKEUP`); `tx` arms the tx ring.

use parking_lot::MutexGuard;
use towpath_engine::QueueId;
use towpath_ring::{Desc, Mapped, Producer};
use towpath_xdp::Frame;

use super::Bound;
use crate::pool::{BufferPool, Fill};
use crate::umem::Umem;

/// The receiving side of a socket.
#[derive(Debug)]
pub(super) struct Rx {
    pub(super) ring: Producer<Mapped<Desc>>,
    /// Not delivered: no chunk, or too long.
    pub(super) dropped: u64,
    /// Not delivered: the ring was full.
    pub(super) ring_full: u64,
    /// Delivered.
    pub(super) frames: u64,
    /// Delivered in place.
    pub(super) without_copy: u64,
    /// Entries were written since the last flush.
    is_dirty: bool,
    chunks: Vec<u64>,
    /// A burst of entries of the fill ring.
    entries: Box<[u64; BURST]>,
}

impl Rx {
    pub(super) fn new(ring: Mapped<Desc>) -> Rx {
        let ring = Producer::new(ring);
        Rx {
            ring,
            dropped: 0,
            ring_full: 0,
            frames: 0,
            without_copy: 0,
            is_dirty: false,
            chunks: Vec::new(),
            entries: Box::new([0; BURST]),
        }
    }

    /// `xsk_rcv` in copy mode; returns whether the frame was delivered.
    #[inline]
    pub(super) fn receive(&mut self, frame: &Frame, pool: &BufferPool, fill: &mut Fill) -> bool {
        let umem = &*pool.umem;
        let len = frame.len();
        let is_long = len > umem.frame_size() as usize;
        if is_long && !pool.is_multi_buffer {
            self.dropped += 1;
            return false;
        }
        if is_long || frame.has_frags() {
            return self.receive_pieces(frame, umem, fill);
        }
        let Some(chunk) = fill.take(umem) else {
            self.dropped += 1;
            return false;
        };
        if self.ring.free(1) == 0 {
            self.ring_full += 1;
            fill.returned.push(chunk);
            return false;
        }
        let data = umem.data_at(chunk);
        let metadata = frame.shared_metadata();
        let mut written = umem.memory.write_shared(data, frame.shared_linear());
        if !metadata.is_empty() {
            let before = data - metadata.len() as u64;
            written = written.and(umem.memory.write_shared(before, metadata));
        }
        if written.is_err() {
            self.dropped += 1;
            return false;
        }
        let options = super::hints::tell(frame, umem, chunk, data);
        self.ring.write(Desc { addr: umem.handle(chunk), len: len as u32, options });
        true
    }

    /// Receives the first frames of a burst, as far as each needs one chunk and one descriptor and
    /// is certain to be delivered. The rings are checked once for all of them. Returns their
    /// number; [`Rx::receive`] decides about the next frame.
    #[inline]
    fn receive_first(&mut self, frames: &[Frame], umem: &Umem, fill: &mut Fill) -> usize {
        let Some(memory) = umem.memory.mapping() else { return 0 };
        if !fill.returned.is_empty() || umem.tells_rx_metadata() {
            return 0;
        }
        let wanted = frames.len().min(BURST);
        let count = fill.ring.peek_burst(&mut self.entries[..wanted]);
        let (entries, layout) = (&self.entries[..count], umem.layout());
        let longest = umem.frame_size() as usize;
        let prefetch = |entry| {
            if let Some(chunk) = layout.chunk_at(entry) {
                memory.prefetch(layout.data_at(chunk));
            }
        };
        let mut later = entries.iter().skip(FETCHED_AHEAD);
        let descs = frames.iter().zip(entries).map_while(|(frame, &entry)| {
            later.next().copied().map(prefetch);
            let bytes = frame.plain_linear().filter(|bytes| bytes.len() <= longest)?;
            let chunk = layout.chunk_at(entry)?;
            memory.write(layout.data_at(chunk), bytes);
            Some(Desc { addr: layout.handle(chunk), len: bytes.len() as u32, options: 0 })
        });
        let done = self.ring.write_burst(count, descs);
        fill.ring.advance(done as u32);
        done
    }

    /// Receives frames of a burst, each whole or not at all; returns their number.
    #[inline]
    fn receive_all(&mut self, frames: &[Frame], pool: &BufferPool, fill: &mut Fill) -> usize {
        let (mut count, mut rest) = (0, frames);
        while !rest.is_empty() {
            let first = self.receive_first(rest, &pool.umem, fill);
            count += first;
            rest = &rest[first..];
            if let Some((frame, later)) = rest.split_first() {
                count += usize::from(self.receive(frame, pool, fill));
                rest = later;
            }
        }
        self.note(count);
        count
    }

    /// Publishes the delivered packets to the application; returns whether it wants to be woken.
    #[inline]
    fn show(&mut self, fill: &mut Fill) -> bool {
        fill.ring.release();
        if !std::mem::take(&mut self.is_dirty) {
            return false;
        }
        self.ring.submit();
        self.ring.claim_wakeup()
    }

    /// Counts delivered packets.
    #[inline]
    pub(super) fn note(&mut self, count: usize) {
        self.frames += count as u64;
        self.is_dirty |= count > 0;
    }

    /// Receives a frame that takes several chunks, or is in several buffers.
    #[cold]
    fn receive_pieces(&mut self, frame: &Frame, umem: &Umem, fill: &mut Fill) -> bool {
        let (len, size) = (frame.len(), umem.frame_size() as usize);
        let count = len.div_ceil(size).max(1);
        let mut chunks = std::mem::take(&mut self.chunks);
        let is_delivered = if !fill.take_all(umem, count, &mut chunks) {
            self.dropped += 1;
            false
        } else if (self.ring.free(count as u32) as usize) < count {
            self.ring_full += 1;
            fill.returned.append(&mut chunks);
            false
        } else if copy_pieces(frame, umem, &chunks).is_err() {
            self.dropped += 1;
            false
        } else {
            let first = chunks.first().copied().unwrap_or(0);
            let mut told = super::hints::tell(frame, umem, first, umem.data_at(first));
            for (number, &chunk) in chunks.iter().enumerate() {
                let part = size.min(len - number * size) as u32;
                let more = if number + 1 < count { Desc::CONTINUES } else { 0 };
                let options = std::mem::take(&mut told) | more;
                self.ring.write(Desc { addr: umem.handle(chunk), len: part, options });
            }
            true
        };
        self.chunks = chunks;
        is_delivered
    }
}

/// Spreads a frame over chunks; its metadata goes in front of the first.
fn copy_pieces(frame: &Frame, umem: &Umem, chunks: &[u64]) -> std::io::Result<()> {
    let size = u64::from(umem.frame_size());
    let metadata = frame.shared_metadata();
    if let Some(&first) = chunks.first() {
        umem.memory.write_shared(umem.data_at(first) - metadata.len() as u64, metadata)?;
    }
    let mut at = 0;
    for mut piece in frame.shared_pieces() {
        while !piece.is_empty() {
            let Some(&chunk) = chunks.get((at / size) as usize) else { return Ok(()) };
            let fits = (piece.len() as u64).min(size - at % size) as usize;
            umem.memory.write_shared(umem.data_at(chunk) + at % size, piece.part(0..fits))?;
            at += fits as u64;
            piece = piece.part(fits..piece.len());
        }
    }
    Ok(())
}

impl Bound {
    /// Delivers frames as far as possible; returns their number.
    #[inline]
    pub(super) fn deliver(&self, from: QueueId, frames: &[Frame]) -> usize {
        let Some((mut fill, mut rx)) = self.receiving() else { return 0 };
        if from != self.pool.queue {
            return 0;
        }
        rx.receive_all(frames, &self.pool, &mut fill)
    }

    /// Publishes the delivered packets; returns whether the application wants to be woken.
    #[inline]
    pub(super) fn flush(&self) -> bool {
        self.receiving().is_some_and(|(mut fill, mut rx)| rx.show(&mut fill))
    }

    /// Delivers and publishes packets in one step: taking locks costs as much as several packets.
    #[inline]
    pub(super) fn deliver_all(&self, from: QueueId, frames: &[Frame]) -> (usize, bool) {
        let Some((mut fill, mut rx)) = self.receiving() else { return (0, false) };
        if from != self.pool.queue {
            return (0, rx.show(&mut fill));
        }
        let count = rx.receive_all(frames, &self.pool, &mut fill);
        (count, rx.show(&mut fill))
    }

    /// Locks the rings that receiving needs.
    #[inline]
    fn receiving(&self) -> Option<(MutexGuard<'_, Fill>, MutexGuard<'_, Rx>)> {
        let rx = self.rx.as_ref()?;
        Some((self.pool.fill(), rx.lock()))
    }
}

/// Most frames delivered at a time; bursts of workers are not longer.
const BURST: usize = 64;
/// Number of packets by which chunks are fetched before they are written to. Chunks are usually a
/// page long, so that all their packets fall into the same set of the first-level cache, which has
/// room for a dozen lines.
const FETCHED_AHEAD: usize = 3;
