//! `bench/veth`: one veth, one program, one sender; the sides take turns.
//!
//! Beside each other: the kernel's XDP (native, generic), our port over AF_XDP, and DPDK's testpmd
//! with its AF_XDP and AF_PACKET drivers. The sender keeps to the first core and makes frames in
//! the kernel (`BPF_PROG_RUN`, live frames); the receiver in user space keeps to the second.
//!
//! ```text
//! sender -> far ~ near -> program -> drop | tx: near ~ far | redirect: out ~ end
//! ```

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod sides;
mod testpmd;

use std::time::Duration;

use clap::Parser;
use towpath_bench::median;

use sides::{Case, Side};
use towpath_bench::world::World;

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 1000)]
    window: u64,
    /// Bytes of a frame.
    #[arg(long, default_value_t = 64)]
    bytes: usize,
    /// Only sides whose name contains this.
    #[arg(long, default_value = "")]
    side: String,
    /// Only this case: drop, tx or redirect.
    #[arg(long)]
    case: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Err(why) = towpath_kernel::Kernel::open() {
        println!("skipped: {why}");
        return Ok(());
    }
    // Everything that is made here goes with this thread.
    towpath_kernel::isolate_network()
        .map_err(|errno| anyhow::anyhow!("a network namespace: {errno}"))?;
    let window = Duration::from_millis(args.window);
    println!(
        "{}-byte frames, millions a second: median (least .. most), x of native\n",
        args.bytes
    );
    for case in Case::ALL {
        if args.case.as_ref().is_some_and(|only| only != case.name()) {
            continue;
        }
        let sides: Vec<Side> = Side::all(case).filter(|s| s.name().contains(&args.side)).collect();
        let mut figures = vec![Vec::new(); sides.len()];
        for _ in 0..args.rounds {
            for (side, figures) in sides.iter().zip(&mut figures) {
                let world = World::new(args.bytes)?;
                figures.push(side.rate(case, &world, window)? / 1e6);
            }
        }
        print_case(case, &sides, &figures);
    }
    Ok(())
}

fn print_case(case: Case, sides: &[Side], figures: &[Vec<f64>]) {
    println!("{}", case.name());
    let native = figures.first().map_or(f64::NAN, |figures| median(figures).0);
    for (side, figures) in sides.iter().zip(figures) {
        let (rate, least, most) = median(figures);
        let share = rate / native;
        println!("  {:24} {rate:6.3} ({least:.3} .. {most:.3})   {share:5.2}x", side.name());
    }
    println!();
}
