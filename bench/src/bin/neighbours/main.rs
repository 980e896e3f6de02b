//! `bench/neighbours`: what a port keeps of its frames while a neighbour on its worker does its
//! worst: guests' programs that copy much, operators' programs that do not return, a front end that
//! changes the flags of the descriptors it passed.
//!
//! Each attack is beside the same seconds without one, in turns. Frames that a full ring refuses
//! count as lost, as on a wire.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod attack;
mod scene;

use std::time::Duration;

use clap::Parser;

use attack::Attack;
use scene::{Kept, Scene};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; with and without the attack take turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each measurement, the attack's first moment included.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The neighbour's frames in a millisecond.
    #[arg(long, default_value_t = 20)]
    per_ms: usize,
    /// The attacker's frames in a millisecond.
    #[arg(long, default_value_t = 20)]
    flood_per_ms: usize,
    /// Only attacks whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!(
        "the neighbour's {} frames/s over {} s, one worker: share that arrives",
        args.per_ms * 1000,
        args.seconds
    );
    for attack in Attack::all() {
        if attack.to_string().contains(&args.only) {
            compare(&args, attack)?;
        }
    }
    Ok(())
}

fn compare(args: &Args, attack: Attack) -> anyhow::Result<()> {
    let (mut shares, mut bases, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let (base, _) = run(args, Attack::Nothing)?;
        let (kept, ended) = run(args, attack)?;
        bases.push(base.share());
        shares.push(kept.share());
        ends.push(ended);
    }
    let ratio = middle(&mut shares) / middle(&mut bases);
    let longest = ends.iter().max().copied().unwrap_or_default();
    println!(
        "  {:38} {:6.2} % ({:.2} .. {:.2})   without {:6.2} %   {ratio:.4}x   undone in {} ms",
        attack.to_string(),
        100.0 * middle(&mut shares),
        100.0 * shares.iter().copied().fold(f64::INFINITY, f64::min),
        100.0 * shares.iter().copied().fold(0.0, f64::max),
        100.0 * middle(&mut bases),
        longest.as_millis()
    );
    Ok(())
}

/// Measures once: gives the neighbour's frames, and the longer one of the times that it took to
/// undo the attack and to stop the workers.
fn run(args: &Args, attack: Attack) -> anyhow::Result<(Kept, Duration)> {
    let mut scene = Scene::new()?;
    let undo = attack.begin(&mut scene)?;
    let kept = scene.measure(Duration::from_secs(args.seconds), args.per_ms, args.flood_per_ms)?;
    let undone = undo.finish(&mut scene)?;
    Ok((kept, undone.max(scene.stop())))
}

fn middle(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
