//! Receiving: from frames into chunks (`xsk_rcv`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_engine::Place;
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
    /// Entries were written since the last flush.
    is_dirty: bool,
    chunks: Vec<u64>,
}

impl Rx {
    pub(super) fn new(ring: Mapped<Desc>) -> Rx {
        let ring = Producer::new(ring);
        Rx { ring, dropped: 0, ring_full: 0, frames: 0, is_dirty: false, chunks: Vec::new() }
    }

    /// `xsk_rcv` in copy mode; gives whether it was delivered.
    #[inline]
    fn receive(&mut self, frame: &Frame, pool: &BufferPool, fill: &mut Fill) -> bool {
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
        let metadata = frame.metadata();
        let mut written = umem.memory.write(data, frame.linear());
        if !metadata.is_empty() {
            written = written.and(umem.memory.write(data - metadata.len() as u64, metadata));
        }
        if written.is_err() {
            self.dropped += 1;
            return false;
        }
        self.ring.write(Desc { addr: umem.handle(chunk), len: len as u32, options: 0 });
        true
    }

    /// A frame that takes several chunks, or is in several buffers.
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
            for (number, &chunk) in chunks.iter().enumerate() {
                let part = size.min(len - number * size) as u32;
                let options = if number + 1 < count { Desc::CONTINUES } else { 0 };
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
    let metadata = frame.metadata();
    if let Some(&first) = chunks.first() {
        umem.memory.write(umem.data_at(first) - metadata.len() as u64, metadata)?;
    }
    let mut at = 0;
    for mut piece in frame.pieces() {
        while !piece.is_empty() {
            let Some(&chunk) = chunks.get((at / size) as usize) else { return Ok(()) };
            let fits = (piece.len() as u64).min(size - at % size);
            let (part, rest) = piece.split_at(fits as usize);
            umem.memory.write(umem.data_at(chunk) + at % size, part)?;
            at += fits;
            piece = rest;
        }
    }
    Ok(())
}

impl Bound {
    /// Delivers what can be; gives how many.
    #[inline]
    pub(super) fn deliver(&self, from: Place, frames: &[Frame]) -> usize {
        let Some(rx) = &self.rx else { return 0 };
        if from != self.pool.place {
            return 0;
        }
        let mut fill = self.pool.fill();
        let mut rx = lock(rx);
        let mut count = 0;
        for frame in frames {
            count += usize::from(rx.receive(frame, &self.pool, &mut fill));
        }
        rx.frames += count as u64;
        rx.is_dirty |= count > 0;
        count
    }

    /// Shows what was delivered; gives whether the application wants to be woken.
    #[inline]
    pub(super) fn flush(&self) -> bool {
        let Some(rx) = &self.rx else { return false };
        let mut fill = self.pool.fill();
        let mut rx = lock(rx);
        fill.ring.release();
        if !std::mem::take(&mut rx.is_dirty) {
            return false;
        }
        rx.ring.submit();
        rx.ring.claim_wakeup()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
