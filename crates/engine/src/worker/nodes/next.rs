//! What a node says of a frame that it has looked at.

use crate::counters::DropReason;
use crate::target::{Side, TargetId};

/// Where a frame goes on.
#[derive(Clone, Copy)]
pub(super) enum Next<'a> {
    /// To that target.
    To(TargetId),
    /// A copy to each of these ports but the one that it came from.
    Flood(&'a [TargetId]),
    /// It is dropped, at the cost of the target's owner.
    Drop(Side, DropReason),
    /// It ends here, where it was to arrive.
    Delivered,
}
