//! Choice of the tier that runs a program that has both: the one that takes less time for the
//! program's own frames, measured once.
//!
//! LLVM's code is usually faster, but not always. As soon as it is ready, bursts run on the two
//! tiers in turn, timed before and after, until there are enough of each. The median time of each
//! tier decides, so that interrupted bursts and bursts with unusual frames have little influence.
//! Afterwards a burst has no extra cost.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use towpath_jit::Tier;

/// A choice between the tiers, made or to be made.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    made: OnceLock<Measured>,
    /// Bursts of the trial so far.
    bursts: AtomicU32,
    /// Picoseconds per frame, of each burst on tier 1 and on tier 2.
    times: Mutex<[Vec<u64>; 2]>,
}

/// The measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Picoseconds per frame on tier 1 and on tier 2.
    times: [u64; 2],
}

impl Choice {
    /// The measurements, if the choice is made. Costs one load and a branch.
    #[inline]
    pub(crate) fn made(&self) -> Option<Measured> {
        self.made.get().copied()
    }

    /// The tier whose turn it is in the trial.
    #[cold]
    pub(crate) fn turn(&self) -> Tier {
        match self.bursts.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Tier::One,
            _ => Tier::Two,
        }
    }

    /// Notes the time of a burst of the trial.
    #[cold]
    pub(crate) fn note(&self, tier: Tier, frames: usize, time: Duration) {
        let Some(time) = (time.as_nanos() as u64 * 1000).checked_div(frames as u64) else { return };
        let mut times = self.times.lock();
        times[tier as usize].push(time);
        if times.iter().all(|times| times.len() >= BURSTS) {
            // The first bursts are left out, as they warm up caches and branch predictors.
            let times = std::mem::take(&mut *times).map(|all| median(all[WARM_UP..].to_vec()));
            // Another worker may have completed the trial, too.
            self.made.get_or_init(|| Measured { times });
        }
    }
}

impl Measured {
    /// The faster tier; tier 2 if there is no difference.
    pub(crate) fn faster(&self) -> Tier {
        let [one, two] = self.times;
        if two <= one { Tier::Two } else { Tier::One }
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [one, two] = self.times.map(|time| time as f64 / 1000.0);
        write!(f, "tier 1 took {one:.1} ns for a frame, tier 2 {two:.1}")
    }
}

fn median(mut times: Vec<u64>) -> u64 {
    let middle = times.len() / 2;
    *times.select_nth_unstable(middle).1
}

/// Bursts of the trial on each tier.
const BURSTS: usize = 72;
/// Number of these that do not count.
const WARM_UP: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a trial in which `time` says how long each burst takes.
    fn trial(time: impl Fn(Tier, usize) -> u64) -> (Measured, usize) {
        let choice = Choice::default();
        for burst in 0..10_000 {
            if let Some(measured) = choice.made() {
                return (measured, burst);
            }
            let tier = choice.turn();
            choice.note(tier, 64, Duration::from_nanos(time(tier, burst)));
        }
        panic!("no end");
    }

    #[test]
    fn the_faster_tier_is_chosen_after_a_fixed_number_of_bursts() {
        let (measured, bursts) = trial(|tier, _| if tier == Tier::One { 640 } else { 704 });
        assert_eq!((measured.faster(), bursts), (Tier::One, 2 * BURSTS));
        assert_eq!(measured.to_string(), "tier 1 took 10.0 ns for a frame, tier 2 11.0");
        let (measured, _) = trial(|tier, _| if tier == Tier::One { 704 } else { 640 });
        assert_eq!(measured.faster(), Tier::Two);
        assert_eq!(trial(|_, _| 640).0.faster(), Tier::Two);
    }

    #[test]
    fn interruptions_and_the_start_do_not_count() {
        let (measured, _) = trial(|tier, burst| match tier {
            Tier::Two if burst < 2 * WARM_UP || burst % 5 == 0 => 1_000_000,
            Tier::Two => 600,
            Tier::One => 640,
        });
        assert_eq!(measured.faster(), Tier::Two);
    }

    #[test]
    fn bursts_without_frames_say_nothing() {
        let choice = Choice::default();
        (0..1000).for_each(|_| choice.note(Tier::One, 0, Duration::from_secs(1)));
        (0..1000).for_each(|_| choice.note(Tier::Two, 1, Duration::from_secs(1)));
        assert_eq!(choice.made(), None);
    }
}
