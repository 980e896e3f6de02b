//! `bench/queueing`: what a queue costs, and what schedulers do for traffic.
//!
//! - A frame through a PIFO_XDP map and a dequeue program, beside the same frame redirected at
//!   once; and the queue alone.
//! - Two elephants that send more than a link carries, and fifty mice that don't: how long mice
//!   wait behind the fair queue, and in a FIFO of the same depth; how fairly the link is shared.
//! - The rate of the shaper, and how punctual launch times are.
//!
//! The kernel's `htb` on a veth is beside the shaper, with root, and whether it has `fq_codel` is
//! said.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod peer;
mod traffic;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use towpath_bench::{median, ns_per_frame};
use towpath_bpf::{Env, Linked, Object, verifier};
use towpath_engine::{
    Engine, Hook, Link as ProgramLink, Mode, Options, PortId, PortOptions, WorkerOptions,
};
use towpath_maps::{AnyEnvironment, Map};
use towpath_ports::generator::{self, Generator};
use towpath_ports::sink::Sink;
use towpath_workload::small;
use towpath_xdp::program::Shared;
use towpath_xdp::{Arena, Exec, FrameQueue, LoadOptions, Loader, Pool, Program, Select};
use traffic::{Flow, Left, Link, Source, since};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// The compiled programs of `programs/`.
    #[arg(long, default_value = "build/programs")]
    objects: PathBuf,
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement of traffic.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// What a queue costs, and nothing else.
    #[arg(long)]
    only_cost: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    cost(&args)?;
    if args.only_cost {
        return Ok(());
    }
    fairness(&args)?;
    shaping(&args)?;
    launching(&args)
}

/// What takes frames into a queue, and what sends them from it.
fn pair(entries: u32) -> anyhow::Result<[Program; 2]> {
    let options = LoadOptions { workers: 1, exec: Exec::Jit, ..LoadOptions::default() };
    let shared = Shared::new(&options);
    let enqueue = small::enqueue(entries);
    let create = |def| shared.create_map(def, &enqueue.kernel_btf, Arc::new(AnyEnvironment));
    let maps = enqueue.maps.iter().map(create).collect::<Result<Vec<_>, _>>()?;
    let load = |linked: Linked| -> anyhow::Result<Program> {
        let verified = verifier::verify(linked, &options.verifier)?;
        Ok(shared.load(verified, maps.clone())?)
    };
    Ok([load(enqueue)?, load(small::dequeue(entries))?])
}

/// The programs of an object: what takes frames in, and what sends them.
fn scheduler(args: &Args, name: &str, globals: &[(&str, u64)]) -> anyhow::Result<[Program; 2]> {
    let path = args.objects.join(name).with_extension("o");
    let bytes = std::fs::read(&path)
        .map_err(|error| anyhow::anyhow!("{}: {error} (make programs)", path.display()))?;
    let mut object = Object::open(&bytes, name)?;
    for (name, value) in globals {
        object.set_global(name, &towpath_bpf::object::GlobalValue::Int((*value).into()))?;
    }
    let options = LoadOptions { workers: 1, exec: Exec::Jit, ..LoadOptions::default() };
    let env = Env::builtin();
    let loader = Loader::new(&object, &env, &options)?;
    let rx = loader.program(Select::Section("xdp.frags"))?;
    Ok([rx, loader.program(Select::Section("dequeue"))?])
}

fn start() -> anyhow::Result<Engine> {
    let cpu = std::thread::available_parallelism()?.get() - 1;
    let worker = WorkerOptions { cpu: Some(cpu), mode: Mode::Busy, ..WorkerOptions::default() };
    Ok(Engine::start(&Options { workers: vec![worker], frames: 16384 })?)
}

fn attach(
    engine: &Engine,
    from: PortId,
    to: PortId,
    [rx, tx]: &[Program; 2],
) -> anyhow::Result<()> {
    let link = |program: &Program| vec![ProgramLink::new(program.clone(), 1, 1)];
    engine.change(|config| {
        config.set_links(from, Hook::Rx, link(rx))?;
        config.set_links(to, Hook::Dequeue, link(tx))
    })?;
    Ok(())
}

/// What a frame takes more by way of a queue.
fn cost(args: &Args) -> anyhow::Result<()> {
    println!("64-byte frames, generator and sink in memory, ns of processor time per frame\n");
    let (mut direct, mut queued, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        for (through, figures) in [(false, &mut direct), (true, &mut queued)] {
            let engine = start()?;
            let sink = PortOptions { ifindex: Some(SINK), ..PortOptions::new("sink") };
            let to = engine.add_port(sink, Box::new(Sink))?;
            let device = Generator::new(generator::Options::new(vec![0x88; 64]))?;
            let from = engine.add_port(PortOptions::new("gen"), Box::new(device))?;
            if through {
                attach(&engine, from, to, &pair(1024)?)?;
            } else {
                let redirect = towpath_bench::load(small::redirect(SINK), 1)?;
                let link = vec![ProgramLink::new(redirect, 1, 1)];
                engine.change(|config| config.set_links(from, Hook::Rx, link))?;
            }
            std::thread::sleep(Duration::from_millis(20));
            figures.push(ns_per_frame(&engine, &[from], Duration::from_millis(200))?);
            engine.stop();
            let frames = engine.conservation();
            anyhow::ensure!(frames.missing() == 0, "frames are missing: {frames:?}");
        }
        alone.push(bare()?);
    }
    let (direct, queued, alone) = (median(&direct), median(&queued), median(&alone));
    println!("  redirect to the port     {:6.1} ({:.1} .. {:.1})", direct.0, direct.1, direct.2);
    println!("  by way of a queue        {:6.1} ({:.1} .. {:.1})", queued.0, queued.1, queued.2);
    println!(
        "  enqueue and dequeue      {:6.1}   the program's runs included",
        queued.0 - direct.0
    );
    println!("  the queue alone          {:6.1} ({:.1} .. {:.1})\n", alone.0, alone.1, alone.2);
    Ok(())
}

/// Frames into a queue and out of it, a burst at a time, at ranks that differ.
fn bare() -> anyhow::Result<f64> {
    let program = Program::from_linked(small::enqueue(1024), &LoadOptions::default())?;
    let map: &Map = program.maps().by_name("queue").ok_or(anyhow::anyhow!("it has one"))?;
    let queue = FrameQueue::of(map).ok_or(anyhow::anyhow!("it is one"))?;
    let arena = Arena::new(1024)?;
    let (mut pool, mut frames, mut refused) = (Pool::new(&arena), Vec::new(), Vec::new());
    pool.take_many(64, &mut frames);
    frames.iter_mut().for_each(|frame| frame.fill(&[0; 64]));
    let before = towpath_bench::thread_cpu_ns();
    for _ in 0..BARE_ROUNDS {
        queue.push_all(&mut frames, 0, &mut refused);
        frames.extend(std::iter::from_fn(|| queue.pop(0)).map(|(frame, _rank)| frame));
    }
    anyhow::ensure!(refused.is_empty() && frames.len() == 64, "all came back");
    Ok((towpath_bench::thread_cpu_ns() - before) as f64 / (BARE_ROUNDS * 64) as f64)
}

/// What left a link behind a pair of programs.
fn run(
    programs: &[Program; 2],
    flows: &[Flow],
    link: &Link,
    seconds: f64,
) -> anyhow::Result<(Vec<Left>, f64)> {
    let engine = start()?;
    let to = PortOptions { ifindex: Some(SINK), ..PortOptions::new("link") };
    let to = engine.add_port(to, Box::new(link.clone()))?;
    let source = Box::new(Source::new(flows.to_vec()));
    let from = engine.add_port(PortOptions::new("source"), source)?;
    attach(&engine, from, to, programs)?;
    // Until queues are as long as they get.
    std::thread::sleep(Duration::from_secs_f64(seconds / 2.0));
    link.take();
    let begin = Instant::now();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let (left, took) = (link.take(), since(begin));
    engine.stop();
    let frames = engine.conservation();
    anyhow::ensure!(frames.missing() == 0, "frames are missing: {frames:?}");
    Ok((left, took))
}

fn fairness(args: &Args) -> anyhow::Result<()> {
    println!("two elephants (1514 and 500 bytes, each twice the link) and 50 mice, 100 Mbit/s\n");
    let elephant = |bytes: usize| Flow {
        bytes,
        period_ns: bytes as u64 * 1_000_000_000 / (2 * LINK_BYTES),
        launch_ns: 0,
    };
    let mouse = Flow { bytes: 100, period_ns: 20_000_000, launch_ns: 0 };
    let mut flows = vec![elephant(1514), elephant(500)];
    flows.extend([mouse; 50]);
    let sides = [("fifo", pair(4096)?), ("fair queue", scheduler(args, "queue_fair", &[])?)];
    let mut latencies = Vec::new();
    for (name, programs) in &sides {
        let link = Link::new(LINK_BYTES, 64);
        let (left, _) = run(programs, &flows, &link, args.seconds)?;
        let mut mice: Vec<f64> =
            left.iter().filter(|it| it.flow >= 2).map(|it| it.late_ns as f64 / 1e3).collect();
        mice.sort_by(f64::total_cmp);
        let at = |part: f64| mice.get((mice.len() as f64 * part) as usize).copied();
        let (p50, p99) = (at(0.5).unwrap_or(f64::NAN), at(0.99).unwrap_or(f64::NAN));
        let sum = |flow: usize| {
            let own = left.iter().filter(|it| it.flow == flow);
            own.map(|it| it.bytes as f64).sum::<f64>()
        };
        let (wanted, got) = (args.seconds / 0.02 * 50.0, mice.len() as f64);
        println!(
            "  {name:12} mice p50 {p50:9.0} us, p99 {p99:9.0} us, {:5.1} % arrived; elephants' Jain \
             index {:.4}",
            got / wanted * 100.0,
            jain(&[sum(0), sum(1)])
        );
        latencies.push(p99);
    }
    println!("  p99: {:.0}x lower\n", latencies[0] / latencies[1]);
    Ok(())
}

/// 1 when all have the same.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|it| it * it).sum::<f64>());
    sum * sum / (shares.len() as f64 * squares)
}

fn shaping(args: &Args) -> anyhow::Result<()> {
    println!("shaper: 1000-byte packets, twice what may leave\n");
    let veth = peer::Veth::new();
    if let Err(why) = &veth {
        println!("  no veth beside it: {why}");
    }
    for rate in [125_000u64, 1_250_000, 12_500_000] {
        let programs = scheduler(args, "queue_shaper", &[("bytes_per_second", rate)])?;
        let flow = Flow { bytes: 1000, period_ns: 500 * 1_000_000_000 / rate, launch_ns: 0 };
        let (left, _) = run(&programs, &[flow], &Link::new(0, 256), args.seconds)?;
        let (Some(first), Some(last)) = (left.first(), left.last()) else { continue };
        let bytes: usize = left[1..].iter().map(|it| it.bytes).sum();
        let real = bytes as f64 / ((last.at_ns - first.at_ns) as f64 / 1e9);
        let error = percent(real, rate);
        print!("  {rate:9} bytes/s asked, {real:12.0} sent ({error:+.3} %)");
        match veth.as_ref().map(|veth| veth.htb(rate, args.seconds)) {
            Ok(Ok(real)) => println!("   htb {real:12.0} ({:+.3} %)", percent(real, rate)),
            Ok(Err(why)) => println!("   no htb: {why}"),
            Err(_no_veth) => println!(),
        }
    }
    if let Ok(veth) = &veth {
        let has = if veth.has("fq_codel") { "" } else { "no " };
        println!("  this kernel has {has}fq_codel");
    }
    println!();
    Ok(())
}

/// By how much it differs from what was asked.
fn percent(real: f64, asked: u64) -> f64 {
    (real / asked as f64 - 1.0) * 100.0
}

fn launching(args: &Args) -> anyhow::Result<()> {
    println!("launch times, a packet a millisecond, 5 ms ahead: how late it leaves\n");
    let flow = Flow { bytes: 200, period_ns: 1_000_000, launch_ns: 5_000_000 };
    let (left, _) = run(&pair(1024)?, &[flow], &Link::new(0, 256), args.seconds)?;
    let mut late: Vec<f64> = left.iter().map(|it| it.late_ns as f64 / 1e3).collect();
    late.sort_by(f64::total_cmp);
    let at = |part: f64| late.get((late.len() as f64 * part) as usize).copied();
    if let (Some(p50), Some(p99)) = (at(0.5), at(0.99)) {
        println!("  {} packets: p50 {p50:.1} us, p99 {p99:.1} us", late.len());
    }
    Ok(())
}

const SINK: u32 = 99;
const BARE_ROUNDS: usize = 50_000;
/// 100 Mbit/s
const LINK_BYTES: u64 = 12_500_000;
