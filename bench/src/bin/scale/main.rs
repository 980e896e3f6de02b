//! `bench/scale`: one program on 1 to n threads over shared maps, here and in the kernel.
//!
//! Each thread has a processor of its own, and the sides take turns. The kernel's is
//! `BPF_PROG_TEST_RUN` of one program object from as many threads, in the processor time of each:
//! what a call sets up, which may wait for long, doesn't count. Ours is bursts of 64 frames in real
//! time, as workers run them, with an announcement after each that readers moved on.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod first;
mod flows;
mod here;
mod kernel;
mod large;
mod order;
mod report;
mod threads;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use towpath_bpf::{Env, Object};

use here::Here;
use kernel::InKernel;
use report::{Measured, Row, Sides};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// The compiled programs of `bench/scale`.
    #[arg(long, default_value = "build/scale")]
    objects: PathBuf,
    /// Numbers of threads [default: 1, 2, 4, ... up to the number of processors].
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
    /// Programs to measure [default: all].
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 200)]
    window_ms: u64,
    /// Leaves the kernel out.
    #[arg(long)]
    alone: bool,
    /// Leaves out what is measured of the order of evictions, of the first insertions, and of large
    /// tables.
    #[arg(long)]
    only_rates: bool,
    /// Measures large tables only.
    #[arg(long, conflicts_with = "only_rates")]
    only_large: bool,
    /// Flows in large tables; 10^7 of them take 6 GB.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000_000, 10_000_000])]
    large: Vec<u32>,
    /// Writes the figures to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let env = Env::builtin();
    println!("{}", report::machine());
    let mut measured = match args.only_large {
        true => Measured::default(),
        false => of_threads(&args, &env)?,
    };
    if !args.only_rates {
        let object = || open(&args, "large");
        measured.large = large::measure(object, &env, &args.large, args.rounds, !args.alone)?;
        println!("\n{}", large::HEADING);
        measured.large.iter().for_each(|large| println!("{large}"));
    }
    if let Some(path) = &args.json {
        let options = format!("--rounds {} --window-ms {}", args.rounds, args.window_ms);
        let document = measured.json(&options);
        std::fs::write(path, serde_json::to_string_pretty(&document)? + "\n")?;
    }
    Ok(())
}

/// Measures many threads that share maps, and first insertions.
fn of_threads(args: &Args, env: &Env) -> anyhow::Result<Measured> {
    let object = open(args, "flows")?;
    let cpus = threads::cpus()?;
    let counts = if args.threads.is_empty() { powers(cpus.len()) } else { args.threads.clone() };
    let most = counts.iter().copied().max().unwrap_or(1);
    let here = Here::new(&object, env, &cpus[..most.min(cpus.len())])?;
    let kernel = match args.alone {
        true => None,
        false => Some(InKernel::new(&object, env, &cpus)?),
    };
    println!("\n{}", report::heading(&counts));
    let mut measured = Measured::default();
    for (program, about) in PROGRAMS {
        if !args.only.is_empty() && !args.only.iter().any(|name| name == program) {
            continue;
        }
        let row = measure(args, (program, about), &counts, &here, kernel.as_ref())?;
        println!("{row}");
        measured.rows.push(row);
    }
    if !args.only_rates {
        measured.orders = order::measure(&counts, &here, kernel.as_ref())?;
        println!("\n{}", order::HEADING);
        measured.orders.iter().for_each(|order| println!("{order}"));
        measured.firsts = first::measure(&open(args, "first")?, env, args.rounds, !args.alone)?;
        println!("\n{}", first::HEADING);
        measured.firsts.iter().for_each(|first| println!("{first}"));
    }
    measured.counts = counts;
    Ok(measured)
}

/// Measures one program on each number of threads.
fn measure(
    args: &Args,
    (name, about): (&'static str, &'static str),
    counts: &[usize],
    here: &Here<'_>,
    kernel: Option<&InKernel>,
) -> anyhow::Result<Row> {
    let window = Duration::from_millis(args.window_ms);
    let program = here.program(name)?;
    let peer = kernel.map(|kernel| kernel.program(name)).transpose()?;
    let mut figures: Vec<Sides> = counts.iter().map(|_| Sides::default()).collect();
    for _ in 0..args.rounds {
        for (&threads, sides) in counts.iter().zip(&mut figures) {
            sides.here.push(here.rate(&program, threads, window)?);
            if let (Some(kernel), Some(peer)) = (kernel, &peer) {
                sides.kernel.push(kernel.rate(peer, threads, window)?);
            }
        }
    }
    Ok(Row { name, about, figures })
}

fn open(args: &Args, name: &str) -> anyhow::Result<Object> {
    let path = args.objects.join(name).with_extension("o");
    let bytes = std::fs::read(&path)
        .map_err(|error| anyhow::anyhow!("{}: {error} (make programs)", path.display()))?;
    Ok(Object::open(&bytes, name)?)
}

fn powers(cpus: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|&n| n < cpus).collect();
    counts.push(cpus);
    counts
}

/// Programs of `bench/scale/flows.c`, and what they do.
const PROGRAMS: [(&str, &str); 8] = [
    ("lru_evict", "LRU hash that evicts, 10^6 flows, 131,072 places"),
    ("lru_flood", "the same, every flow a new one"),
    ("hash_insert_delete", "hash of 10^6 flows, insert and delete another"),
    ("hash_hit", "hash of 10^6 flows, hits"),
    ("lru_hit", "LRU hash of 10^6 flows, hits"),
    ("percpu_hash_hit", "per-CPU hash of 131,072 flows, counts"),
    ("lpm_lookup", "LPM trie of 300,000 prefixes"),
    ("array_count", "array of 65,536 counters, atomic addition"),
];
