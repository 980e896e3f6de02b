//! Idle state of a worker. `sleep.rs` decides how long an idle worker polls before it sleeps.

use std::time::Instant;

/// Idle state of a worker.
#[derive(Default)]
pub(super) struct Idle {
    pub(super) since: Option<Instant>,
    /// Rounds so far.
    pub(super) rounds: u32,
    /// Time of the last read of queues' missed frames.
    pub(super) missed: Option<Instant>,
}

impl Idle {
    /// Restarts spinning, as there may be work soon.
    pub(super) fn spin_again(&mut self) {
        self.since = None;
    }
}
