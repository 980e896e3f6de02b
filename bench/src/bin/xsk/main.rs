//! `bench/xsk`: what it costs to get frames to AF_XDP sockets.
//!
//! The table of the RFC that wanted it for the kernel (16 Nov 2021): the general path of a
//! redirect, the path to a queue's only socket, and that in bursts; beside a bare ring, which is
//! the limit. One core makes frames of 64 bytes in memory, judges and delivers them, and is the
//! application too. Then an application in a process of its own, on a core of its own, beside one
//! that receives from the kernel's AF_XDP on a veth. All sides take turns.

#![deny(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod application;
mod bare;
mod kernel;
mod paths;
mod polled;
mod process;
mod tsc_unsafe;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};
use towpath_bench::median;
use towpath_bench::sockets::Delivery;

use application::Shape;
use paths::Way;

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 200)]
    window: u64,
    /// Entries of each ring, and chunks of packet memory; a power of two.
    #[arg(long, default_value_t = 2048)]
    entries: u32,
    /// Chunks of 2048 bytes that lie a cache line further apart (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`),
    /// not of 4096 that lie behind each other.
    #[arg(long)]
    spread: bool,
    /// Prints figures as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Only this part: one-core or two-cores.
    #[arg(long)]
    only: Option<String>,
    /// Only ways whose name is this one, as the table has it.
    #[arg(long)]
    way: Option<String>,
    /// Receives from a server at this path until it is killed: how this program starts itself.
    #[arg(long, hide = true)]
    application: Option<PathBuf>,
}

impl Args {
    fn shape(&self) -> Shape {
        Shape { entries: self.entries, is_spread: self.spread }
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(path) = &args.application {
        return process::be_application(path, args.shape());
    }
    let is_wanted = |part: &str| args.only.as_deref().is_none_or(|only| only == part);
    let figures = measure(&args, is_wanted("one-core"), is_wanted("two-cores"))?;
    let report = figures.report();
    if args.json {
        println!("{report:#}");
    } else {
        figures.print();
    }
    Ok(())
}

/// All rounds.
struct Figures {
    ticks_per_ns: f64,
    /// Ticks for a frame, of each way.
    ways: Vec<Vec<f64>>,
    /// Millions of frames a second.
    process: Vec<f64>,
    kernel: Vec<f64>,
    /// Why the kernel was left out.
    skipped: Option<String>,
}

fn measure(args: &Args, one_core: bool, two_cores: bool) -> anyhow::Result<Figures> {
    let window = Duration::from_millis(args.window);
    let mut figures = Figures {
        ticks_per_ns: tsc_unsafe::ticks_per_ns(),
        ways: vec![Vec::new(); Way::ALL.len()],
        process: Vec::new(),
        kernel: Vec::new(),
        skipped: if two_cores { kernel::unavailable() } else { None },
    };
    let has_two_cores = std::thread::available_parallelism()?.get() > 1;
    if two_cores && !has_two_cores {
        println!("skipped: there is one core only");
    }
    let is_asked_for = |way: Way| args.way.as_deref().is_none_or(|only| only == way.name());
    for _ in 0..args.rounds {
        let ways = Way::ALL.iter().zip(&mut figures.ways);
        for (way, of) in ways.filter(|(way, _)| one_core && is_asked_for(**way)) {
            of.push(way.measure(window, args.shape())?);
        }
        if two_cores && has_two_cores {
            figures.process.push(process::rate(window, args.shape())? / 1e6);
            if figures.skipped.is_none() {
                figures.kernel.push(kernel::receive_rate(window, args.shape())? / 1e6);
            }
        }
    }
    Ok(figures)
}

impl Figures {
    fn of(&self, way: Way) -> &[f64] {
        let found = Way::ALL.iter().position(|&it| it == way);
        found.map_or(&[], |at| &self.ways[at])
    }

    /// How often one way's cost is in another's, by round.
    fn ratio(&self, over: Way, under: Way) -> Vec<f64> {
        self.of(over).iter().zip(self.of(under)).map(|(over, under)| over / under).collect()
    }

    /// Nanoseconds that one way costs more than another, by round.
    fn above(&self, way: Way, other: Way) -> Vec<f64> {
        let both = self.of(way).iter().zip(self.of(other));
        both.map(|(way, other)| (way - other) / self.ticks_per_ns).collect()
    }

    fn print(&self) {
        if self.ways.iter().any(|ticks| !ticks.is_empty()) {
            self.print_ways();
        }
        if self.process.is_empty() {
            return;
        }
        println!(
            "\nreceived by an application on a core of its own, millions of frames a second\n"
        );
        print_figure("another process, towpath", &self.process, 1);
        println!("{:26}bar: at least 10", "");
        match &self.skipped {
            Some(why) => println!("  kernel AF_XDP on a veth: skipped: {why}"),
            None => print_figure("kernel AF_XDP, copy, veth", &self.kernel, 1),
        }
    }

    fn print_ways(&self) {
        println!("64-byte frames, one core for generator, program, delivery and application:");
        println!("median (least .. most) for a frame\n");
        println!("  {:24} {:>28}   {:>8}", "", "ns", "cycles");
        for (way, ticks) in Way::ALL.iter().zip(&self.ways).filter(|(_, it)| !it.is_empty()) {
            let (cycles, ..) = median(ticks);
            let ns: Vec<f64> = ticks.iter().map(|ticks| ticks / self.ticks_per_ns).collect();
            let (ns, least, most) = median(&ns);
            let range = format!("({least:.2} .. {most:.2})");
            println!("  {:24} {ns:8.2} {range:>19}   {cycles:8.1}", way.name());
        }
        println!();
        print_figure("one by one / direct + batch", &self.ratio(SCALAR, BATCHED), 2);
        println!("{:26}bar: at least 1.27", "");
        print_figure("ns above the bare ring", &self.above(BATCHED, Way::BareRing), 2);
        println!("{:26}bar: at most 5", "");
    }

    fn report(&self) -> Value {
        let way = |(way, ticks): (&Way, &Vec<f64>)| {
            let ns: Vec<f64> = ticks.iter().map(|ticks| ticks / self.ticks_per_ns).collect();
            (way.name().to_owned(), json!({"ns": figures(&ns), "cycles": figures(ticks)}))
        };
        let ways: serde_json::Map<_, _> = Way::ALL.iter().zip(&self.ways).map(way).collect();
        let kernel = match &self.skipped {
            Some(why) => json!({"skipped": why}),
            None => figures(&self.kernel),
        };
        json!({
            "frame_bytes": 64,
            "cycles_per_ns": self.ticks_per_ns,
            "one_core": ways,
            "one_by_one_over_direct_batch": figures(&self.ratio(SCALAR, BATCHED)),
            "ns_above_bare_ring": figures(&self.above(BATCHED, Way::BareRing)),
            "two_cores_mpps": {"towpath": figures(&self.process), "kernel_veth_copy": kernel},
        })
    }
}

fn print_figure(name: &str, all: &[f64], digits: usize) {
    let (figure, least, most) = median(all);
    println!("  {name:26} {figure:8.digits$} ({least:.digits$} .. {most:.digits$})");
}

fn figures(all: &[f64]) -> Value {
    let (median, least, most) = median(all);
    json!({"median": median, "least": least, "most": most, "rounds": all})
}

const SCALAR: Way = Way::Socket(Delivery::Scalar);
const BATCHED: Way = Way::Socket(Delivery::Batched);
