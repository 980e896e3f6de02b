//! Times at which failures are retried.

use std::time::{Duration, Instant};

/// The next retry, after ever longer pauses. The first pause is short, since the cause may be over
/// in a moment, such as a device that another process is still closing.
#[derive(Debug)]
pub(crate) struct Retry {
    pause: Duration,
    due: Instant,
}

impl Retry {
    pub(crate) fn after(pause: Duration) -> Retry {
        assert!(pause <= RETRY_PAUSE_MAX, "what failed is tried again soon");
        Retry { pause, due: Instant::now() + pause }
    }

    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    pub(crate) fn next_pause(&self) -> Duration {
        (self.pause + self.pause / 2).min(RETRY_PAUSE_MAX)
    }
}

pub(crate) const RETRY_PAUSE_MIN: Duration = Duration::from_millis(100);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);
const _: () = assert!(RETRY_PAUSE_MIN.as_nanos() < RETRY_PAUSE_MAX.as_nanos());
