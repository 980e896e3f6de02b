//! The processor's time stamp counter.

#![expect(unsafe_code, reason = "an instruction")]

use std::time::{Duration, Instant};

/// Ticks so far. The counter runs at one rate, whatever the core's clock does meanwhile.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every processor with x86-64 has it, and it reads no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Nanoseconds so far: other processors have no such counter for everybody.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Ticks in a nanosecond.
pub(crate) fn ticks_per_ns() -> f64 {
    let (start, before) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(100));
    let (count, elapsed) = (ticks() - before, start.elapsed());
    count as f64 / elapsed.as_nanos() as f64
}
