//! The time of a burst, where it is limited, and what of a burst is given up.
//!
//! Programs that are as fast as they should be are asked for the time once a burst. Of others fewer
//! frames are run between two looks at the clock, so that a burst is over its time by no more than
//! a part of it, or by what one frame may take.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use towpath_bpf::interp::{Stop, Violation};

use crate::clock::Ticks;
use crate::standing::Standing;

/// The time of a burst.
#[derive(Debug)]
pub(crate) struct Pace<'a> {
    standing: &'a Standing,
    /// Its limit, if it has one.
    limit_ns: Option<u64>,
    started_ns: u64,
    /// When it was last looked at the clock.
    looked_ns: u64,
    is_over: bool,
}

/// How a run ended, as far as that matters to the rest of the burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Returned,
    /// It did what no verified program can do.
    Fault,
    /// It took more than it may.
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
    /// A burst begins.
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

    /// How many of so many frames are run before the next look.
    #[inline]
    pub(crate) fn step(&self, frames: usize) -> usize {
        let Some(limit_ns) = self.limit_ns else { return frames };
        let left_ns = limit_ns.saturating_sub(self.looked_ns - self.started_ns);
        let known_ns = u64::from(self.standing.frame_ns.load(Relaxed));
        let frame_ns = if known_ns == 0 { limit_ns / FIRST } else { known_ns };
        frames.min((left_ns / 2 / frame_ns.max(1)).max(1) as usize)
    }

    /// So many frames more were run, the last of which ended like that; gives whether the others
    /// are aborted.
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
        // Down it goes slowly: what was slow may be so again.
        let frame_ns = sample_ns.max((3 * known_ns + sample_ns) / 4);
        self.standing.frame_ns.store(frame_ns.min(u32::MAX.into()) as u32, Relaxed);
        self.is_over = end == End::Budget || now_ns - self.started_ns > limit_ns;
        self.is_over
    }

    /// The burst is done with.
    #[inline]
    pub(crate) fn finish(self) {
        if self.limit_ns.is_some() {
            self.standing.note_burst(self.is_over);
        }
    }
}

/// Of a program that never ran it is thought that so many frames take all the time.
const FIRST: u64 = 16;
