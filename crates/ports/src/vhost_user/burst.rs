//! Chains of descriptors that are processed together, copied when they were read.

use std::ops::Range;

use super::memory::{Memory, Piece};

/// Chains in the order in which the driver made them available. The vectors are reused for every
/// burst.
#[derive(Debug, Default)]
pub(super) struct Burst {
    pub(super) chains: Vec<Chain>,
    pieces: Vec<Piece>,
    /// The driver's violation after the chains.
    pub(super) violation: Option<Violation>,
}

/// A chain of descriptors: one buffer of the driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    /// The driver's id of the buffer.
    pub(super) id: u16,
    /// Ring entries it takes in a packed ring.
    pub(super) slots: u16,
    first: u32,
    end: u32,
    /// Bytes of all its descriptors.
    pub(super) bytes: u64,
    /// Bytes that the device wrote into it.
    pub(super) written: u32,
}

/// A buffer to return to the driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    /// The driver's id of the buffer.
    pub(super) id: u16,
    /// Ring entries it takes in a packed ring.
    pub(super) slots: u16,
    /// Bytes that the device wrote into it.
    pub(super) written: u32,
}

/// The direction of a ring: which side fills its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The device reads them: frames from the guest.
    FromGuest,
    /// The device writes them: frames to the guest.
    ToGuest,
}

/// A copy of a descriptor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptor {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
    /// In a split ring the index of the next descriptor, in a packed ring the buffer's id.
    pub(super) number: u16,
}

/// Violations by a driver (virtio 1.3, 2.7 and 2.8), which break its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// More buffers were made available than the ring has entries.
    #[error("{0} buffers were made available at once in a ring of {1}")]
    AvailableIndex(u16, u16),
    /// A descriptor's index is out of range.
    #[error("descriptor {0} of a ring of {1}")]
    Index(u16, u16),
    /// A chain is longer than its ring or table, or has no end.
    #[error("a chain of more than {0} descriptors")]
    Endless(u16),
    /// An indirect table is inside another one, or its length is not a multiple of a descriptor's.
    #[error("an indirect table of {0} bytes")]
    Table(u32),
    /// A buffer is outside of all memory regions.
    #[error("{1} bytes at address {0:#x} are not in the guest's memory")]
    Address(u64, u32),
    /// A buffer is writable where the device reads, or read-only where it writes.
    #[error("a descriptor of the wrong direction")]
    Direction,
    /// A buffer is too short for the header.
    #[error("a buffer of {0} bytes, shorter than its header")]
    Short(u64),
}

impl Chain {
    /// The buffer to return for this chain.
    #[inline]
    pub(super) fn used(&self) -> Used {
        Used { id: self.id, slots: self.slots, written: self.written }
    }
}

impl Burst {
    pub(super) fn clear(&mut self) {
        self.chains.clear();
        self.pieces.clear();
        self.violation = None;
    }

    /// Whether the burst has reached its limit of pieces.
    #[inline]
    pub(super) fn is_used_up(&self) -> bool {
        self.pieces.len() >= PIECES_MAX
    }

    #[inline]
    pub(super) fn pieces(&self, chain: &Chain) -> &[Piece] {
        &self.pieces[chain.first as usize..chain.end as usize]
    }

    /// The pieces of several consecutive chains.
    pub(super) fn pieces_of(&self, chains: Range<usize>) -> &[Piece] {
        match &self.chains[chains] {
            [] => &[],
            [first, .., last] => &self.pieces[first.first as usize..last.end as usize],
            [only] => self.pieces(only),
        }
    }

    /// Begins a chain; [`Burst::add`] adds its descriptors.
    #[inline]
    pub(super) fn begin(&mut self, id: u16) -> Chain {
        let first = self.pieces.len() as u32;
        Chain { id, slots: 1, first, end: first, bytes: 0, written: 0 }
    }

    /// Adds a descriptor to a chain.
    #[inline]
    pub(super) fn add(
        &mut self,
        chain: &mut Chain,
        memory: &Memory,
        descriptor: &Descriptor,
        direction: Direction,
    ) -> Result<(), Violation> {
        let is_writable = descriptor.flags & WRITE != 0;
        if is_writable != (direction == Direction::ToGuest) {
            return Err(Violation::Direction);
        }
        let Descriptor { addr, len, .. } = *descriptor;
        if len > 0 && !memory.translate(addr, len, is_writable, &mut self.pieces) {
            return Err(Violation::Address(addr, len));
        }
        chain.bytes += u64::from(len);
        Ok(())
    }

    /// Completes a chain.
    #[inline]
    pub(super) fn end(&mut self, mut chain: Chain) {
        chain.end = self.pieces.len() as u32;
        self.chains.push(chain);
    }
}

impl Descriptor {
    /// An entry of an indirect table.
    #[inline]
    pub(super) fn of_table(memory: &Memory, table: Piece, index: u16) -> [u64; 2] {
        let at = usize::from(index) * DESCRIPTOR_BYTES;
        let bytes: [u8; DESCRIPTOR_BYTES] = memory.read_array(table, at);
        let (words, _none) = bytes.as_chunks::<8>();
        [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
    }

    /// Makes a descriptor of its two words: the address, and the rest.
    #[inline]
    pub(super) fn split(addr: u64, rest: u64) -> Descriptor {
        let (flags, number) = ((rest >> 32) as u16, (rest >> 48) as u16);
        Descriptor { addr, len: rest as u32, flags, number }
    }

    /// Like [`Descriptor::split`], for a packed ring, where the flags come last.
    #[inline]
    pub(super) fn packed(addr: u64, rest: u64) -> Descriptor {
        let (number, flags) = ((rest >> 32) as u16, (rest >> 48) as u16);
        Descriptor { addr, len: rest as u32, flags, number }
    }

    /// The indirect table that it refers to, and its number of entries; a ring of `size` allows at
    /// most as many.
    pub(super) fn table(&self, memory: &Memory, size: u16) -> Result<(Piece, u16), Violation> {
        let Descriptor { addr, len, flags, .. } = *self;
        let entries = len / DESCRIPTOR_BYTES as u32;
        let is_whole = len.is_multiple_of(DESCRIPTOR_BYTES as u32);
        if flags & NEXT != 0 || !is_whole || entries == 0 || entries > u32::from(size) {
            return Err(Violation::Table(len));
        }
        // A table across two regions is refused, as no driver makes one.
        let table = memory.piece(addr, len).ok_or(Violation::Address(addr, len))?;
        Ok((table, entries as u16))
    }
}

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_BYTES: usize = 16;
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;
const _: () = assert!(NEXT | WRITE | INDIRECT == 7, "virtio 1.3, 2.7.5");
/// Most pieces of a burst, except that the last chain is completed.
const PIECES_MAX: usize = 8192;
const _: () = assert!(PIECES_MAX >= super::run::RUN_MAX, "a run of chains is looked at");
