//! The memory of all frames of a process: one memfd, divided into buffers.
//!
//! A memfd can be shared: with applications (AF_XDP sockets), with guests, with the kernel.
//! Towpath's records of frames are outside of it, where no other process can write.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::tail_unsafe::move_last;
use super::{BUFFER_BYTES, Frame};
use crate::memory::Mapping;
use crate::tx_timestamps::TxTimestamps;

/// Frames of a process; workers hold some of them in [`super::Pool`]s.
#[derive(Debug)]
pub struct Arena {
    memory: Arc<Mapping>,
    free: Mutex<Vec<Frame>>,
    total: usize,
    tx_timestamps: Arc<TxTimestamps>,
}

impl Arena {
    /// Allocates memory for `frames` frames ([`STRIDE_BYTES`] each), in huge pages if available.
    pub fn new(frames: usize) -> std::io::Result<Arc<Arena>> {
        let frames = frames.max(1);
        let memory = Mapping::new(frames * STRIDE_BYTES)?;
        let blocks = Mapping::blocks(&memory, BUFFER_BYTES, STRIDE_BYTES).take(frames);
        let free = blocks.map(|block| Frame::over(block, 0)).collect();
        let tx_timestamps = Arc::default();
        Ok(Arc::new(Arena { memory, free: Mutex::new(free), total: frames, tx_timestamps }))
    }

    /// Allocates the memory's pages now, rather than at the first access to each: 20 ms for 64 MiB.
    ///
    /// # Errors
    ///
    /// Fails with kernels before 5.14 (`MADV_POPULATE_WRITE`), or if there is too little memory;
    /// pages are then allocated at the first access.
    pub fn populate(&self) -> std::io::Result<()> {
        self.memory.populate()
    }

    /// Returns the memory of free frames to the system. The frames remain usable, with zeroed
    /// contents.
    ///
    /// # Errors
    ///
    /// Fails if the system does not support it (`fallocate`, `FALLOC_FL_PUNCH_HOLE`); the memory is
    /// then kept.
    pub fn trim(&self) -> std::io::Result<()> {
        let free = self.free.lock();
        let base = self.memory.base();
        let mut offsets: Vec<usize> =
            free.iter().map(|frame| (frame.head.addr() - base) as usize).collect();
        offsets.sort_unstable();
        // Frames that lie side by side share pages.
        for neighbours in offsets.chunk_by(|one, next| next - one == STRIDE_BYTES) {
            let (first, last) = (neighbours[0], neighbours[neighbours.len() - 1]);
            self.memory.discard(first..last + BUFFER_BYTES)?;
        }
        Ok(())
    }

    /// Requests for TX timestamps.
    pub fn tx_timestamps(&self) -> &Arc<TxTimestamps> {
        &self.tx_timestamps
    }

    /// Total number of frames.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Number of free frames in the arena. The others are in pools and in flight.
    pub fn free(&self) -> usize {
        let free = self.free.lock();
        free.len() + self.memory.lost_count()
    }

    /// Whether the memory is in huge pages.
    pub fn has_huge_pages(&self) -> bool {
        self.memory.has_huge_pages()
    }

    /// The memory, to share it; buffers start at offset 0 and lie [`STRIDE_BYTES`] apart.
    pub fn memfd(&self) -> BorrowedFd<'_> {
        self.memory.memfd()
    }

    /// Address of the first buffer in this process.
    pub fn base(&self) -> u64 {
        self.memory.base()
    }

    /// Number of the buffer of a frame's linear part; `None` if it is not in the arena.
    #[inline]
    pub fn index_of(&self, frame: &Frame) -> Option<u32> {
        let offset = frame.head.addr().wrapping_sub(self.memory.base());
        let index = offset / STRIDE_BYTES as u64;
        (index < self.total as u64).then_some(index as u32)
    }

    /// Appends up to `count` free frames.
    pub(super) fn take(&self, count: usize, out: &mut Vec<Frame>) {
        let mut free = self.free.lock();
        if free.len() < count {
            // Buffers of frames that were dropped without being returned.
            free.extend(Mapping::lost(&self.memory).map(|block| Frame::over(block, 0)));
        }
        let count = count.min(free.len());
        move_last(&mut free, count, out);
    }

    /// Takes the last `count` frames of `frames`.
    pub(super) fn give(&self, count: usize, frames: &mut Vec<Frame>) {
        let mut free = self.free.lock();
        move_last(frames, count.min(frames.len()), &mut free);
    }
}

/// Distance of two buffers: one cache line more than their size. Otherwise the same offsets of
/// buffers a page apart would compete for the same few sets of a first-level cache, which could not
/// hold a burst of headers.
pub const STRIDE_BYTES: usize = BUFFER_BYTES + 64;

#[cfg(test)]
mod tests {
    use super::super::{Pool, RxInfo};
    use super::*;

    #[test]
    fn what_is_free_can_be_made_and_given_back_at_any_time() {
        let arena = Arena::new(300).unwrap();
        let mut pool = Pool::new(&arena);
        let kept = pool.frame(&[7; 9000]).unwrap().unwrap();
        let mut frames = Vec::new();
        pool.take_many(100, &mut frames);
        pool.give_all(&mut frames);
        drop(pool);
        arena.populate().unwrap();
        let used = || rustix::fs::fstat(arena.memfd()).unwrap().st_blocks * 512;
        let before = used();
        arena.trim().unwrap();
        if !arena.has_huge_pages() {
            assert!(before >= 300 * BUFFER_BYTES as i64, "all pages are there: {before}");
            assert!(used() < 100_000, "but for those of the frame in use: {}", used());
        }
        assert_eq!(kept.to_vec(), vec![7; 9000]);
        let mut pool = Pool::new(&arena);
        assert_eq!(pool.frame(&[9; 100]).unwrap().unwrap().to_vec(), vec![9; 100]);
    }

    #[test]
    fn frames_come_back() {
        let arena = Arena::new(300).unwrap();
        let mut pool = Pool::new(&arena);
        let mut frames = Vec::new();
        assert_eq!(pool.take_many(400, &mut frames), 300);
        assert!(pool.take().is_none());
        let long = vec![7; 9000];
        pool.give_all(&mut frames);
        let mut frame = pool.frame(&long).unwrap().unwrap();
        frame.rx = RxInfo { ifindex: 5, ..frame.rx };
        assert_eq!((frame.frag_count(), frame.to_vec()), (2, long.clone()));
        let copy = pool.copy(&frame).unwrap();
        assert_eq!((copy.rx, copy.to_vec()), (frame.rx, long));
        pool.give(copy);
        drop(frame);
        drop(pool);
        assert_eq!(arena.free(), 300, "a dropped frame is not lost");
        let mut pool = Pool::new(&arena);
        assert_eq!(pool.take_many(400, &mut frames), 300);
        let mut numbers: Vec<u32> = frames.iter().map(|f| arena.index_of(f).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
    }
}
