//! A ring of either format, and its setup.

use super::burst::{Burst, Chain, Direction};
use super::feature::{Negotiated, PACKED};
use super::inflight::{Format, Inflight};
use super::memory::Memory;
use super::packed::Packed;
use super::run::{Buffer, Run, Wanted};
use super::split::Split;

/// A running ring.
#[derive(Debug)]
pub(super) enum Ring {
    Split(Split),
    Packed(Packed),
}

/// Front-end addresses of a ring. A packed ring has its event suppression areas in place of a split
/// ring's other parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) descriptors: u64,
    pub(super) used: u64,
    pub(super) available: u64,
    /// Guest address under which writes to the used ring are logged, if they are.
    pub(super) log: Option<u64>,
}

/// Reasons why a ring cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SetupError {
    #[error("the ring has no size that rings have")]
    Size,
    #[error("the ring at {0:#x} is not in memory that was passed")]
    Address(u64),
    #[error("the ring at {0:#x} is not aligned")]
    Alignment(u64),
    #[error("the ring was not described before it was started")]
    Incomplete,
}

impl Ring {
    /// A ring of `size` entries that was left at `base` according to the front end, or where the
    /// in-flight region says.
    pub(super) fn new(
        memory: &Memory,
        (size, base): (u32, u32),
        addresses: &Addresses,
        features: Negotiated,
        inflight: Option<Inflight>,
    ) -> Result<Ring, SetupError> {
        Ok(if features.has(PACKED) {
            Ring::Packed(Packed::new(memory, (size, base), addresses, features, inflight)?)
        } else {
            Ring::Split(Split::new(memory, size, addresses, features, inflight)?)
        })
    }

    /// The format of the in-flight region for rings with these features.
    pub(super) fn noted_as(features: Negotiated) -> Format {
        if features.has(PACKED) { Format::Packed } else { Format::Split }
    }

    /// The name of its format.
    pub(super) fn format(&self) -> &'static str {
        match self {
            Ring::Split(_) => "split",
            Ring::Packed(_) => "packed",
        }
    }

    pub(super) fn size(&self) -> u16 {
        match self {
            Ring::Split(ring) => ring.size(),
            Ring::Packed(ring) => ring.size(),
        }
    }

    /// The answer to `GET_VRING_BASE`.
    pub(super) fn base(&self) -> u32 {
        match self {
            Ring::Split(ring) => ring.base(),
            Ring::Packed(ring) => ring.base(),
        }
    }

    /// Number of available buffers, within the look-ahead.
    pub(super) fn pending(&mut self) -> usize {
        match self {
            Ring::Split(ring) => usize::from(ring.pending().unwrap_or(0)),
            Ring::Packed(ring) => ring.pending(),
        }
    }

    /// Reads up to `limit` further buffers, and appends them to the burst.
    #[inline]
    pub(super) fn collect(
        &mut self,
        memory: &Memory,
        limit: usize,
        direction: Direction,
        burst: &mut Burst,
    ) {
        match self {
            Ring::Split(ring) => ring.collect(memory, limit, direction, burst),
            Ring::Packed(ring) => ring.collect(memory, limit, direction, burst),
        }
    }

    /// Reads the next buffers while they match `wanted`. Returns `true` if a buffer follows that
    /// does not. The position advances only by [`Ring::give_back`].
    #[inline]
    pub(super) fn look<'m>(
        &mut self,
        memory: &'m Memory,
        wanted: &Wanted,
        run: &mut Run<'m>,
    ) -> bool {
        match self {
            Ring::Split(ring) => ring.look(memory, wanted, run),
            Ring::Packed(ring) => ring.look(memory, wanted, run),
        }
    }

    /// Returns the first buffers of a run.
    #[inline]
    pub(super) fn give_back(&mut self, buffers: &[Buffer<'_>]) {
        match self {
            Ring::Split(ring) => ring.give_back(buffers.iter().map(Buffer::used)),
            Ring::Packed(ring) => ring.give_back(buffers.iter().map(Buffer::used)),
        }
    }

    /// Returns the first of the buffers that were read; the others count as unread again.
    #[inline]
    pub(super) fn complete(&mut self, chains: &[Chain]) {
        match self {
            Ring::Split(ring) => ring.complete(chains),
            Ring::Packed(ring) => ring.complete(chains),
        }
    }

    /// Whether the driver wants an interrupt for buffers returned since the last call.
    #[inline]
    pub(super) fn wants_signal(&mut self) -> bool {
        match self {
            Ring::Split(ring) => ring.wants_signal(),
            Ring::Packed(ring) => ring.wants_signal(),
        }
    }

    /// Enables kicks for further buffers. Returns whether a buffer is available already.
    pub(super) fn ask_for_kicks(&mut self) -> bool {
        match self {
            Ring::Split(ring) => ring.ask_for_kicks(),
            Ring::Packed(ring) => ring.ask_for_kicks(),
        }
    }

    /// Disables kicks, as the device polls.
    pub(super) fn ignore_kicks(&mut self) {
        match self {
            Ring::Split(ring) => ring.ignore_kicks(),
            Ring::Packed(ring) => ring.ignore_kicks(),
        }
    }

    /// Guest address and length of the range written when buffers are returned.
    pub(super) fn used_range(&self) -> (u64, u64) {
        match self {
            Ring::Split(ring) => ring.used_range(),
            Ring::Packed(ring) => ring.used_range(),
        }
    }
}
