//! `bench/quic`: QUIC by quinn over Towpath's UDP sockets beside quinn over the kernel's, between
//! two hosts joined by a veth.
//!
//! The far host is quinn over the kernel in every case, on the first core; the near host is on the
//! second, with Towpath's worker if it has one. Either one connection moves bytes in one direction,
//! or many have a request under way each, or connections are opened and closed. The sides take
//! turns. Needs root and `scripts/install-deps.sh net`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod ends;
mod requests;
#[path = "../../../../crates/cli/src/demo/quic/tls.rs"]
mod tls;

use std::time::{Duration, Instant};

use crate::ends::{Running, Work};
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
    /// Microseconds for which Towpath's worker polls before it sleeps.
    #[arg(long, default_value_t = 50)]
    spin: u64,
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

/// Work to measure, and the sockets that take turns in it.
struct Case {
    name: &'static str,
    work: Work,
    link: Link,
    /// The near host's sockets that take turns with Towpath's.
    others: &'static [Side],
}

const CASES: [Case; 7] = [
    Case {
        name: "send, segments cut by the kernel",
        work: Work::Stream { near_sends: true },
        link: Link::Cut,
        others: &[Side::Offloads, Side::NoSegmentation],
    },
    Case {
        name: "send, segments passed whole",
        work: Work::Stream { near_sends: true },
        link: Link::Whole,
        others: &[Side::Offloads],
    },
    Case {
        name: "receive, segments cut by the kernel",
        work: Work::Stream { near_sends: false },
        link: Link::Cut,
        others: &[Side::Offloads],
    },
    Case {
        name: "receive, segments passed whole",
        work: Work::Stream { near_sends: false },
        link: Link::Whole,
        others: &[Side::Offloads],
    },
    Case {
        name: "requests of 1 kB, 1000 connections",
        work: Work::Requests { connections: 1000 },
        link: Link::Cut,
        others: &[Side::Offloads],
    },
    Case {
        name: "requests of 1 kB, 1000 connections, whole segments",
        work: Work::Requests { connections: 1000 },
        link: Link::Whole,
        others: &[Side::Offloads],
    },
    Case {
        name: "handshakes, one at a time",
        work: Work::Handshakes,
        link: Link::Cut,
        others: &[Side::Offloads],
    },
];

/// Result of one measurement.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    /// Gbit/s, thousands of requests a second, or the 99th percentile of handshakes in ms.
    rate: f64,
    /// Nanoseconds of processor time for a datagram, a request or a handshake: the far host, the
    /// near host, Towpath's worker, softirqs.
    ns: [f64; 4],
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(why) = unavailable() {
        println!("skipped: {why}");
        return Ok(());
    }
    println!(
        "QUIC (quinn, AES-128-GCM) over a veth. Streams: Gbit/s, and ns of processor time a \
         datagram.\nRequests: thousands a second, ns a request. Handshakes: 99th percentile in ms, \
         ns each.\nMedian (least .. most); ns of the far host, the near host, the worker, \
         softirqs, some of which run\nwithin the others.\n"
    );
    for case in CASES.iter().filter(|case| case.name.starts_with(&args.only)) {
        let mut sides = vec![Side::Towpath];
        sides.extend(case.others);
        let mut figures = vec![Vec::new(); sides.len()];
        for _ in 0..args.rounds {
            for (side, figures) in sides.iter().zip(&mut figures) {
                figures.push(measure(case, *side, &args)?);
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
    let (rate, least, most) = figures(rounds, &|it| it.rate);
    let parts = [0, 1, 2, 3].map(|part| figures(rounds, &|it| it.ns[part]).0);
    let total = |rounds: &[Counted]| figures(rounds, &|it| it.ns.iter().sum()).0;
    let ratio = match side {
        Side::Towpath => String::new(),
        _ => format!(
            "   towpath {:.2}x, a core-second {:.2}x",
            figures(ours, &|it| it.rate).0 / rate,
            total(rounds) / total(ours)
        ),
    };
    println!(
        "    {name:20} {rate:6.2} ({least:.2} .. {most:.2})   {:5.0} = {:5.0} + {:5.0} + {:5.0} + \
         {:5.0}{ratio}",
        total(rounds),
        parts[0],
        parts[1],
        parts[2],
        parts[3]
    );
}

/// Has the hosts work for a while.
fn measure(case: &Case, side: Side, args: &Args) -> anyhow::Result<Counted> {
    let hosts = match side {
        Side::Towpath => Hosts::of_towpath(case.link, args.spin)?,
        _ => Hosts::of_kernel(case.link)?,
    };
    let window = Duration::from_millis(args.window);
    let running = Running::start(&hosts, side, case.work)?;
    let counted = match case.work {
        Work::Stream { .. } => {
            let (bytes, seconds, ns) = count(&running, 1 << 20, window)?;
            // Datagrams of full size; acknowledgements the other way are not counted.
            let datagrams = bytes / ends::PAYLOAD_BYTES;
            let rate = bytes * 8.0 / seconds / 1e9;
            Counted { rate, ns: ns.map(|ns| ns / datagrams) }
        }
        Work::Requests { connections } => {
            let (requests, seconds, ns) = count(&running, connections as u64, window)?;
            Counted { rate: requests / seconds / 1e3, ns: ns.map(|ns| ns / requests) }
        }
        Work::Handshakes => {
            running.handshakes(10)?;
            let before = cpu_ns()?;
            let mut durations = running.handshakes(10 + HANDSHAKES)?.split_off(10);
            let after = cpu_ns()?;
            durations.sort_unstable();
            let rate = durations[HANDSHAKES * 99 / 100].as_secs_f64() * 1e3;
            let spent = |part: usize| (after[part] - before[part]) as f64 / HANDSHAKES as f64;
            Counted { rate, ns: [0, 1, 2, 3].map(spent) }
        }
    };
    running.stop()?;
    Ok(counted)
}

/// Bytes or answers received in a window of time, its seconds, and the processor time of each
/// part. It begins after the first ones.
fn count(running: &Running, first: u64, window: Duration) -> anyhow::Result<(f64, f64, [f64; 4])> {
    running.wait_until_moving(first)?;
    std::thread::sleep(Duration::from_millis(300));
    let (start, cpu_before, before) = (Instant::now(), cpu_ns()?, running.count());
    std::thread::sleep(window);
    let (count, cpu_after) = (running.count() - before, cpu_ns()?);
    let spent = |part: usize| (cpu_after[part] - cpu_before[part]) as f64;
    let count = (count as f64).max(1.0);
    Ok((count, start.elapsed().as_secs_f64(), [0, 1, 2, 3].map(spent)))
}

/// Processor time so far of the far host, the near host, Towpath's worker and softirqs, in ns.
fn cpu_ns() -> anyhow::Result<[u64; 4]> {
    let of = own_threads_cpu_ns;
    Ok([of("far")?, of("near")?, of(WORKERS)?, softirq_ns()?])
}

/// Handshakes of a measurement.
const HANDSHAKES: usize = 300;
