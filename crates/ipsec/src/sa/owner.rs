//! The one user that takes sequence numbers of an outbound SA at a time.
//!
//! Numbers are unique, because they are taken under the SA's lock. But packets of two workers leave
//! in another order than their numbers were taken, and a peer with a small replay window refuses
//! some of them.

use super::{Direction, Handle, Locked};
use crate::refusal::Refusal;

/// The user whose packets took the last sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Owner {
    /// None so far.
    #[default]
    None,
    /// The queue through which the packets of several workers go.
    Queue,
    /// A worker that encapsulates packets itself.
    Worker(u32),
}

impl<S: Handle> Locked<'_, S> {
    /// Gives the SA to the queue through which the packets of several workers go. A queue never
    /// waits for a worker that used the SA before.
    #[inline]
    pub fn claim_for_queue(&mut self) {
        self.state.owner = Owner::Queue;
    }

    /// Gives an outbound SA to a worker that encapsulates its own packets. The worker keeps it
    /// until it has sent nothing for [`QUIET_SECONDS`], or a queue claims the SA. An inbound SA
    /// needs no owner: its replay window accepts packets in any order.
    ///
    /// # Errors
    ///
    /// [`Refusal::Busy`] if another worker or a queue has the SA. The refusal is not counted yet.
    #[inline]
    pub fn claim_for_worker(&mut self, worker: u32) -> Result<(), Refusal> {
        let owner = Owner::Worker(worker);
        let state = &mut *self.state;
        if state.owner == owner || self.sa.direction == Direction::Inbound {
            return Ok(());
        }
        let is_free = state.owner == Owner::None
            || state.packets == 0
            || self.now >= state.used.saturating_add(QUIET_SECONDS);
        if !is_free {
            return Err(Refusal::Busy);
        }
        state.owner = owner;
        Ok(())
    }
}

/// Seconds without packets after which an SA may have another owner: all frames that were sent
/// before have left by then.
pub const QUIET_SECONDS: u64 = 2;
