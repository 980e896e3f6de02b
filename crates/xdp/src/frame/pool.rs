//! A worker's free frames, exchanged with the arena in batches.

use std::sync::Arc;

use super::arena::Arena;
use super::rx_metadata::flag;
use super::tail_unsafe::move_last;
use super::{BUFFER_BYTES, Frame, FrameError, LINEAR_BYTES_MAX};

/// Free frames of one thread.
#[derive(Debug)]
pub struct Pool {
    arena: Arc<Arena>,
    free: Vec<Frame>,
    /// Frames in an application's memory ([`super::external`]), to be used first.
    external: Vec<Frame>,
}

impl Pool {
    /// An empty pool over an arena.
    pub fn new(arena: &Arc<Arena>) -> Pool {
        Pool {
            arena: Arc::clone(arena),
            free: Vec::with_capacity(KEEP + 2 * BATCH),
            external: Vec::new(),
        }
    }

    /// The arena of its frames.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// A frame without a packet; `None` if the arena is used up.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        if let Some(frame) = self.external.pop() {
            return Some(frame);
        }
        self.take_own()
    }

    /// A frame of the arena.
    #[inline]
    fn take_own(&mut self) -> Option<Frame> {
        if self.free.is_empty() {
            self.arena.take(BATCH, &mut self.free);
        }
        self.free.pop()
    }

    /// Appends up to `count` frames without packets to `out`; returns their number, which is less
    /// only if the arena is used up.
    #[inline]
    pub fn take_many(&mut self, count: usize, out: &mut Vec<Frame>) -> usize {
        if self.external.is_empty() {
            return self.take_many_own(count, out);
        }
        let external = count.min(self.external.len());
        out.extend(self.external.drain(self.external.len() - external..));
        external + self.take_many_own(count - external, out)
    }

    #[inline]
    fn take_many_own(&mut self, count: usize, out: &mut Vec<Frame>) -> usize {
        if self.free.len() < count {
            self.refill(count.max(BATCH));
        }
        let taken = count.min(self.free.len());
        move_last(&mut self.free, taken, out);
        taken
    }

    /// Takes frames from the arena. Another thread may have used them, so the cache lines written
    /// first are prefetched for all of them.
    #[cold]
    fn refill(&mut self, count: usize) {
        let before = self.free.len();
        self.arena.take(count, &mut self.free);
        self.free[before..].iter().for_each(|frame| frame.expect_writes());
    }

    /// Takes a frame back, its frags included.
    #[inline]
    pub fn give(&mut self, mut frame: Frame) {
        if frame.has(flag::FRAGS | flag::SPARE | flag::TX_REQUEST) {
            self.take_from(&mut frame);
        }
        // Frames in other memory are dropped, which returns it to its owner.
        if !frame.has(flag::OWNER) {
            self.free.push(frame);
        }
        if self.free.len() > KEEP {
            self.arena.give(BATCH, &mut self.free);
        }
    }

    /// Takes frames back, their frags included, and leaves the vector empty.
    #[inline]
    pub fn give_all(&mut self, frames: &mut Vec<Frame>) {
        let flags = frames.iter().fold(0, |flags, frame| flags | frame.flags);
        if flags & flag::UNUSUAL != 0 {
            self.take_apart(frames);
        }
        self.free.append(frames);
        if self.free.len() > KEEP {
            self.arena.give(self.free.len() - KEEP / 2, &mut self.free);
        }
    }

    /// Takes frames' frags, and drops frames in other memory ([`Pool::give`]).
    #[cold]
    fn take_apart(&mut self, frames: &mut Vec<Frame>) {
        frames.iter_mut().for_each(|frame| self.take_from(frame));
        frames.retain(|frame| !frame.has(flag::OWNER));
    }

    /// Takes a frame's frags. A request for its TX timestamp is answered as not sent.
    #[cold]
    fn take_from(&mut self, frame: &mut Frame) {
        frame.strip(&mut self.free);
        if let Some(number) = frame.take_tx_request() {
            self.arena.tx_timestamps().end(number, None);
        }
    }

    /// A frame with this packet, split as [`Frame::new`] does; `None` when the arena is used up.
    pub fn frame(&mut self, packet: &[u8]) -> Result<Option<Frame>, FrameError> {
        super::check_sizes(packet.len(), 0)?;
        let (linear, rest) = packet.split_at(packet.len().min(LINEAR_BYTES_MAX));
        let Some(mut frame) = self.take() else { return Ok(None) };
        frame.fill(linear);
        for part in rest.chunks(BUFFER_BYTES) {
            let Some(mut piece) = self.take_own() else {
                self.give(frame);
                return Ok(None);
            };
            piece.buffer().part(0..part.len()).write(part);
            frame.push_frag(piece, 0, part.len());
        }
        Ok(Some(frame))
    }

    /// A copy of a frame with its metadata; `None` if the arena is used up.
    pub fn copy(&mut self, frame: &Frame) -> Option<Frame> {
        let mut copy = self.take_own()?;
        if frame.head.len() <= BUFFER_BYTES {
            copy.copy_linear(frame);
        } else {
            self.give(copy);
            copy = Frame::linear_copy(frame);
        }
        for bytes in frame.shared_pieces().skip(1) {
            let Some(mut piece) = self.take_own() else {
                self.give(copy);
                return None;
            };
            piece.head.shared_mut().part(0..bytes.len()).copy_from(bytes);
            copy.push_frag(piece, 0, bytes.len());
        }
        Some(copy)
    }

    /// Makes frames in an application's memory ([`super::external`]) be used first, until
    /// [`Pool::take_external`]. Leaves the vector empty.
    #[inline]
    pub fn put_external(&mut self, frames: &mut Vec<Frame>) {
        self.external.append(frames);
    }

    /// Returns the unused frames in application memory.
    #[inline]
    pub fn take_external(&mut self, frames: &mut Vec<Frame>) {
        frames.append(&mut self.external);
    }

    /// Replaces a frame in an application's memory by a copy in the arena, or in memory of its own
    /// if the arena is used up.
    pub fn own(&mut self, frame: &mut Frame) {
        if frame.is_external() {
            let copy = self.copy(frame).unwrap_or_else(|| Frame::linear_copy(frame));
            self.replace(frame, copy);
        }
    }

    /// Linearises a frame. If its buffer is too small, the packet moves to a larger one of its own,
    /// with the usual headroom and tailroom (`pskb_expand_head`, `skb_linearize`).
    pub fn linearize(&mut self, frame: &mut Frame) {
        let len = frame.len();
        if frame.has_frags() && frame.pull_data(len).is_err() {
            let linear = Frame::linear_copy(frame);
            self.replace(frame, linear);
        }
    }

    /// Replaces a frame by its copy, which takes over a TX-timestamp request.
    fn replace(&mut self, frame: &mut Frame, mut copy: Frame) {
        if let Some(number) = frame.take_tx_request() {
            copy.set_tx_request(number);
        }
        self.give(std::mem::replace(frame, copy));
    }

    /// Number of free frames held.
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Whether it holds no free frames.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }
}

/// Returns the frames to the arena.
impl Drop for Pool {
    fn drop(&mut self) {
        self.arena.give(self.free.len(), &mut self.free);
    }
}

/// Frames moved between a pool and its arena at a time.
const BATCH: usize = 128;
/// Most free frames kept; the rest is returned to the arena.
const KEEP: usize = 1024;
