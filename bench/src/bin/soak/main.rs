//! `bench/soak`: nothing is lost while everything changes, for as long as is asked for.
//!
//! Under full load from a generator, programs are replaced and map entries updated at a rate; then
//! ports come and go. With `--sockets` instead, applications with AF_XDP sockets are killed and
//! started again. Every frame must be accounted for, every buffer come back, and memory stay what
//! it was.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod sockets;
mod victim;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use towpath_bench::load;
use towpath_bpf::program::MapType;
use towpath_engine::{Engine, Hook, Link, Options, PortId, PortOptions, UpperName, WorkerOptions};
use towpath_maps::Value;
use towpath_ports::generator::{self, Generator};
use towpath_ports::pair::{self, Pair};
use towpath_ports::sink::Sink;
use towpath_workload::small;
use towpath_xdp::Program;

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Seconds of each part.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Program replacements, and map updates, a second.
    #[arg(long, default_value_t = 1000)]
    rate: u64,
    /// Workers.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Kills and restarts applications with AF_XDP sockets, and nothing else.
    #[arg(long)]
    sockets: bool,
    /// Frames a second for sockets, in all; 0 is as many as workers can make.
    #[arg(long, default_value_t = 1_000_000)]
    frame_rate: u64,
    /// Is one of those applications, served at this path: how this program starts itself.
    #[arg(long, hide = true)]
    victim: Option<PathBuf>,
    /// The queue of the application.
    #[arg(long, hide = true, default_value_t = 0)]
    victim_queue: u32,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(path) = &args.victim {
        return victim::run(path, sockets::PORT, args.victim_queue);
    }
    if args.sockets {
        return sockets::killings(&args);
    }
    replacements(&args)?;
    ports(&args)
}

fn start(args: &Args) -> anyhow::Result<(Engine, PortId)> {
    let workers = vec![WorkerOptions::default(); args.workers];
    let engine = Engine::start(&Options { workers, frames: 16384 })?;
    let sink = PortOptions { ifindex: Some(SINK), ..PortOptions::new("sink") };
    engine.add_port(sink, Box::new(Sink))?;
    let queues = args.workers as u32;
    let options = generator::Options { queues, ..generator::Options::new(vec![2; 64]) };
    let source = PortOptions::new("source");
    let source = engine.add_port(source, Box::new(Generator::new(options)?))?;
    Ok((engine, source))
}

/// Programs are replaced and map entries updated.
fn replacements(args: &Args) -> anyhow::Result<()> {
    let (engine, source) = start(args)?;
    let devmap = || small::redirect_map(MapType::Devmap, 4, 1, 0);
    let programs = [small::returns(1), small::reflect(), devmap()];
    let programs = programs.into_iter().map(|linked| load(linked, args.workers));
    let programs: Vec<Program> = programs.collect::<Result<_, _>>()?;
    let map = programs[2].maps().by_name("targets").cloned();
    let map = map.ok_or_else(|| anyhow::anyhow!("the program has a map"))?;
    let period = Duration::from_nanos(1_000_000_000 / args.rate.max(1));
    let (begin, mut done) = (Instant::now(), 0u64);
    let mut slowest = Duration::ZERO;
    let memory = resident_kib()?;
    while begin.elapsed() < Duration::from_secs(args.seconds) {
        let program = &programs[done as usize % programs.len()];
        let links = vec![Link::new(program.clone(), 1, args.workers)];
        let before = Instant::now();
        engine.change(|config| config.set_links(source, Hook::Rx, links))?;
        slowest = slowest.max(before.elapsed());
        let target = [SINK + (done % 7 == 0) as u32, 0];
        let target = target.iter().flat_map(|word| word.to_ne_bytes()).collect();
        map.user().update(&1u32.to_ne_bytes(), &Value::One(target), 0)?;
        done += 1;
        std::thread::sleep(
            (begin + period * done as u32).saturating_duration_since(Instant::now()),
        );
    }
    let rate = done as f64 / begin.elapsed().as_secs_f64();
    println!("replacements and map updates: {done}, {rate:.0} a second, slowest {slowest:?}");
    finish(engine, memory)
}

/// Ports are added and removed under load.
fn ports(args: &Args) -> anyhow::Result<()> {
    let (engine, source) = start(args)?;
    let queues = args.workers as u32;
    let reflect = load(small::reflect(), args.workers)?;
    let (begin, mut rounds) = (Instant::now(), 0u64);
    let mut memory = resident_kib()?;
    while begin.elapsed() < Duration::from_secs(args.seconds) {
        let (a, b) = Pair::new(pair::Options { queues, ..pair::Options::default() });
        let a = engine.add_port(PortOptions::new("a"), Box::new(a))?;
        let b = engine.add_port(PortOptions::new("b"), Box::new(b))?;
        engine.change(|config| {
            config.set_upper(source, UpperName::Named("a".to_owned()))?;
            config.set_links(b, Hook::Rx, vec![Link::new(reflect.clone(), 1, args.workers)])
        })?;
        std::thread::sleep(Duration::from_millis(1));
        engine.change(|config| config.set_upper(source, UpperName::None))?;
        engine.remove_port(a)?;
        engine.remove_port(b)?;
        rounds += 1;
        if rounds == 50 {
            memory = resident_kib()?;
        }
    }
    println!("ports added and removed: {rounds} pairs");
    finish(engine, memory)
}

/// Stops, and checks that nothing is missing.
fn finish(engine: Engine, memory: u64) -> anyhow::Result<()> {
    let grown = resident_kib()? as i64 - memory as i64;
    engine.stop();
    let sums = engine.conservation();
    let arena = Arc::clone(engine.arena());
    drop(engine);
    let lost = arena.total() - arena.free();
    println!(
        "  {} received, {} created, {} delivered, {} dropped, {} in flight: {} missing;\n  \
         {lost} of {} buffers lost; memory grew by {grown} KiB\n",
        sums.received,
        sums.created,
        sums.delivered,
        sums.dropped,
        sums.in_flight,
        sums.missing(),
        arena.total(),
    );
    anyhow::ensure!(sums.missing() == 0 && lost == 0, "frames are lost");
    Ok(())
}

/// Resident memory of this process.
fn resident_kib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).unwrap_or("0");
    Ok(kib.parse()?)
}

const SINK: u32 = 77;
