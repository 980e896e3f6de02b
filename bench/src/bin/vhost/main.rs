//! `bench/vhost`: virtual machines' ports.
//!
//! What a frame costs in a ring, on one core, with a driver in this process; and frames a second
//! beside DPDK's `net_vhost`, with DPDK's `net_virtio_user` as the guest of either. Where the host
//! sends, each host makes its frames itself: the first lines have its rate without a receiver.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod dpdk;
mod ring;

use std::time::Duration;

use clap::Parser;
use towpath_bench::testpmd::Testpmd;
use towpath_bench::{Turns, spread};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 1000)]
    window: u64,
    /// The cost in rings only.
    #[arg(long)]
    ring: bool,
    /// Only cases whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!("ns a frame in the ring, copy included, bursts of 64, ring of 256: median\n");
    for case in ring::CASES.iter().filter(|case| case.name.contains(&args.only)) {
        let mut figures = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            let (rx, tx) = ring::measure(case)?;
            figures.0.push(rx);
            figures.1.push(tx);
        }
        println!(
            "  {:32} from the guest {}   to the guest {}",
            case.name,
            spread(&figures.0),
            spread(&figures.1)
        );
    }
    if args.ring {
        return Ok(());
    }
    if !Testpmd::is_installed() {
        println!("\nskipped: dpdk-testpmd is missing (Debian: dpdk-dev)");
        return Ok(());
    }
    beside_dpdk(&args)
}

fn beside_dpdk(args: &Args) -> anyhow::Result<()> {
    println!("\nMpps, a program on every frame | net_vhost without one: median\n");
    let window = Duration::from_millis(args.window);
    for bytes in [64, 1500] {
        let name = format!("frames made, to nowhere, {bytes} B");
        if !name.contains(&args.only) {
            continue;
        }
        let ours = || Ok(dpdk::made_here(bytes, window)? / 1e6);
        let theirs = || Ok(dpdk::made_there(bytes, window)? / 1e6);
        print(&name, &Turns::take(args.rounds, ours, theirs)?);
    }
    for case in dpdk::cases().into_iter().filter(|case| case.name().contains(&args.only)) {
        let ours = || Ok(dpdk::towpath(&case, window)? / 1e6);
        let theirs = || Ok(dpdk::net_vhost(&case, window)? / 1e6);
        print(&case.name(), &Turns::take(args.rounds, ours, theirs)?);
    }
    Ok(())
}

fn print(name: &str, turns: &Turns) {
    let (ours, theirs) = (spread(&turns.one), spread(&turns.other));
    println!("  {name:36} {ours} | {theirs}   {:.2}x", turns.ratio());
}
