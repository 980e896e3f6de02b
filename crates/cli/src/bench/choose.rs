//! Which frame a program is measured on: the one that makes it work longest in the interpreter.
//!
//! If the thousandth run finds the same bytes as the first, or at least the same as every second
//! run (a program that swaps addresses swaps them back), the frame is handed from run to run;
//! else it is made afresh for each.

use super::feed::{Feed, Renewal};
use super::side::{Here, Outcome, Side};

/// What a program does to a frame, time after time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Steady {
    /// After an odd number of runs.
    odd: Outcome,
    /// After an even number of runs.
    even: Outcome,
}

impl Steady {
    /// What it returns.
    pub(super) fn retval(&self) -> u32 {
        self.odd.retval
    }
}

/// The frames to measure on, the longest work first, each in the ways it may be repeated, the
/// simplest first. `side` is left with whatever the candidates did to its maps.
pub(super) fn choose(side: &mut Here, candidates: &[Vec<u8>]) -> Result<Vec<Feed>, String> {
    let mut refusal = "no frame to run it on".to_owned();
    let mut found: Vec<(f64, Feed)> = Vec::new();
    for candidate in candidates {
        let feed = Feed::new(candidate, Renewal::Rewritten);
        match least_time(side, &feed, RUNS_FIRST) {
            Ok(time) => found.push((time, feed)),
            Err(message) => refusal = message,
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    found.truncate(FINALISTS);
    for (time, feed) in &mut found {
        *time = least_time(side, feed, RUNS_FINAL).unwrap_or(0.0);
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    let ways = found.into_iter().flat_map(|(_, feed)| ways(side, &feed.packet));
    let ways: Vec<Feed> = ways.collect();
    if ways.is_empty() { Err(refusal) } else { Ok(ways) }
}

/// How a frame may be repeated.
fn ways(side: &mut Here, packet: &[u8]) -> Vec<Feed> {
    let feed = |renewal| Feed::new(packet, renewal);
    let kept = feed(Renewal::Kept);
    let is_steady = side.set_feed(&kept).is_ok() && steady(side).is_ok();
    if is_steady {
        return vec![kept];
    }
    let resized = side.run(1).is_ok_and(|outcome| outcome.data.len() != packet.len());
    if resized {
        vec![feed(Renewal::Resized), feed(Renewal::ResizedAtEnd)]
    } else {
        vec![feed(Renewal::Rewritten)]
    }
}

/// What the program makes of the packet run after run, if that is always the same.
pub(super) fn steady(side: &mut dyn Side) -> Result<Steady, String> {
    // Maps settle first: the first frame of a flow is another case than the rest.
    let mut outcomes = Vec::with_capacity(REPEATS.len());
    for repeat in REPEATS {
        outcomes.push(side.run(repeat)?);
    }
    let Ok([_, odd, even, even_later, odd_later]) = <[Outcome; 5]>::try_from(outcomes) else {
        return Err("no run".to_owned());
    };
    if odd != odd_later || even != even_later || odd.retval != even.retval {
        return Err("cannot be repeated: a later run does something else than the first".to_owned());
    }
    Ok(Steady { odd, even })
}

fn least_time(side: &mut Here, feed: &Feed, runs: u64) -> Result<f64, String> {
    side.set_feed(feed)?;
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        least = least.min(side.time(runs)?.ns());
    }
    Ok(least)
}

/// To settle; once; twice; many times, even; many times, odd.
const REPEATS: [u32; 5] = [64, 1, 2, 300, 301];
const RUNS_FIRST: u64 = 64;
const RUNS_FINAL: u64 = 1024;
const FINALISTS: usize = 6;
