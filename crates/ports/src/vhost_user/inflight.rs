//! Descriptors in flight (vhost-user, "Inflight I/O tracking"): a region that the front end keeps
//! from one back end to the next, in which each notes what it took and did not give back yet.
//!
//! We give buffers back in the order of taking and under the lock that we took them under, so what
//! is noted of ours is only how far the ring is. Another back end may leave some in any order: they
//! are the first ones that are worked on.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::burst::Descriptor;
use super::mapping_unsafe::{Area, Mapping};
use super::packed::Position;

/// Which of the two shapes a queue's part of the region has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `struct QueueRegionSplit`
    Split,
    /// `struct QueueRegionPacked`
    Packed,
}

impl Format {
    /// Bytes of one queue, whose parts are aligned as caches are.
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

/// The region, all queues of it.
#[derive(Debug, Clone)]
pub(super) struct Region {
    mapping: Arc<Mapping>,
    queues: u16,
    size: u16,
}

impl Region {
    /// A new one for the front end to keep, in which nothing is noted.
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

    /// The one that the front end kept.
    pub(super) fn new(file: &OwnedFd, what: Description) -> io::Result<Region> {
        let mapping = Arc::new(Mapping::new(file, what.offset, what.bytes)?);
        Ok(Region { mapping, queues: what.queues, size: what.size })
    }

    /// A queue's part; `None` where the region has no room for a ring of so many entries.
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
    /// Nothing was ever noted. The version comes last: it says that all of it is there.
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

    /// A split ring is at `used`: heads of the chains that were taken and not given back, in the
    /// order of taking.
    pub(super) fn resume_split(&self, used: u16) -> Vec<u16> {
        let noted = self.area.load16(SPLIT_USED, Ordering::Acquire);
        // The last batch was given back, and perhaps not noted any more.
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

    /// The entries that are in flight, by their counter.
    fn taken(&self) -> Vec<u16> {
        let is_taken = |index: &u16| self.word(*index, 0) & 0xff == 1;
        let mut taken: Vec<u16> = (0..self.size).filter(is_taken).collect();
        taken.sort_by_key(|&index| self.word(index, 1));
        taken
    }

    /// A split ring is as far as this.
    #[inline]
    pub(super) fn note_split(&self, used: u16) {
        self.area.store16(SPLIT_USED, used, Ordering::Release);
    }

    /// A chain of [`Inflight::resume_split`] is about to be given back.
    pub(super) fn begin_split(&self, head: u16) {
        let before = self.area.load16(LAST_BATCH, Ordering::Relaxed);
        self.store_word(head, 0, 1 | u64::from(before) << 48);
        self.area.store16(LAST_BATCH, head, Ordering::Release);
    }

    /// It was given back, and the ring is at `used`.
    pub(super) fn end_split(&self, head: u16, used: u16) {
        self.store_word(head, 0, self.word(head, 0) & !0xff);
        self.note_split(used);
    }

    /// Where a packed ring was left: where the last batch began, and where it ended. They differ
    /// only if a back end was ended while it returned a batch. `None` without notes.
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

    /// A packed ring is between these two places, one and the same unless it is being written.
    #[inline]
    pub(super) fn note_packed(&self, from: Position, to: Position) {
        let word = u64::from(to.index)
            | u64::from(from.index) << 16
            | u64::from(to.wrap) << 32
            | u64::from(from.wrap) << 40;
        self.area.store64(PACKED_USED, word, Ordering::Release);
    }

    /// Chains that were taken from a packed ring and not given back, in the order of taking: copies
    /// of their descriptors, since the ring may have others in their place.
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

    /// A chain of [`Inflight::resume_packed`] was given back: its entries are free.
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

/// A chain that was taken from a packed ring.
#[derive(Debug)]
pub(super) struct Taken {
    /// Its first entry in the region.
    pub(super) entry: u16,
    /// At least one.
    pub(super) descriptors: Vec<Descriptor>,
}

/// In both formats.
const VERSION: usize = 8;
const ENTRIES: usize = 10;
/// In the split one: the head of the last chain given back, and the used index.
const LAST_BATCH: usize = 12;
const SPLIT_USED: usize = 14;
/// In the packed one: the list of free entries, and a word with both places and both laps.
const FREE_HEAD: usize = 12;
const OLD_FREE_HEAD: usize = 14;
const PACKED_USED: usize = 16;
const _: () =
    assert!(ENTRIES + 2 <= LAST_BATCH && LAST_BATCH + 2 <= SPLIT_USED, "fields of a split queue");
const _: () = assert!(
    ENTRIES + 2 <= FREE_HEAD && OLD_FREE_HEAD + 2 <= PACKED_USED,
    "fields of a packed queue"
);
