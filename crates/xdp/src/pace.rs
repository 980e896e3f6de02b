//! Time limits of bursts, and aborting the rest of a burst.
//!
//! For fast programs the clock is read once per burst. For slower ones fewer frames run between two
//! readings, so that a burst exceeds its limit only by a fraction, or by the time of one frame.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use towpath_bpf::interp::{Stop, Violation};

use crate::clock::Ticks;
use crate::standing::Standing;

/// The time of a burst.
#[derive(Debug)]
pub(crate) struct Pace<'a> {
    standing: &'a Standing,
    /// Its limit in nanoseconds, if it has one.
    limit_ns: Option<u64>,
    started_ns: u64,
    /// Time of the last reading of the clock.
    looked_ns: u64,
    is_over: bool,
}

/// The end of a run, as far as it matters to the rest of the burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Returned,
    /// It faulted, which no verified program can do.
    Fault,
    /// It exceeded its budget.
    Budget,
    /// It was asked to end.
    Stopped,
}

impl End {
    pub(crate) fn of(violation: &Violation) -> End {
        match violation {
            Violation::Budget { .. } => End::Budget,
            Violation::Stopped => End::Stopped,
            _ => End::Fault,
        }
    }

    pub(crate) fn of_stop(stop: &Stop) -> End {
        match stop {
            Stop::Violation(violation) => End::of(violation),
            Stop::Throw(_) => End::Returned,
        }
    }
}

impl<'a> Pace<'a> {
    /// Starts a burst.
    #[inline]
    pub(crate) fn new(
        standing: &'a Standing,
        limit: Option<Duration>,
        ticks: &mut Ticks,
    ) -> Pace<'a> {
        let limit_ns = limit.map(|limit| limit.as_nanos() as u64);
        let started_ns = if limit_ns.is_some() { ticks.now() } else { 0 };
        Pace { standing, limit_ns, started_ns, looked_ns: started_ns, is_over: false }
    }

    /// Number of the next `frames` frames to run before the clock is read again.
    #[inline]
    pub(crate) fn step(&self, frames: usize) -> usize {
        let Some(limit_ns) = self.limit_ns else { return frames };
        let left_ns = limit_ns.saturating_sub(self.looked_ns - self.started_ns);
        let known_ns = u64::from(self.standing.frame_ns.load(Relaxed));
        let frame_ns = if known_ns == 0 { limit_ns / FIRST } else { known_ns };
        frames.min((left_ns / 2 / frame_ns.max(1)).max(1) as usize)
    }

    /// Notes that `frames` more frames were run, the last of which ended with `end`; returns
    /// whether the remaining frames are aborted.
    #[inline]
    pub(crate) fn ends(&mut self, frames: usize, end: End, ticks: &mut Ticks) -> bool {
        if end == End::Stopped {
            return true;
        }
        let Some(limit_ns) = self.limit_ns else { return false };
        let now_ns = ticks.now().max(self.looked_ns);
        let sample_ns = (now_ns - self.looked_ns) / frames.max(1) as u64;
        self.looked_ns = now_ns;
        let known_ns = u64::from(self.standing.frame_ns.load(Relaxed));
        // The estimate decreases slowly, as the program may be slow again.
        let frame_ns = sample_ns.max((3 * known_ns + sample_ns) / 4);
        self.standing.frame_ns.store(frame_ns.min(u32::MAX.into()) as u32, Relaxed);
        self.is_over = end == End::Budget || now_ns - self.started_ns > limit_ns;
        self.is_over
    }

    /// Ends the burst.
    #[inline]
    pub(crate) fn finish(self) {
        if self.limit_ns.is_some() {
            self.standing.note_burst(self.is_over);
        }
    }
}

/// Assumed number of frames that take the whole time, for a program that never ran.
const FIRST: u64 = 16;
