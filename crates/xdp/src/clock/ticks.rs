//! The monotonic clock, interpolated by the processor's counter between two readings.
//!
//! A reading of the clock takes 23 ns, 10 of them for the counter. Programs that limit rates or age
//! flows read the time for every frame. So the clock is read every 50 us, and the counter's
//! progress since then is added. The kernel's own clock for programs (`ktime_get_mono_fast_ns`)
//! combines readings and a counter in the same way.
//!
//! A worker's times never decrease, and are not ahead of the clock, because a reading is paired
//! with the counter's value after it.

use std::sync::OnceLock;

use rustix::time::ClockId;

use super::counter_unsafe::counter;
use super::now_ns;

/// A worker's calibration of clock and counter.
#[derive(Debug)]
pub(crate) struct Ticks {
    /// The counter at the last reading of the clock.
    ticks: u64,
    /// The clock's time at that count.
    ns: u64,
    /// Ticks after it in which the clock need not be read again; 0 while the pace is not known.
    window: u64,
    /// Nanoseconds of a tick, in units of 2^-32.
    pace: u64,
    /// A reading from which the pace is measured: ticks and nanoseconds.
    base: Option<(u64, u64)>,
    /// Ticks that an uninterrupted reading takes; 0 while that is not known.
    quick: u64,
    /// Whether the kernel's clock uses the counter.
    counts: bool,
}

impl Ticks {
    pub(crate) fn new() -> Ticks {
        let counts = runs_by_counter();
        Ticks { ticks: 0, ns: 0, window: 0, pace: 0, base: None, quick: 0, counts }
    }

    /// `CLOCK_MONOTONIC` in nanoseconds.
    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        if self.window != 0 {
            let since = counter().wrapping_sub(self.ticks);
            if since < self.window {
                return self.ns + self.span(since);
            }
        }
        self.read()
    }

    #[cold]
    #[inline(never)]
    fn read(&mut self) -> u64 {
        if !self.counts {
            return clock();
        }
        let before = counter();
        let now = clock();
        self.take(before, now, counter())
    }

    /// Notes the clock's time, read between two counter values; returns the time to report.
    fn take(&mut self, before: u64, now: u64, after: u64) -> u64 {
        // At least the latest time reported so far.
        let now = now.max(self.ns + self.span(self.window));
        (self.ticks, self.ns) = (after, now);
        let took = after.wrapping_sub(before);
        let is_pair = took <= self.quick + self.quick / 4;
        self.quick = match self.quick {
            // The first reading only measures how long a reading takes.
            0 => took,
            quick if is_pair => quick.min(took),
            // Should the processor get slower for good, longer readings become usual.
            quick => quick + quick / 64 + 1,
        };
        if is_pair {
            self.measure(after, now);
        }
        let has_pace = is_pair && self.pace != 0;
        self.window = if has_pace { (WINDOW_NS << 32) / self.pace } else { 0 };
        now
    }

    fn measure(&mut self, ticks: u64, ns: u64) {
        let Some((base_ticks, base_ns)) = self.base else {
            self.base = Some((ticks, ns));
            return;
        };
        let known = self.pace;
        let since_ns = ns.saturating_sub(base_ns);
        if since_ns < if known == 0 { FIRST_MEASURE_NS } else { MEASURE_NS } {
            return;
        }
        let since = u128::from(ticks.wrapping_sub(base_ticks));
        let pace = (u128::from(since_ns) << 32).checked_div(since).unwrap_or(0);
        let pace = u64::try_from(pace).unwrap_or(0).min(PACE_MAX);
        // After the machine slept, or the clock was set, the pace is measured again.
        let agrees = known == 0 || known.abs_diff(pace) <= known / 1024;
        self.pace = if agrees { pace } else { 0 };
        self.base = Some((ticks, ns));
    }

    /// Nanoseconds of `ticks` ticks, at most those of a window.
    #[inline(always)]
    fn span(&self, ticks: u64) -> u64 {
        debug_assert!(ticks <= self.window, "products of more ticks may not fit");
        (ticks * self.pace) >> 32
    }
}

fn clock() -> u64 {
    now_ns(ClockId::Monotonic)
}

/// Whether the kernel keeps time by the counter. Otherwise the counter may differ between
/// processors, or change its pace.
fn runs_by_counter() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    let asks = || std::fs::read_to_string(SOURCE).is_ok_and(|source| source.trim() == "tsc");
    *ANSWER.get_or_init(asks)
}

const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// Time for which the counter alone is used.
const WINDOW_NS: u64 = 50_000;
/// Time over which the pace is measured, at first and later.
const FIRST_MEASURE_NS: u64 = 1_000_000;
const MEASURE_NS: u64 = 1_000_000_000;
/// Pace of a counter of 4 MHz; with a slower one, a window would have too few ticks.
const PACE_MAX: u64 = 250 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// A calibration that has seen a counter of 4 GHz for a second.
    fn known() -> Ticks {
        let mut ticks = Ticks { counts: true, ..Ticks::new() };
        for ms in 0..3 {
            ticks.take(ms * 4_000_000, 5_000_000_000 + ms * 1_000_000, ms * 4_000_000 + 100);
        }
        ticks
    }

    #[test]
    fn the_counter_is_believed_for_a_window() {
        let ticks = known();
        assert_eq!(ticks.pace, 1 << 30, "a quarter of a nanosecond");
        assert_eq!(ticks.window, 200_000);
        assert_eq!(ticks.ns + ticks.span(4_000), 5_002_001_000);
    }

    #[test]
    fn what_is_shown_never_goes_back() {
        let mut ticks = known();
        let shown = ticks.ns + ticks.span(ticks.window);
        // The clock is behind what the counter said.
        assert_eq!(ticks.take(8_200_000, shown - 30, 8_200_100), shown);
    }

    #[test]
    fn an_interrupted_reading_is_no_pair() {
        let mut ticks = known();
        ticks.take(8_400_000, 5_002_100_000, 8_500_000);
        assert_eq!(ticks.window, 0, "the clock is read again");
        ticks.take(8_600_000, 5_002_150_000, 8_600_100);
        assert_eq!(ticks.window, 200_000);
    }

    #[test]
    fn an_interrupted_first_reading_is_no_base() {
        let mut ticks = Ticks { counts: true, ..Ticks::new() };
        // 3 ms went by behind the clock's answer.
        ticks.take(0, 5_000_000_000, 12_000_000);
        for ms in 4..7 {
            ticks.take(ms * 4_000_000, 5_000_000_000 + ms * 1_000_000, ms * 4_000_000 + 100);
        }
        assert_eq!(ticks.pace, 1 << 30);
    }

    #[test]
    fn a_clock_that_stood_still_is_measured_anew() {
        let mut ticks = known();
        ticks.take(40_000_000_000, 6_500_000_000, 40_000_000_100);
        assert_eq!((ticks.pace, ticks.window), (0, 0));
        ticks.take(40_008_000_000, 6_502_000_000, 40_008_000_100);
        assert_eq!(ticks.pace, 1 << 30);
    }

    #[test]
    fn it_is_the_clock() {
        let mut ticks = Ticks::new();
        let mut last = 0;
        let end = clock() + 20_000_000;
        while last < end {
            let before = clock();
            let now = ticks.now();
            let after = clock();
            assert!(now >= last);
            assert!(before <= now + 5_000 && now <= after + 5_000, "{before} {now} {after}");
            last = now;
        }
    }
}
