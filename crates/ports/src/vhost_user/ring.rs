//! A ring of either format, and what it is set up with.

use super::burst::{Burst, Chain, Direction};
use super::feature::{Negotiated, PACKED};
use super::inflight::{Format, Inflight};
use super::memory::Memory;
use super::packed::Packed;
use super::run::{Buffer, Run, Wanted};
use super::split::Split;

/// A ring that runs.
#[derive(Debug)]
pub(super) enum Ring {
    Split(Split),
    Packed(Packed),
}

/// Where the driver put it, by addresses of the front end. A packed ring has event suppression
/// where a split ring has its other halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) descriptors: u64,
    pub(super) used: u64,
    pub(super) available: u64,
    /// Where writes to the used ring are noted in the log, if they are to be.
    pub(super) log: Option<u64>,
}

/// Why a ring cannot run.
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
    /// A ring of `size` places that was left at `base`, as far as the front end knows, or where the
    /// region says that it keeps.
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

    /// The format of notes for rings with these features.
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

    /// How many buffers are available, as far as that can be seen at a glance.
    pub(super) fn pending(&mut self) -> usize {
        match self {
            Ring::Split(ring) => usize::from(ring.pending().unwrap_or(0)),
            Ring::Packed(ring) => ring.pending(),
        }
    }

    /// Looks at up to `limit` further buffers, and appends them to the burst.
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

    /// Looks at the buffers that come next, as long as they are what is wanted. True where what
    /// follows is something else. Nothing is remembered but by [`Ring::give_back`].
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

    /// Gives the first buffers of a run back.
    #[inline]
    pub(super) fn give_back(&mut self, buffers: &[Buffer<'_>]) {
        match self {
            Ring::Split(ring) => ring.give_back(buffers.iter().map(Buffer::used)),
            Ring::Packed(ring) => ring.give_back(buffers.iter().map(Buffer::used)),
        }
    }

    /// Gives buffers back, the first ones that were looked at; the others were not looked at then.
    #[inline]
    pub(super) fn complete(&mut self, chains: &[Chain]) {
        match self {
            Ring::Split(ring) => ring.complete(chains),
            Ring::Packed(ring) => ring.complete(chains),
        }
    }

    /// Whether the driver wants an interrupt for what was given back since the last call.
    #[inline]
    pub(super) fn wants_signal(&mut self) -> bool {
        match self {
            Ring::Split(ring) => ring.wants_signal(),
            Ring::Packed(ring) => ring.wants_signal(),
        }
    }

    /// Asks to be kicked for what is made available next. Gives whether something is there already.
    pub(super) fn ask_for_kicks(&mut self) -> bool {
        match self {
            Ring::Split(ring) => ring.ask_for_kicks(),
            Ring::Packed(ring) => ring.ask_for_kicks(),
        }
    }

    /// Kicks would be of no use: we poll.
    pub(super) fn ignore_kicks(&mut self) {
        match self {
            Ring::Split(ring) => ring.ignore_kicks(),
            Ring::Packed(ring) => ring.ignore_kicks(),
        }
    }

    /// Where in the guest we write when buffers are given back: address and length.
    pub(super) fn used_range(&self) -> (u64, u64) {
        match self {
            Ring::Split(ring) => ring.used_range(),
            Ring::Packed(ring) => ring.used_range(),
        }
    }
}
