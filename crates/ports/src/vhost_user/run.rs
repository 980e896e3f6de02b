//! Buffers that need no second look: what most drivers make available most of the time. Each is
//! one descriptor, lies in one region, and has a length that fits. A burst of them is looked at as
//! a whole, worked on as a whole and given back as a whole; whatever else comes is
//! [`super::burst`]'s.

use arrayvec::ArrayVec;

use super::burst::{Descriptor, Direction, INDIRECT, NEXT, Used, WRITE};
use super::mapping_unsafe::Place;
use super::memory::Finder;

/// Buffers in the order in which the driver made them available.
pub(super) type Run<'m> = ArrayVec<Buffer<'m>, RUN_MAX>;

/// One of them.
#[derive(Debug)]
pub(super) struct Buffer<'m> {
    pub(super) place: Place<'m>,
    /// The driver's id of the buffer.
    pub(super) id: u16,
    /// Bytes we put into it.
    pub(super) written: u32,
}

/// Requirements on the buffers of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Buffers.
    limit: usize,
    /// Which flags make a difference, and those of them that there must be.
    mask: u16,
    flags: u16,
    /// Bytes of each: so many, and up to so many more.
    bytes_min: u32,
    more_max: u32,
}

impl Buffer<'_> {
    /// To be given back.
    #[inline]
    pub(super) fn used(&self) -> Used {
        Used { id: self.id, slots: 1, written: self.written }
    }
}

impl Wanted {
    /// At most `limit` buffers of at least `bytes_min` and at most `bytes_max` bytes.
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

    /// The same with further flags that make a difference, and those of them that there must be.
    #[inline]
    pub(super) fn also(&self, mask: u16, flags: u16) -> Wanted {
        Wanted { mask: self.mask | mask, flags: self.flags | flags, ..*self }
    }

    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The descriptor's buffer, if it is what is wanted. It is on its way into the cache then.
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

/// Most buffers of a run: a burst's.
pub(super) const RUN_MAX: usize = 64;
