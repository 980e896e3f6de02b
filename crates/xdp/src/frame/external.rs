//! Frames in an application's memory: the chunks of its UMEM, to receive into.
//!
//! The record of a frame is in this process's memory, as for any other, but the application can
//! write to the packet at any time. So only programs that check each access at run time, and the
//! application itself, read such a packet; all other code gets a copy ([`super::Pool::own`]). No
//! slice of it can be made: [`Body::own`] returns none, and its bytes are copied in and out
//! ([`crate::SharedBytes`]).
//!
//! Each chunk either belongs to the application or is a frame in use: [`Chunks::take`] never
//! returns the same one twice. Frames keep the memory alive for as long as they exist.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::rx_metadata::flag;
use super::{BUFFER_BYTES, Body, Frame, FrameError};
use crate::memory::Mapping;

/// Memory divided into chunks of [`CHUNK_BYTES`].
#[derive(Debug)]
pub struct Chunks {
    memory: Arc<Mapping>,
    /// By chunk: whether a frame in it is in use.
    is_taken: Vec<bool>,
    /// Per chunk: the [`Frame`] to reuse.
    at_rest: Vec<Option<Frame>>,
}

impl Chunks {
    /// Maps `len` bytes of a file from `start` on. The file must be sealed against shrinking.
    pub fn map(file: OwnedFd, start: u64, len: usize) -> io::Result<Chunks> {
        let memory = Arc::new(Mapping::over(file, start, len)?);
        let count = len / CHUNK_BYTES;
        let at_rest = std::iter::repeat_with(|| None).take(count).collect();
        Ok(Chunks { memory, is_taken: vec![false; count], at_rest })
    }

    /// An empty frame in a chunk; `None` if a frame in it is in use already, or there is no such
    /// chunk.
    #[inline]
    pub fn take(&mut self, number: usize) -> Option<Frame> {
        let is_taken = self.is_taken.get_mut(number)?;
        if std::mem::replace(is_taken, true) {
            return None;
        }
        Some(match self.at_rest[number].take() {
            Some(mut frame) => {
                frame.clear();
                frame
            }
            None => {
                let block = Mapping::block(&self.memory, number * CHUNK_BYTES, CHUNK_BYTES);
                Frame::over(block, flag::EXTERNAL)
            }
        })
    }

    /// The number of the chunk that a frame's packet is in, if it is one of these.
    #[inline]
    pub fn number_of(&self, frame: &Frame) -> Option<usize> {
        let offset = frame.head.addr().wrapping_sub(self.memory.base()) as usize;
        let number = offset / CHUNK_BYTES;
        (number < self.is_taken.len()).then_some(number)
    }

    /// Ends the use of a frame and returns its chunk to the application; returns the chunk's
    /// number. A frame in other memory is returned as the error.
    #[inline]
    pub fn put(&mut self, mut frame: Frame) -> Result<usize, Frame> {
        let Some(number) = self.number_of(&frame) else { return Err(frame) };
        // Frags are other frames.
        frame.strip(&mut Vec::new());
        self.is_taken[number] = false;
        self.at_rest[number] = Some(frame);
        Ok(number)
    }

    /// Appends numbers of chunks whose frames were dropped since the last call, and which can be
    /// taken again.
    #[inline]
    pub fn take_dropped(&mut self, numbers: &mut Vec<usize>) {
        if !self.memory.has_lost() {
            return;
        }
        for block in Mapping::lost(&self.memory) {
            let number = (block.addr() - self.memory.base()) as usize / CHUNK_BYTES;
            self.is_taken[number] = false;
            self.at_rest[number] = Some(Frame::over(block, flag::EXTERNAL));
            numbers.push(number);
        }
    }

    /// Number of frames in use.
    pub fn on_their_way(&self) -> usize {
        self.is_taken.iter().filter(|is_taken| **is_taken).count() - self.memory.lost_count()
    }
}

impl Body {
    /// Whether the packet is in an application's memory, which the application may write to at any
    /// time.
    #[inline]
    pub fn is_external(&self) -> bool {
        self.has(flag::EXTERNAL)
    }

    /// Makes the `len` bytes at `offset` in the buffer the packet.
    pub fn set_packet(&mut self, offset: usize, len: usize) -> Result<(), FrameError> {
        super::check_sizes(len, 0)?;
        // There may be no headroom: only transmitters see this frame.
        if offset + len > self.head.len() {
            return Err(FrameError::TooLong(len));
        }
        self.clear();
        (self.data_meta, self.data) = (offset as u32, offset as u32);
        self.data_end = (offset + len) as u32;
        Ok(())
    }

    /// Offset of the packet in its buffer.
    #[inline]
    pub fn data_offset(&self) -> usize {
        self.data as usize
    }
}

/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = BUFFER_BYTES;

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::super::{Pool, arena::Arena};
    use super::*;

    fn chunks(count: usize) -> (OwnedFd, Chunks) {
        let file = memfd_create("umem", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, (count * CHUNK_BYTES) as u64).unwrap();
        let chunks = Chunks::map(file.try_clone().unwrap(), 0, count * CHUNK_BYTES).unwrap();
        (file, chunks)
    }

    #[test]
    fn packets_lie_in_the_chunk() {
        let (file, mut chunks) = chunks(4);
        let mut frame = chunks.take(2).unwrap();
        frame.fill(&[7; 100]);
        assert!(frame.is_external() && frame.to_vec() == [7; 100]);
        let mut bytes = [0; 101];
        let at = 2 * CHUNK_BYTES + frame.data_offset();
        rustix::io::pread(&file, &mut bytes, at as u64).unwrap();
        assert_eq!((&bytes[..100], bytes[100]), (&[7; 100][..], 0));
        assert_eq!(chunks.put(frame).unwrap(), 2);
    }

    #[test]
    fn no_chunk_is_two_frames() {
        let (_file, mut chunks) = chunks(4);
        let frame = chunks.take(1).unwrap();
        assert!(chunks.take(1).is_none() && chunks.take(4).is_none());
        assert_eq!(chunks.on_their_way(), 1);
        drop(frame);
        let mut numbers = Vec::new();
        assert!(chunks.take(1).is_none(), "until somebody asks what was dropped");
        chunks.take_dropped(&mut numbers);
        assert_eq!((numbers, chunks.on_their_way()), (vec![1], 0));
        let frame = chunks.take(1).unwrap();
        drop(chunks);
        assert_eq!(frame.linear_len(), 0, "its memory is still there");
    }

    #[test]
    fn a_pool_uses_them_first_and_keeps_none() {
        let (_file, mut chunks) = chunks(4);
        let arena = Arena::new(64).unwrap();
        let mut pool = Pool::new(&arena);
        let mut external: Vec<Frame> = (0..4).map(|number| chunks.take(number).unwrap()).collect();
        pool.put_external(&mut external);
        let mut frames = Vec::new();
        assert_eq!(pool.take_many(2, &mut frames), 2);
        frames.push(pool.take().unwrap());
        assert!(frames.iter().all(|frame| frame.is_external()));
        // Further buffers of a frame are whole chunks.
        let long = pool.frame(&[1; 9000]).unwrap().unwrap();
        assert!(long.is_external() && long.frag_count() == 2);
        pool.take_external(&mut external);
        assert!(external.is_empty());
        assert_eq!(pool.take_many(2, &mut frames), 2);
        assert!(!frames[3].is_external());
        let mut own = frames.remove(0);
        own.fill(&[3; 60]);
        pool.own(&mut own);
        assert_eq!((own.is_external(), own.to_vec()), (false, vec![3; 60]));
        pool.give(long);
        pool.give(own);
        pool.give_all(&mut frames);
        drop(pool);
        assert_eq!((arena.free(), chunks.on_their_way()), (64, 0));
    }
}
