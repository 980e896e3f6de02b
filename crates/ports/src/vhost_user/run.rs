//! Runs of simple buffers, the most frequent case: each is one descriptor, lies in one region, and
//! has a suitable length. A burst of them is read, processed and returned as a whole;
//! [`super::burst`] handles all other buffers.

use arrayvec::ArrayVec;

use super::burst::{Descriptor, Direction, INDIRECT, NEXT, Used, WRITE};
use super::mapping_unsafe::Place;
use super::memory::Finder;

/// Buffers in the order in which the driver made them available.
pub(super) type Run<'m> = ArrayVec<Buffer<'m>, RUN_MAX>;

/// A simple buffer.
#[derive(Debug)]
pub(super) struct Buffer<'m> {
    pub(super) place: Place<'m>,
    /// The driver's id of the buffer.
    pub(super) id: u16,
    /// Bytes that the device wrote into it.
    pub(super) written: u32,
}

/// Requirements on the buffers of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Most buffers.
    limit: usize,
    /// Mask of the flags to check; `flags` has those that must be set.
    mask: u16,
    flags: u16,
    /// Least bytes of each; `more_max` is the number of further bytes allowed.
    bytes_min: u32,
    more_max: u32,
}

impl Buffer<'_> {
    /// The buffer to return to the driver.
    #[inline]
    pub(super) fn used(&self) -> Used {
        Used { id: self.id, slots: 1, written: self.written }
    }
}

impl Wanted {
    /// Requirements for at most `limit` buffers of at least `bytes_min` and at most `bytes_max`
    /// bytes.
    #[inline]
    pub(super) fn new(
        limit: usize,
        direction: Direction,
        (bytes_min, bytes_max): (u32, u32),
    ) -> Wanted {
        let flags = if direction == Direction::ToGuest { WRITE } else { 0 };
        let (mask, more_max) = (NEXT | INDIRECT | WRITE, bytes_max - bytes_min);
        Wanted { limit: limit.min(RUN_MAX), mask, flags, bytes_min, more_max }
    }

    /// The same requirements with further flags to check, and those of them that must be set.
    #[inline]
    pub(super) fn also(&self, mask: u16, flags: u16) -> Wanted {
        Wanted { mask: self.mask | mask, flags: self.flags | flags, ..*self }
    }

    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The descriptor's buffer, prefetched, if it meets the requirements.
    #[inline]
    pub(super) fn buffer<'m>(
        &self,
        descriptor: &Descriptor,
        id: u16,
        finder: &mut Finder<'m>,
    ) -> Option<Buffer<'m>> {
        let Descriptor { addr, len, flags, .. } = *descriptor;
        let is_wanted =
            flags & self.mask == self.flags && len.wrapping_sub(self.bytes_min) <= self.more_max;
        let place = if is_wanted { finder.find(addr, len) } else { None }?;
        place.prefetch(self.flags & WRITE != 0);
        Some(Buffer { place, id, written: 0 })
    }
}

/// Most buffers of a run: those of a burst.
pub(super) const RUN_MAX: usize = 64;
