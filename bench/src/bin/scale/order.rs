//! How much younger than the oldest entry an evicted one is.
//!
//! Threads insert numbers, counted up by an atomic addition, into an LRU table without look-ups. A
//! table in perfect order then holds the last ones, as many as it has places. What is missing of
//! these was evicted too early: by how much is where it stood among them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::flows::PLACES;
use crate::here::{Here, run};
use crate::kernel::InKernel;
use crate::threads::together;

/// The heading above the lines of [`Order`].
pub(crate) const HEADING: &str = "evicted too early: share of the last 131,072 insertions that is \
     missing, and how much younger than the oldest these were\n(share of the table's age): median, \
     99 of 100, most";

/// The evictions of one number of threads.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) threads: usize,
    pub(crate) here: Early,
    pub(crate) kernel: Option<Early>,
}

/// How many entries were evicted too early, and by how much.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Early {
    /// Share of the youngest entries that is missing.
    pub(crate) missing: f64,
    /// How much younger than the oldest those are, as a share: median, 99th of 100, most.
    pub(crate) younger: [f64; 3],
}

pub(crate) fn measure(
    counts: &[usize],
    here: &Here<'_>,
    kernel: Option<&InKernel>,
) -> anyhow::Result<Vec<Order>> {
    let program = here.program(PROGRAM)?;
    let peer = kernel.map(|kernel| kernel.program(PROGRAM)).transpose()?;
    let runs = u64::from(PLACES) * ROUNDS;
    let one = |&threads: &usize| {
        let done = AtomicU64::new(0);
        together(here.cpus(threads), |worker, start| {
            let mut before = 0;
            run(&program, worker, start, |runs_so_far, _| {
                let more = runs_so_far - before;
                before = runs_so_far;
                done.fetch_add(more, Ordering::Relaxed) + more < runs
            })?;
            Ok(0.0)
        })?;
        let own = Early::of(here.stamps()?);
        let mut there = None;
        if let (Some(kernel), Some(peer)) = (kernel, &peer) {
            kernel.run(peer, threads, runs)?;
            there = Some(Early::of(kernel.stamps()?));
        }
        Ok(Order { threads, here: own, kernel: there })
    };
    counts.iter().map(one).collect()
}

impl Early {
    fn of((keys, next): (Vec<u64>, u64)) -> Early {
        let places = u64::from(PLACES);
        let oldest = next.saturating_sub(places);
        let mut is_there = vec![false; PLACES as usize];
        for key in keys.into_iter().filter(|&key| key >= oldest && key < next) {
            is_there[(key - oldest) as usize] = true;
        }
        let missing: Vec<usize> =
            is_there.iter().enumerate().filter(|(_, there)| !**there).map(|(at, _)| at).collect();
        let share = |at: usize| at as f64 / places as f64;
        let at = |hundredth: usize| missing.get(missing.len() * hundredth / 100);
        let younger = [at(50), at(99), missing.last()].map(|at| at.map_or(0.0, |&at| share(at)));
        Early { missing: share(missing.len()), younger }
    }
}

impl fmt::Display for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, most_of_all, most] = self.younger.map(|share| share * 100.0);
        let missing = self.missing * 100.0;
        write!(f, "{missing:6.2} % ({median:.2}, {most_of_all:.2}, {most:.2} %)")
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>3} threads: {:32}", self.threads, self.here.to_string())?;
        match &self.kernel {
            Some(kernel) => write!(f, " | kernel {kernel}"),
            None => Ok(()),
        }
    }
}

const PROGRAM: &str = "stamped_insert";
/// How many times its places the table is given new entries.
const ROUNDS: u64 = 6;
