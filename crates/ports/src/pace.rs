//! Pacing: the number of frames due at a rate, in bursts.

use std::time::{Duration, Instant};

/// Meters frames to a rate. Frames not sent in time are made up for, but at most those of a tenth
/// of a second.
#[derive(Debug)]
pub struct Pace {
    /// Nanoseconds between two bursts.
    period_ns: u64,
    burst: u64,
    start: Option<Instant>,
    /// Bursts sent since the start.
    sent: u64,
    /// Remaining frames of the current burst.
    left: u64,
}

impl Pace {
    /// A pace of `rate` frames per second (at least one), `burst` at a time.
    pub fn new(rate: u64, burst: u32) -> Pace {
        let burst = u64::from(burst.max(1));
        let period_ns = (burst.saturating_mul(1_000_000_000) / rate.max(1)).max(1);
        Pace { period_ns, burst, start: None, sent: 0, left: 0 }
    }

    /// Number of frames that may be sent now, at most `limit`. Report sent ones with
    /// [`Pace::sent`].
    pub fn due(&mut self, limit: usize) -> usize {
        if self.left == 0 {
            let now = Instant::now();
            let start = *self.start.get_or_insert(now);
            let elapsed = now.duration_since(start).as_nanos() as u64;
            let owed = elapsed / self.period_ns + 1;
            if owed <= self.sent {
                return 0;
            }
            let late =
                (owed - self.sent).saturating_sub(CATCH_UP.as_nanos() as u64 / self.period_ns + 1);
            self.sent += late + 1;
            self.left = self.burst;
        }
        limit.min(usize::try_from(self.left).unwrap_or(usize::MAX))
    }

    /// Notes that `count` of the due frames were sent.
    pub fn sent(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count as u64);
    }

    /// Time at which the next frame is due.
    pub fn next(&self) -> Option<Instant> {
        let start = self.start.filter(|_| self.left == 0)?;
        start.checked_add(Duration::from_nanos(self.period_ns.saturating_mul(self.sent)))
    }
}

/// Longest pause that is made up for.
const CATCH_UP: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_come_at_their_time() {
        let mut pace = Pace::new(1, 3);
        assert_eq!(pace.due(2), 2);
        pace.sent(2);
        assert_eq!(pace.due(64), 1);
        pace.sent(1);
        assert_eq!(pace.due(64), 0, "the next one is due in three seconds");
        let wait = pace.next().unwrap().duration_since(Instant::now());
        assert!(wait > Duration::from_secs(2) && wait <= Duration::from_secs(3));
    }
}
