//! The clock of programs: the machine's, or one that the caller sets.
//!
//! Programs that limit rates or age flows work on a capture only if time passes as it did when the
//! frames were captured.

mod counter_unsafe;
mod ticks;

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

pub(crate) use ticks::Ticks;

/// The time for software timestamps of frames, as from devices' clocks: nanoseconds of `CLOCK_TAI`;
/// 0 on a kernel without it.
pub fn tai_now() -> u64 {
    clock_gettime_dynamic(DynamicClockId::Tai).map_or(0, in_ns)
}

/// Time of one of the machine's clocks, in nanoseconds.
#[inline]
pub fn now_ns(clock: ClockId) -> u64 {
    in_ns(clock_gettime(clock))
}

fn in_ns(time: Timespec) -> u64 {
    time.tv_sec as u64 * NS_PER_SECOND + time.tv_nsec as u64
}

/// The clock of all programs that share it.
#[derive(Debug, Default)]
pub struct Clock {
    /// Nanoseconds; 0 while the machine's clocks are used.
    set_ns: AtomicU64,
}

impl Clock {
    /// Sets the time of every clock that programs can read, in nanoseconds, until it is set again.
    /// 0 means the machine's clocks.
    pub fn set(&self, ns: u64) {
        self.set_ns.store(ns, Ordering::Relaxed);
    }

    /// The time that was set, if any.
    pub fn set_time(&self) -> Option<u64> {
        Some(self.set_ns.load(Ordering::Relaxed)).filter(|&ns| ns != 0)
    }
}

pub(crate) const NS_PER_SECOND: u64 = 1_000_000_000;
