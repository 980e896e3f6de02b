//! Which frame a program is measured on: the one that makes it work longest in the interpreter, of
//! those that can be repeated.
//!
//! `BPF_PROG_TEST_RUN` hands a frame to the next run as the run before left it. So a frame will do
//! only if the thousandth run finds the same bytes as the first, or at least the same as every
//! second run (a program that swaps addresses swaps them back).

use super::side::{Outcome, Side};

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

/// Why a program has no frame to be measured on.
#[derive(Debug, Default)]
struct Refusals {
    changes: usize,
    resizes: usize,
    failed: Option<String>,
}

/// The frames to measure on, the longest work first. `side` is left with whatever the candidates
/// did to its maps.
pub(super) fn choose(side: &mut dyn Side, candidates: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let mut refusals = Refusals::default();
    let mut found: Vec<(f64, Vec<u8>)> = Vec::new();
    for candidate in candidates {
        if let Some(packet) = steady_form(side, candidate, &mut refusals)
            && let Some(time) = least_time(side, &packet, RUNS_FIRST)
        {
            found.push((time, packet));
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    found.truncate(FINALISTS);
    for (time, packet) in &mut found {
        *time = least_time(side, packet, RUNS_FINAL).unwrap_or(0.0);
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    if found.is_empty() { Err(refusals.reason()) } else { Ok(frames(found)) }
}

fn frames(found: Vec<(f64, Vec<u8>)>) -> Vec<Vec<u8>> {
    found.into_iter().map(|(_, packet)| packet).collect()
}

/// What the program makes of the packet run after run, if that is always the same.
pub(super) fn steady(side: &mut dyn Side, packet: &[u8]) -> Result<Steady, String> {
    let mut refusals = Refusals::default();
    observe(side, packet, &mut refusals).ok_or_else(|| refusals.reason())
}

/// The packet, or what the program makes of it in the end, e.g. with the address it rewrites
/// already rewritten.
fn steady_form(side: &mut dyn Side, packet: &[u8], refusals: &mut Refusals) -> Option<Vec<u8>> {
    let mut ignored = Refusals::default();
    if observe(side, packet, &mut ignored).is_some() {
        return Some(packet.to_vec());
    }
    let after = side.run(packet, SETTLE_RUNS).ok().map(|outcome| outcome.data);
    let after = after.filter(|after| after.len() == packet.len())?;
    observe(side, &after, refusals).map(|_| after)
}

fn observe(side: &mut dyn Side, packet: &[u8], refusals: &mut Refusals) -> Option<Steady> {
    // Maps settle first: the first frame of a flow is another case than the rest.
    let mut outcomes = Vec::with_capacity(REPEATS.len());
    for repeat in REPEATS {
        match side.run(packet, repeat) {
            Ok(outcome) => outcomes.push(outcome),
            Err(message) => {
                refusals.failed = Some(message);
                return None;
            }
        }
    }
    let [_, odd, even, even_later, odd_later] = <[Outcome; 5]>::try_from(outcomes).ok()?;
    if [&odd, &even, &odd_later].iter().any(|outcome| outcome.data.len() != packet.len()) {
        refusals.resizes += 1;
        return None;
    }
    if odd != odd_later || even != even_later || odd.retval != even.retval {
        refusals.changes += 1;
        return None;
    }
    Some(Steady { odd, even })
}

fn least_time(side: &mut dyn Side, packet: &[u8], runs: u64) -> Option<f64> {
    side.place(packet).ok()?;
    let times: Option<Vec<f64>> = (0..3).map(|_| side.time(runs).ok().map(|t| t.ns())).collect();
    Some(times?.into_iter().fold(f64::INFINITY, f64::min))
}

impl Refusals {
    fn reason(self) -> String {
        let Refusals { changes, resizes, failed } = self;
        match failed {
            _ if resizes > 0 && resizes >= changes => {
                "cannot be repeated: it changes the size of every frame it works on".to_owned()
            }
            _ if changes > 0 => {
                "cannot be repeated: a second run does something else than the first".to_owned()
            }
            Some(message) => message,
            None => "no frame to run it on".to_owned(),
        }
    }
}

/// To settle; once; twice; many times, even; many times, odd.
const REPEATS: [u32; 5] = [64, 1, 2, 300, 301];
const SETTLE_RUNS: u32 = 300;
const RUNS_FIRST: u64 = 64;
const RUNS_FINAL: u64 = 1024;
const FINALISTS: usize = 6;
