//! Time that a program's clocks show: the time of the capture, never going back.

use crate::args::Clock;

/// Turns capture times into clock times.
#[derive(Debug)]
pub(super) struct Time {
    clock: Clock,
    /// Added to every time of this pass, so that it continues where the pass before ended.
    shift_ns: u64,
    /// The latest time shown.
    latest_ns: u64,
    /// Whether the next frame is the first of a pass.
    is_first: bool,
}

impl Time {
    pub(super) fn new(clock: Clock) -> Self {
        Time { clock, shift_ns: 0, latest_ns: 0, is_first: true }
    }

    /// Starts the next pass over the capture.
    pub(super) fn begin_pass(&mut self) {
        self.is_first = true;
    }

    /// Time of clocks for a frame captured at `timestamp_ns`; `None` for the machine's time, also
    /// if the capture has no times.
    pub(super) fn of(&mut self, timestamp_ns: u64) -> Option<u64> {
        if self.clock == Clock::Machine || timestamp_ns == 0 && self.latest_ns == 0 {
            return None;
        }
        if timestamp_ns == 0 {
            return Some(self.latest_ns);
        }
        if self.is_first {
            self.shift_ns = self.latest_ns.saturating_sub(timestamp_ns);
            self.is_first = false;
        }
        // Frames of several interfaces may be slightly out of order; clocks never go back.
        self.latest_ns = self.latest_ns.max(timestamp_ns.saturating_add(self.shift_ns));
        Some(self.latest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_over_passes_and_never_back() {
        let mut time = Time::new(Clock::Capture);
        let shown: Vec<_> = [100, 130, 120].map(|ns| time.of(ns)).into();
        assert_eq!(shown, [Some(100), Some(130), Some(130)]);
        time.begin_pass();
        let shown: Vec<_> = [100, 130, 140].map(|ns| time.of(ns)).into();
        assert_eq!(shown, [Some(130), Some(160), Some(170)]);
        assert_eq!(time.of(0), Some(170), "a frame without a time");
        assert_eq!([Clock::Machine, Clock::Capture].map(|clock| Time::new(clock).of(0)), [None; 2]);
        assert_eq!(Time::new(Clock::Machine).of(100), None);
    }
}
