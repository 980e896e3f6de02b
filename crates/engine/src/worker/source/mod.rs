//! Sources: origins of frames that a worker polls.

mod byte_limit;
pub(super) mod dequeue;
pub(super) mod handed;
pub(super) mod ready;
pub(super) mod rx;
pub(super) mod spread;
pub(super) mod tx_ring;
pub(super) mod zero_copy;
