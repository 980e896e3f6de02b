//! `bench/vhost`: virtual machines' ports.
//!
//! What a frame costs in a ring, on one core, with a driver in this process; and frames a second
//! beside DPDK's `net_vhost`, with DPDK's `net_virtio_user` as the guest of either.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod dpdk;
mod ring;

use std::time::Duration;

use clap::Parser;
use towpath_bench::median;
use towpath_bench::testpmd::Testpmd;

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 5)]
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
        let ((rx, rx_least, rx_most), (tx, tx_least, tx_most)) =
            (median(&figures.0), median(&figures.1));
        println!(
            "  {:32} from the guest {rx:6.2} ({rx_least:.2} .. {rx_most:.2})   \
             to the guest {tx:6.2} ({tx_least:.2} .. {tx_most:.2})",
            case.name
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
    for case in dpdk::cases().into_iter().filter(|case| case.name().contains(&args.only)) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            ours.push(dpdk::towpath(&case, window)? / 1e6);
            theirs.push(dpdk::net_vhost(&case, window)? / 1e6);
        }
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        let (a, a_least, a_most) = median(&ours);
        let (b, b_least, b_most) = median(&theirs);
        println!(
            "  {:36} {a:6.2} ({a_least:.2} .. {a_most:.2}) | {b:6.2} ({b_least:.2} .. {b_most:.2})   \
             {:.2}x",
            case.name(),
            median(&ratios).0
        );
    }
    Ok(())
}
