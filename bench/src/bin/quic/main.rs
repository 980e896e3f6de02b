//! `bench/quic`: QUIC by quinn over Towpath's UDP sockets beside quinn over the kernel's, between
//! two hosts joined by a veth.
//!
//! The far host is quinn over the kernel in every case, on the first core; the near host is on the
//! second, with Towpath's worker if it has one. One connection moves bytes in one direction. The
//! sides take turns. Needs root and `scripts/install-deps.sh net`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod ends;
#[path = "../../../../crates/cli/src/demo/quic/tls.rs"]
mod tls;

use std::time::{Duration, Instant};

use clap::Parser;
use towpath_bench::hosts::{Hosts, Link, unavailable};
use towpath_bench::{WORKERS, median, own_threads_cpu_ns, softirq_ns};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 2000)]
    window: u64,
    /// Measure only cases whose names begin with this text.
    #[arg(long, default_value = "")]
    only: String,
}

/// The sockets of the near host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Towpath,
    /// The kernel's, with segmentation and receive offloads (`UDP_SEGMENT`, `UDP_GRO`).
    Offloads,
    /// The kernel's, one datagram a call to send.
    NoSegmentation,
}

/// A transfer to measure, and the sockets that take turns in it.
struct Case {
    name: &'static str,
    near_sends: bool,
    link: Link,
    /// The near host's sockets that take turns with Towpath's.
    others: &'static [Side],
}

const CASES: [Case; 4] = [
    Case {
        name: "send, segments cut by the kernel",
        near_sends: true,
        link: Link::Cut,
        others: &[Side::Offloads, Side::NoSegmentation],
    },
    Case {
        name: "send, segments passed whole",
        near_sends: true,
        link: Link::Whole,
        others: &[Side::Offloads],
    },
    Case {
        name: "receive, segments cut by the kernel",
        near_sends: false,
        link: Link::Cut,
        others: &[Side::Offloads],
    },
    Case {
        name: "receive, segments passed whole",
        near_sends: false,
        link: Link::Whole,
        others: &[Side::Offloads],
    },
];

/// Result of one measurement.
#[derive(Debug, Clone, Copy)]
struct Counted {
    gbits: f64,
    /// Nanoseconds of processor time a datagram: the far host, the near host, Towpath's worker,
    /// softirqs.
    ns: [f64; 4],
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(why) = unavailable() {
        println!("skipped: {why}");
        return Ok(());
    }
    println!(
        "QUIC (quinn, AES-128-GCM) over a veth, one connection; Gbit/s: median (least .. most);"
    );
    println!(
        "ns of processor time a datagram of the far host, the near host, the worker, softirqs\n"
    );
    for case in CASES.iter().filter(|case| case.name.starts_with(&args.only)) {
        let mut sides = vec![Side::Towpath];
        sides.extend(case.others);
        let mut figures = vec![Vec::new(); sides.len()];
        for _ in 0..args.rounds {
            for (side, figures) in sides.iter().zip(&mut figures) {
                figures.push(measure(case, *side, Duration::from_millis(args.window))?);
            }
        }
        println!("  {}", case.name);
        let ours = &figures[0];
        for (side, figures) in sides.iter().zip(&figures) {
            print_side(*side, figures, ours);
        }
    }
    Ok(())
}

fn print_side(side: Side, rounds: &[Counted], ours: &[Counted]) {
    let figures = |rounds: &[Counted], read: &dyn Fn(&Counted) -> f64| {
        median(&rounds.iter().map(read).collect::<Vec<_>>())
    };
    let name = match side {
        Side::Towpath => "towpath",
        Side::Offloads => "kernel, GSO and GRO",
        Side::NoSegmentation => "kernel, no GSO",
    };
    let (rate, least, most) = figures(rounds, &|it| it.gbits);
    let parts = [0, 1, 2, 3].map(|part| figures(rounds, &|it| it.ns[part]).0);
    let total: f64 = parts.iter().sum();
    let ratio = match side {
        Side::Towpath => String::new(),
        _ => format!("   towpath {:.2}x", figures(ours, &|it| it.gbits).0 / rate),
    };
    println!(
        "    {name:20} {rate:5.2} ({least:.2} .. {most:.2})   {total:5.0} = {:5.0} + {:5.0} + {:5.0} \
         + {:5.0}{ratio}",
        parts[0], parts[1], parts[2], parts[3]
    );
}

/// Moves bytes for a while.
fn measure(case: &Case, side: Side, window: Duration) -> anyhow::Result<Counted> {
    let hosts = match side {
        Side::Towpath => Hosts::of_towpath(case.link)?,
        _ => Hosts::of_kernel(case.link)?,
    };
    let running = ends::Running::start(&hosts, side, case.near_sends)?;
    running.wait_until_moving()?;
    std::thread::sleep(Duration::from_millis(300));
    let cpu = || -> anyhow::Result<[u64; 4]> {
        let of = own_threads_cpu_ns;
        Ok([of("far")?, of("near")?, of(WORKERS)?, softirq_ns()?])
    };
    let (start, cpu_before, before) = (Instant::now(), cpu()?, running.received());
    std::thread::sleep(window);
    let (bytes, cpu_after) = (running.received() - before, cpu()?);
    let seconds = start.elapsed().as_secs_f64();
    running.stop()?;
    // Datagrams of full size; acknowledgements the other way are not counted.
    let datagrams = bytes as f64 / ends::PAYLOAD_BYTES;
    let spent = |part: usize| (cpu_after[part] - cpu_before[part]) as f64 / datagrams.max(1.0);
    Ok(Counted { gbits: bytes as f64 * 8.0 / seconds / 1e9, ns: [0, 1, 2, 3].map(spent) })
}
