//! Choice of the frame that a program is measured on: the one for which the interpreter executes
//! most instructions. Times would choose another frame in another minute.
//!
//! If the thousandth run finds the same bytes as the first, or at least the same as every second
//! run (a program that swaps addresses swaps them back), the frame is handed from run to run; else
//! it is restored before each run.

use std::cmp::Reverse;

use super::feed::{Feed, Renewal};
use super::side::{Here, Outcome, Side};

/// Outcomes of a program on a frame that runs through it repeatedly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Steady {
    /// Outcome after an odd number of runs.
    odd: Outcome,
    /// Outcome after an even number of runs.
    even: Outcome,
}

impl Steady {
    /// Return value of the program.
    pub(super) fn retval(&self) -> u32 {
        self.odd.retval
    }
}

/// A frame to measure on, and one way to repeat it.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) feed: Feed,
    /// Number of the frame among the candidates.
    pub(super) number: usize,
    /// Instructions that the interpreter executes for the frame.
    pub(super) executed: u64,
}

/// Frames to measure on, those with the most work first, each in the ways it may be repeated, the
/// simplest first. The candidates' runs change the maps of `side`, and the changes stay.
pub(super) fn choose(
    side: &mut Here,
    candidates: &[Vec<u8>],
    wanted: Option<usize>,
) -> Result<Vec<Choice>, String> {
    let mut refusal = match wanted {
        Some(number) => format!("no frame {number}: there are {}", candidates.len()),
        None => "no frame to run it on".to_owned(),
    };
    let mut found: Vec<Choice> = Vec::new();
    for (number, candidate) in candidates.iter().enumerate() {
        if wanted.is_some_and(|wanted| wanted != number) {
            continue;
        }
        let feed = Feed::new(candidate, Renewal::Rewritten);
        match side.work(&feed) {
            Ok(executed) => found.push(Choice { feed, number, executed }),
            Err(message) => refusal = message,
        }
    }
    found.sort_by_key(|choice| (Reverse(choice.executed), choice.number));
    // Frames that need equal work are mostly alike: if one can't be repeated, neither can the
    // others.
    found.dedup_by_key(|choice| choice.executed);
    found.truncate(FINALISTS);
    let in_each_way = |choice: Choice| {
        let ways = ways(side, &choice.feed.packet);
        ways.into_iter().map(move |feed| Choice { feed, ..choice })
    };
    let choices: Vec<Choice> = found.into_iter().flat_map(in_each_way).collect();
    if choices.is_empty() { Err(refusal) } else { Ok(choices) }
}

/// Ways in which a frame may be repeated.
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

/// Outcomes of the program on the same packet, run after run, if they repeat.
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

/// Runs of each step: to settle; once; twice; many times, even; many times, odd.
const REPEATS: [u32; 5] = [64, 1, 2, 300, 301];
const FINALISTS: usize = 6;
