//! Measures a program with new flows: each round begins, on all sides, with maps that contain none
//! of them, and is so short that new flows are a large share of its frames.

use super::feed::Feed;
use super::measure::{LEAST_NS, Ours};
use super::side::Side;
use super::subject::{Subject, empty_here, empty_peer};

/// Runs the rounds; gives the times of each of our engines, and the peer's times.
pub(super) fn measure(subject: &Subject<'_>, feed: &Feed) -> Result<(Vec<Ours>, Vec<f64>), String> {
    let args = subject.args;
    let runs = runs(feed.flows);
    let (mut all, mut peer_times) = (Vec::<Ours>::new(), Vec::new());
    let mut empty = empty_peer(args, subject.opened, feed)?;
    let mut empty_heres = Vec::new();
    for &exec in &args.exec {
        empty_heres.push(empty_here(args, subject.opened, exec, feed)?);
    }
    for _ in 0..args.rounds {
        peer_times.push(time(&mut *subject.peer(feed)?.0, &mut *empty, runs)?);
        for (at, (&exec, empty)) in args.exec.iter().zip(&mut empty_heres).enumerate() {
            let (mut here, mut ours) = Ours::new(subject, exec, feed)?;
            // A daemon does this, and so does the kernel when it makes a map.
            for map in here.program.maps().maps() {
                while map.populate_step() {}
            }
            let ns = time(&mut here, empty, runs)?;
            match all.get_mut(at) {
                Some(before) => before.times.push(ns),
                None => {
                    ours.times.push(ns);
                    all.push(ours);
                }
            }
        }
    }
    Ok((all, peer_times))
}

/// Nanoseconds of the program's work, without those of an empty program.
fn time(program: &mut dyn Side, empty: &mut dyn Side, runs: u64) -> Result<f64, String> {
    let nothing = empty.time(runs)?;
    let whole = program.time(runs)?;
    Ok((whole.ns() - nothing.ns()).max(LEAST_NS))
}

/// Number of runs of a round: each of few flows comes sixteen times, each of many flows twice.
fn runs(flows: u32) -> u64 {
    let flows = u64::from(flows);
    (16 * flows).clamp(RUNS_MIN, RUNS_MAX.max(2 * flows))
}

/// With fewer runs, the cost of the call would be a large part of the time.
const RUNS_MIN: u64 = 1 << 16;
const RUNS_MAX: u64 = 1 << 21;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_come_again_and_not_too_often() {
        assert_eq!([2, 1 << 12, 1 << 20, 1 << 24].map(runs), [1 << 16, 1 << 16, 1 << 21, 1 << 25]);
    }
}
