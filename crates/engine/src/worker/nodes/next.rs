//! A node's decision about a frame.

use crate::counters::DropReason;
use crate::target::{Side, TargetId};

/// A node's decision about a frame.
#[derive(Clone, Copy)]
pub(super) enum Next<'a> {
    /// The frame goes to this target.
    To(TargetId),
    /// Each of these ports, except the ingress port, gets a copy.
    Flood(&'a [TargetId]),
    /// The frame is dropped, counted at the target's owner.
    Drop(Side, DropReason),
    /// The frame reached its destination.
    Delivered,
}
