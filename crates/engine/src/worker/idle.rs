//! How long a worker had nothing to do.

use std::time::Instant;

/// How long there was nothing to do.
#[derive(Default)]
pub(super) struct Idle {
    pub(super) since: Option<Instant>,
    /// Rounds so far.
    pub(super) rounds: u32,
    /// When queues were asked last what they lost.
    pub(super) missed: Option<Instant>,
}

impl Idle {
    /// There may be work soon.
    pub(super) fn spin_again(&mut self) {
        self.since = None;
    }
}
