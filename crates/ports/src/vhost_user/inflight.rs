//! Tracking of descriptors in flight (vhost-user, "Inflight I/O tracking"): a region that the front
//! end keeps from one back end to the next, in which the back end notes buffers it took and has not
//! returned.
//!
//! This back end returns buffers in order, under the same lock under which it took them, so it
//! notes only the position of the ring. Another back end may have left buffers in any order; these
//! are processed first.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::burst::Descriptor;
use super::mapping_unsafe::{Area, Mapping};
use super::packed::Position;

/// Format of a queue's part of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `struct QueueRegionSplit`
    Split,
    /// `struct QueueRegionPacked`
    Packed,
}

impl Format {
    /// Bytes of one queue's part, which is aligned to cache lines.
    fn bytes(self, size: u16) -> u64 {
        let parts = 1 + u64::from(size);
        (self.part_bytes() as u64 * parts).next_multiple_of(64)
    }

    /// Bytes of the header, and of each entry behind it.
    fn part_bytes(self) -> usize {
        match self {
            Format::Split => 16,
            Format::Packed => 32,
        }
    }
}

/// Contents of both messages (`struct VhostUserInflight`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) bytes: u64,
    pub(super) offset: u64,
    pub(super) queues: u16,
    /// Entries of each queue.
    pub(super) size: u16,
}

impl Description {
    pub(super) fn to_payload(self) -> Vec<u8> {
        let words = [self.bytes, self.offset].map(u64::to_ne_bytes).concat();
        [words, [self.queues, self.size].map(u16::to_ne_bytes).concat()].concat()
    }
}

/// The region of all queues.
#[derive(Debug, Clone)]
pub(super) struct Region {
    mapping: Arc<Mapping>,
    queues: u16,
    size: u16,
}

impl Region {
    /// Makes an empty region for the front end to keep.
    pub(super) fn create(
        queues: u16,
        size: u16,
        format: Format,
    ) -> io::Result<(OwnedFd, Description)> {
        let bytes = format.bytes(size) * u64::from(queues);
        let file = memfd_create("vhost-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes)?;
        Ok((file, Description { bytes, offset: 0, queues, size }))
    }

    /// Maps a region that the front end kept.
    pub(super) fn new(file: &OwnedFd, what: Description) -> io::Result<Region> {
        let mapping = Arc::new(Mapping::new(file, what.offset, what.bytes)?);
        Ok(Region { mapping, queues: what.queues, size: what.size })
    }

    /// A queue's part; `None` if the region has no room for a ring of `ring_size` entries.
    pub(super) fn queue(&self, index: u32, format: Format, ring_size: u32) -> Option<Inflight> {
        let bytes = format.bytes(self.size);
        let start = bytes * u64::from(index);
        let fits = start + bytes <= self.mapping.len() as u64;
        let is_there = index < u32::from(self.queues) && fits && ring_size <= u32::from(self.size);
        let size = u16::try_from(ring_size).ok().filter(|_| is_there)?;
        let area: Area<8> = Area::new(&self.mapping, start as usize, bytes as usize, 0)?;
        let is_new = area.load16(VERSION, Ordering::Acquire) == 0;
        let inflight = Inflight { area, format, size, is_new };
        if is_new {
            inflight.clear(self.size);
        }
        Some(inflight)
    }
}

/// A queue's part of the region.
#[derive(Debug, Clone)]
pub(super) struct Inflight {
    area: Area<8>,
    format: Format,
    /// Entries of the ring; the region may have more.
    size: u16,
    /// The region has no notes of an earlier back end.
    is_new: bool,
}

impl Inflight {
    /// Initialises an empty part. The version is written last, as it marks the part as complete.
    fn clear(&self, entries: u16) {
        if self.format == Format::Packed {
            for index in 0..entries {
                // The list of free entries.
                self.store_word(index, 0, u64::from(index.wrapping_add(1)) << 16);
            }
        }
        self.area.store16(ENTRIES, entries, Ordering::Relaxed);
        self.area.store16(VERSION, 1, Ordering::Release);
    }

    /// Resumes a split ring at `used`; returns the heads of chains taken and not returned, in the
    /// order of taking.
    pub(super) fn resume_split(&self, used: u16) -> Vec<u16> {
        let noted = self.area.load16(SPLIT_USED, Ordering::Acquire);
        // The last batch was returned, but that may not have been noted.
        let mut head = self.area.load16(LAST_BATCH, Ordering::Relaxed);
        for _ in 0..used.wrapping_sub(noted).min(self.size) {
            if head >= self.size {
                break;
            }
            let word = self.word(head, 0);
            self.store_word(head, 0, word & !0xff);
            head = (word >> 48) as u16;
        }
        self.note_split(used);
        self.taken()
    }

    /// Entries in flight, in the order of their counter.
    fn taken(&self) -> Vec<u16> {
        let is_taken = |index: &u16| self.word(*index, 0) & 0xff == 1;
        let mut taken: Vec<u16> = (0..self.size).filter(is_taken).collect();
        taken.sort_by_key(|&index| self.word(index, 1));
        taken
    }

    /// Notes the position of a split ring.
    #[inline]
    pub(super) fn note_split(&self, used: u16) {
        self.area.store16(SPLIT_USED, used, Ordering::Release);
    }

    /// Notes that a chain of [`Inflight::resume_split`] is about to be returned.
    pub(super) fn begin_split(&self, head: u16) {
        let before = self.area.load16(LAST_BATCH, Ordering::Relaxed);
        self.store_word(head, 0, 1 | u64::from(before) << 48);
        self.area.store16(LAST_BATCH, head, Ordering::Release);
    }

    /// Notes that the chain was returned, and the ring is at `used`.
    pub(super) fn end_split(&self, head: u16, used: u16) {
        self.store_word(head, 0, self.word(head, 0) & !0xff);
        self.note_split(used);
    }

    /// The noted positions of a packed ring: start and end of the last batch. They differ only if a
    /// back end ended while it returned a batch. `None` without notes.
    pub(super) fn packed_places(&self) -> Option<(Position, Position)> {
        if self.is_new {
            return None;
        }
        let word = self.area.load64(PACKED_USED, Ordering::Acquire);
        let place = |at: u32, wrap: u32| {
            let index = (word >> at) as u16;
            (index < self.size).then_some(Position { index, wrap: word >> wrap & 1 == 1 })
        };
        Some((place(16, 40)?, place(0, 32)?))
    }

    /// Notes that a packed ring is between these positions, which are equal unless a batch is being
    /// returned.
    #[inline]
    pub(super) fn note_packed(&self, from: Position, to: Position) {
        let word = u64::from(to.index)
            | u64::from(from.index) << 16
            | u64::from(to.wrap) << 32
            | u64::from(from.wrap) << 40;
        self.area.store64(PACKED_USED, word, Ordering::Release);
    }

    /// Chains taken from a packed ring and not returned, in the order of taking: copies of their
    /// descriptors, because the ring may have overwritten them.
    pub(super) fn resume_packed(&self) -> Vec<Taken> {
        let chain = |entry: u16| {
            let mut descriptors = Vec::new();
            let (mut at, count) = (entry, (self.word(entry, 0) >> 48) as u16);
            while descriptors.len() < usize::from(count.min(self.size)) && at < self.size {
                let descriptor = self.word(at, 2);
                let (id, flags) = (descriptor & 0xffff, descriptor >> 16 & 0xffff);
                let rest = descriptor >> 32 | id << 32 | flags << 48;
                descriptors.push(Descriptor::packed(self.word(at, 3), rest));
                at = (self.word(at, 0) >> 16) as u16;
            }
            Taken { entry, descriptors }
        };
        let taken = self.taken().into_iter().map(chain);
        taken.filter(|taken| !taken.descriptors.is_empty()).collect()
    }

    /// Notes that a chain of [`Inflight::resume_packed`] was returned, and frees its entries.
    pub(super) fn end_packed(&self, entry: u16) {
        let free = self.area.load16(FREE_HEAD, Ordering::Relaxed);
        let last = (self.word(entry, 0) >> 32) as u16;
        let tail = if last < self.size { last } else { entry };
        let word = self.word(tail, 0) & !(0xffff << 16);
        self.store_word(tail, 0, word | u64::from(free) << 16);
        self.store_word(entry, 0, self.word(entry, 0) & !0xff);
        self.area.store16(FREE_HEAD, entry, Ordering::Release);
        self.area.store16(OLD_FREE_HEAD, entry, Ordering::Release);
    }

    fn word(&self, entry: u16, word: usize) -> u64 {
        self.area.load64(self.at(entry, word), Ordering::Acquire)
    }

    fn store_word(&self, entry: u16, word: usize, value: u64) {
        self.area.store64(self.at(entry, word), value, Ordering::Release);
    }

    fn at(&self, entry: u16, word: usize) -> usize {
        (1 + usize::from(entry)) * self.format.part_bytes() + 8 * word
    }
}

/// A chain taken from a packed ring and not returned.
#[derive(Debug)]
pub(super) struct Taken {
    /// Its first entry in the region.
    pub(super) entry: u16,
    /// Its descriptors, at least one.
    pub(super) descriptors: Vec<Descriptor>,
}

/// Offsets in both formats.
const VERSION: usize = 8;
const ENTRIES: usize = 10;
/// Offsets in the split format: the head of the last chain returned, and the used index.
const LAST_BATCH: usize = 12;
const SPLIT_USED: usize = 14;
/// Offsets in the packed format: the list of free entries, and a word with both positions and their
/// wrap counters.
const FREE_HEAD: usize = 12;
const OLD_FREE_HEAD: usize = 14;
const PACKED_USED: usize = 16;
const _: () =
    assert!(ENTRIES + 2 <= LAST_BATCH && LAST_BATCH + 2 <= SPLIT_USED, "fields of a split queue");
const _: () = assert!(
    ENTRIES + 2 <= FREE_HEAD && OLD_FREE_HEAD + 2 <= PACKED_USED,
    "fields of a packed queue"
);
