//! What time programs see: the machine's, or one that the caller sets.
//!
//! A program that limits rates or ages flows makes sense over a capture only if time passes as it
//! did when the frames were captured.

use std::sync::atomic::{AtomicU64, Ordering};

/// The clock of all programs that share it.
#[derive(Debug, Default)]
pub struct Clock {
    /// Nanoseconds; 0 while the machine's clocks are used.
    set_ns: AtomicU64,
}

impl Clock {
    /// From now on every clock that programs can read shows this time, in nanoseconds, until it is
    /// set again. 0 means the machine's clocks.
    pub fn set(&self, ns: u64) {
        self.set_ns.store(ns, Ordering::Relaxed);
    }

    /// The time that was set, if any.
    pub fn set_time(&self) -> Option<u64> {
        Some(self.set_ns.load(Ordering::Relaxed)).filter(|&ns| ns != 0)
    }
}
