//! `bench/engine`: what a frame costs in the engine, beside a bare loop over the same frames.
//!
//! 64-byte frames from an in-memory generator, judged by a compiled program, to where the program
//! sends them. The bare loop does what every program run needs: takes frames, copies the packet in,
//! runs the program as a batch, gives frames back.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};
use towpath_bench::hints::Hinting;
use towpath_bench::{attach, load, median, ns_per_frame, rate, thread_cpu_ns};
use towpath_bpf::program::{AttachType, Linked, MapType};
use towpath_engine::port::Device;
use towpath_engine::{Engine, Mode, Options, PortId, PortOptions, UpperName, WorkerOptions};
use towpath_maps::Value;
use towpath_ports::generator::{self, Generator};
use towpath_ports::pair::{self, Pair};
use towpath_ports::sink::Sink;
use towpath_workload::random::Random;
use towpath_workload::small;
use towpath_xdp::{Arena, Burst, Pool, Program};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 200)]
    window: u64,
    /// Only cases whose name begins so.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let window = Duration::from_millis(args.window);
    println!(
        "64-byte frames, generator and sink in memory, ns of processor time\nper frame: median (least .. most)\n"
    );
    let mut cases = cases()?;
    cases.retain(|case| case.name.starts_with(&args.only));
    let mut figures = vec![(Vec::new(), Vec::new()); cases.len()];
    for _ in 0..args.rounds {
        for (case, (engine, bare)) in cases.iter_mut().zip(&mut figures) {
            engine.push(case.engine_ns(window)?);
            bare.push(bare_loop(case, window)?);
        }
    }
    for (case, (engine, bare)) in cases.iter().zip(&figures) {
        let ((ns, least, most), (loop_ns, ..)) = (median(engine), median(bare));
        let (name, ratio) = (case.name, ns / loop_ns);
        println!(
            "  {name:24} {ns:6.2} ({least:.2} .. {most:.2})   bare loop {loop_ns:6.2}   {ratio:.2}x"
        );
    }
    if args.only.is_empty() {
        scaling(&args, window)?;
        wake_up()?;
    }
    Ok(())
}

/// Programs, packets and targets to measure.
struct Case {
    name: &'static str,
    programs: Vec<Program>,
    upper: bool,
    actions: u32,
    /// Frames carry a hash, a timestamp and a VLAN tag.
    has_hints: bool,
    /// Packets that arrive, one after the other and again from the first.
    packets: Vec<Vec<u8>>,
    /// Ports that entries of a devmap lead to.
    sinks: u32,
    /// The program of each of these entries.
    entry: Option<Program>,
}

fn cases() -> anyhow::Result<Vec<Case>> {
    let case = |name, linked: Vec<Linked>, upper, actions| -> anyhow::Result<Case> {
        let programs = linked.into_iter().map(|linked| load(linked, 2));
        let (has_hints, packets) = (false, vec![packet()]);
        let programs = programs.collect::<Result<_, _>>()?;
        Ok(Case { name, programs, upper, actions, has_hints, packets, sinks: 4, entry: None })
    };
    let hints = |name, linked| -> anyhow::Result<Case> {
        Ok(Case { has_hints: true, ..case(name, vec![linked], false, 0)? })
    };
    let verdicts = |name, verdicts: &[u8]| -> anyhow::Result<Case> {
        let packets = verdicts.iter().map(|&verdict| with_byte(14, verdict)).collect();
        Ok(Case { packets, ..case(name, vec![small::returns_byte(14)], true, 0)? })
    };
    let filter = |name, verdicts: &[u8]| -> anyhow::Result<Case> {
        let packets = verdicts.iter().map(|&verdict| with_byte(14, verdict)).collect();
        let chain = vec![small::returns_byte(14), small::returns(3)];
        Ok(Case { packets, ..case(name, chain, false, 1 << 2)? })
    };
    let targets = |name, keys: &[u8]| -> anyhow::Result<Case> {
        let packet = |&key: &u8| {
            let mut packet = with_byte(15, key);
            packet[14] = 0;
            packet
        };
        let linked = small::redirect_map_by_bytes(MapType::Devmap, 256);
        Ok(Case {
            packets: keys.iter().map(packet).collect(),
            ..case(name, vec![linked], false, 0)?
        })
    };
    let entry = Linked { attach: AttachType::Devmap, ..small::returns(2) };
    let many: Vec<u8> = (1..=200).collect();
    let with_programs = Case {
        sinks: 200,
        entry: Some(load(entry, 2)?),
        ..targets("200 devmap programs", &at_random(&many))?
    };
    let devmap = || small::redirect_map(MapType::Devmap, 4, 1, 0);
    let (one_passes, turns) = ([vec![1; 63], vec![2]].concat(), [1, 2].repeat(32));
    Ok(vec![
        case("drop", vec![small::returns(1)], false, 0)?,
        case("drop, reads a byte", vec![small::returns_byte(14)], false, 0)?,
        case("tx", vec![small::reflect()], false, 0)?,
        case("redirect", vec![small::redirect(SINK)], false, 0)?,
        case("redirect by devmap", vec![devmap()], false, 0)?,
        case("pass to a port", vec![small::returns(2)], true, 0)?,
        hints("drop, with hints", small::returns(1))?,
        hints("tx, with hints", small::reflect())?,
        hints("redirect, with hints", small::redirect(SINK))?,
        case("pass and drop, chained", vec![small::returns(2), small::returns(1)], false, 1 << 2)?,
        verdicts("64 packets: drop", &[1; 64])?,
        verdicts("64 packets: 1 passes", &one_passes)?,
        verdicts("64 packets: drop, pass", &turns)?,
        verdicts("997 packets: drop", &[1; 997])?,
        verdicts("997 packets: drop | pass", &at_random(&[1, 2]))?,
        verdicts("997 packets: drop | tx", &at_random(&[1, 3]))?,
        verdicts("997 packets: any of 4", &at_random(&[0, 1, 2, 3]))?,
        filter("997 packets, filter, tx", &at_random(&[1, 2]))?,
        targets("997 packets: 1 target", &[1; 997])?,
        targets("997 packets: 4 targets", &at_random(&[1, 2, 3, 4]))?,
        with_programs,
    ])
}

impl Case {
    fn engine_ns(&self, window: Duration) -> anyhow::Result<f64> {
        let engine = start(1)?;
        let port = self.set_up(&engine, 1)?;
        std::thread::sleep(Duration::from_millis(20));
        let ns = ns_per_frame(&engine, &[port], window)?;
        engine.stop();
        let conservation = engine.conservation();
        anyhow::ensure!(conservation.missing() == 0, "frames are missing: {conservation:?}");
        Ok(ns)
    }

    fn set_up(&self, engine: &Engine, queues: u32) -> anyhow::Result<PortId> {
        for number in 0..self.sinks {
            let name = if number == 0 { "sink".to_owned() } else { format!("sink{number}") };
            let sink = PortOptions { ifindex: Some(SINK + number), ..PortOptions::new(&name) };
            engine.add_port(sink, Box::new(Sink))?;
        }
        let templates = self.packets.clone();
        let options = generator::Options { queues, templates, ..generator::Options::new(packet()) };
        let generator = Generator::new(options)?;
        let device: Box<dyn Device> = match self.has_hints {
            true => Box::new(Hinting(generator)),
            false => Box::new(generator),
        };
        let port = engine.add_port(PortOptions::new("gen"), device)?;
        for program in &self.programs {
            if let Some(map) = program.maps().by_name("targets") {
                let program = if self.entry.is_some() { ENTRY_ID } else { 0 };
                for key in 1..map.max_entries().min(self.sinks + 1) {
                    let words = [SINK + key - 1, program];
                    let target = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                    map.user().update(&key.to_ne_bytes(), &Value::One(target), 0)?;
                }
            }
        }
        engine.change(|config| {
            if let Some(entry) = &self.entry {
                config.set_entry_program(ENTRY_ID, Some(entry.clone()))?;
            }
            if self.upper {
                config.set_upper(port, UpperName::Named("sink".to_owned()))?;
            }
            attach(config, port, &self.programs, engine.workers(), self.actions)
        })?;
        Ok(port)
    }
}

/// Two workers beside one: frames a second.
fn scaling(args: &Args, window: Duration) -> anyhow::Result<()> {
    println!("\nscaling: frames a second of two workers over one\n");
    for case in cases()?.iter().filter(|case| ["drop", "tx", "redirect"].contains(&case.name)) {
        let mut ratios = Vec::new();
        for _ in 0..args.rounds {
            let mut rates = [0.0; 2];
            for (workers, found) in (1..).zip(&mut rates) {
                let engine = start(workers)?;
                let port = case.set_up(&engine, workers as u32)?;
                std::thread::sleep(Duration::from_millis(20));
                *found = rate(&engine, port, window);
                engine.stop();
            }
            ratios.push(rates[1] / rates[0]);
        }
        let (ratio, least, most) = median(&ratios);
        println!("  {:24} {ratio:6.2}x ({least:.2} .. {most:.2})", case.name);
    }
    Ok(())
}

/// How long a frame takes to come back (`XDP_TX`) from a worker that sleeps, and from one that
/// spins.
fn wake_up() -> anyhow::Result<()> {
    println!("\nthere and back over a pair, microseconds: p50 / p99\n");
    let program = load(small::reflect(), 1)?;
    for (name, mode, pause) in [
        ("busy worker", Mode::Busy, Duration::from_micros(300)),
        ("adaptive worker, asleep", Mode::Adaptive, Duration::from_millis(2)),
    ] {
        let cpu = std::thread::available_parallelism()?.get() - 1;
        let workers = vec![WorkerOptions { cpu: Some(cpu), mode, ..WorkerOptions::default() }];
        let engine = Engine::start(&Options { workers, frames: 1024 })?;
        let (near, far) = Pair::new(pair::Options::default());
        let port = engine.add_port(PortOptions::new("near"), Box::new(near))?;
        engine.change(|config| attach(config, port, std::slice::from_ref(&program), 1, 0))?;
        let mut pool = Pool::new(engine.arena());
        let (mut tx, mut rx) = (far.open_tx(0, engine.arena())?, far.open_rx(0, engine.arena())?);
        let (mut frames, mut times) = (Vec::new(), Vec::new());
        for _ in 0..500 {
            std::thread::sleep(pause);
            frames.extend(pool.frame(&packet())?);
            let start = Instant::now();
            tx.transmit(&mut frames, &mut pool)?;
            while rx.receive(&mut pool, &mut frames, 1)? == 0 {
                std::hint::spin_loop();
            }
            times.push(start.elapsed().as_nanos() as f64 / 1000.0);
            pool.give_all(&mut frames);
        }
        print_times(name, times);
    }
    print_times("a bare thread, asleep", bare_wake_up()?);
    Ok(())
}

fn print_times(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("  {name:24} {p50:6.1} / {p99:.1}");
}

/// The same way there and back with nothing on it: a thread on the worker's core that sleeps on an
/// eventfd. What this takes, the scheduler takes.
fn bare_wake_up() -> anyhow::Result<Vec<f64>> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
    let answered = Arc::new(AtomicU64::new(0));
    let (bell_there, answered_there) = (Arc::clone(&bell), Arc::clone(&answered));
    let cpu = std::thread::available_parallelism()?.get() - 1;
    let sleeper = std::thread::spawn(move || -> anyhow::Result<()> {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)?;
        for round in 1..=500 {
            rustix::io::read(&*bell_there, &mut [0; 8])?;
            answered_there.store(round, Ordering::Release);
        }
        Ok(())
    });
    let mut times = Vec::new();
    for round in 1..=500 {
        std::thread::sleep(Duration::from_millis(2));
        let start = Instant::now();
        rustix::io::write(&*bell, &1u64.to_ne_bytes())?;
        while answered.load(Ordering::Acquire) < round && !sleeper.is_finished() {
            std::hint::spin_loop();
        }
        times.push(start.elapsed().as_nanos() as f64 / 1000.0);
    }
    sleeper.join().map_err(|_panic| anyhow::anyhow!("the sleeping thread panicked"))??;
    Ok(times)
}

/// The program alone, over frames with the same packet.
fn bare_loop(case: &Case, window: Duration) -> anyhow::Result<f64> {
    let programs = &case.programs;
    let arena = Arena::new(4096)?;
    let (mut pool, mut frames, mut burst) = (Pool::new(&arena), Vec::new(), Burst::default());
    let mut worker = programs[0].worker(0);
    let mut packets = case.packets.iter().cycle();
    let (start, cpu, mut count) = (Instant::now(), thread_cpu_ns(), 0);
    while start.elapsed() < window {
        for _ in 0..64 {
            pool.take_many(64, &mut frames);
            frames.iter_mut().zip(&mut packets).for_each(|(frame, packet)| frame.fill(packet));
            for program in programs {
                program.run_burst(&mut worker, &mut frames, &mut burst)?;
            }
            count += frames.len();
            pool.give_all(&mut frames);
        }
    }
    Ok((thread_cpu_ns() - cpu) as f64 / count as f64)
}

fn start(workers: usize) -> anyhow::Result<Engine> {
    let worker =
        |cpu| WorkerOptions { cpu: Some(cpu), mode: Mode::Busy, ..WorkerOptions::default() };
    // The last core first: the one that most machines interrupt least.
    let cpus = std::thread::available_parallelism()?.get();
    let workers = (0..workers).map(|number| worker((cpus - 1).saturating_sub(number)));
    Ok(Engine::start(&Options { workers: workers.collect(), frames: 8192 })?)
}

/// A UDP packet; byte 14, the first behind the Ethernet header, is 1 (`XDP_DROP`).
fn packet() -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 1];
    packet.resize(64, 0);
    packet
}

/// The same with another byte.
fn with_byte(at: usize, byte: u8) -> Vec<u8> {
    let mut packet = packet();
    packet[at] = byte;
    packet
}

/// 997 bytes, each one of these at random: more than a branch predictor learns by heart.
fn at_random(from: &[u8]) -> Vec<u8> {
    let mut random = Random::new(1);
    (0..997).map(|_| *random.pick(from)).collect()
}

const SINK: u32 = 77;
/// The id of entries' programs.
const ENTRY_ID: u32 = 5;
