//! The rings of AF_XDP: single producer, single consumer, in memory shared by two sides that need
//! not trust each other (`net/xdp/xsk_queue.h`).
//!
//! Both indices run freely; an entry's place is its index modulo the ring's size, a power of two.
//! The producer writes entries, then its index with release order; the consumer reads that with
//! acquire order, then the entries, then writes its own index with release order. The other side's
//! index is believed only within the length of the ring.
//!
//! [`Producer`] and [`Consumer`] are the two ends over anything [`Shared`]: [`Mapped`] memory, or
//! the model that the tests check. [`handoff`] is a ring for two threads of one process, which own
//! the values that they move.

#![deny(unsafe_code)]

mod ends;
mod entry;
mod handoff_unsafe;
mod mapped_unsafe;
mod sleep_flag;

pub use ends::{Consumer, Producer, Shared, Word};
pub use entry::{Desc, Entry};
pub use handoff_unsafe::{Giver, Progress, Taker, handoff};
pub use mapped_unsafe::{Mapped, Memory};
pub use sleep_flag::SleepFlag;

use rustix::net::xdp::XdpRingOffset;

/// Offsets in a ring, as in 64-bit kernels (`XDP_MMAP_OFFSETS`).
pub const OFFSETS: XdpRingOffset =
    XdpRingOffset { producer: 0, consumer: 128, desc: 320, flags: Some(196) };

/// The bit in a ring's flags that asks to wake the sleeping consumer (`XDP_RING_NEED_WAKEUP`).
pub const NEED_WAKEUP: u32 = 1;

#[cfg(test)]
mod tests;
