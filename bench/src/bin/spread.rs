//! `bench/spread`: what a second worker is worth to a port with one queue, whose program is what
//! takes the time (`spread = "flow"`).
//!
//! 64-byte UDP packets of many flows from an in-memory generator with one queue, dropped by a
//! program that takes a given time. In each round one worker has its turn, then two of which the
//! second has nothing to do, then two that share the flows. What counts is how many frames programs
//! judged: what a worker has no room for is dropped before that.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::{Duration, Instant};

use clap::Parser;
use towpath_bench::{attach, load, median, received, spread, thread_cpu_ns};
use towpath_engine::counters::DropReason;
use towpath_engine::{Engine, Hook, Mode, Options, PortId, PortOptions, Spread, WorkerOptions};
use towpath_ports::generator::{self, Generator};
use towpath_workload::small;
use towpath_xdp::{Arena, Burst, Pool};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 300)]
    window: u64,
    /// Times that the programs take for a frame, in nanoseconds; 0 is a program that only drops.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 25, 50, 100, 200, 400])]
    takes: Vec<u64>,
    /// Flows.
    #[arg(long, default_value_t = 1000)]
    flows: u16,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let window = Duration::from_millis(args.window);
    let round_ns = (program_ns(500)? - program_ns(0)?) / 500.0;
    println!(
        "{} flows, one queue; millions of frames a second that a program judged: median (least .. most)\n",
        args.flows
    );
    println!(
        "  {:>10}  {:25}{:25}{:25}{:25}dropped",
        "program", "1 worker", "2 workers, off", "2 workers, flow", "flow / 1 worker"
    );
    for &takes in &args.takes {
        let rounds = (takes as f64 / round_ns).round() as usize;
        let sides = [(1, Spread::Off), (2, Spread::Off), (2, Spread::Flow)];
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        let (mut ratios, mut lost) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            for (found, (workers, spread)) in rates.iter_mut().zip(sides) {
                let scene = Scene::new(workers, spread, rounds, args.flows)?;
                let (rate, dropped) = scene.measure(window)?;
                found.push(rate);
                if spread == Spread::Flow {
                    lost.push(dropped);
                }
            }
            let last = |side: &Vec<f64>| side[side.len() - 1];
            ratios.push(last(&rates[2]) / last(&rates[0]));
        }
        let [one, off, flow] = rates.map(|rates| spread(&rates));
        let (ns, lost) = (program_ns(rounds)?, median(&lost).0 * 100.0);
        println!(
            "  {ns:7.0} ns  {one:25}{off:25}{flow:25}{:25}{lost:.1} %",
            format!("{}x", spread(&ratios))
        );
    }
    Ok(())
}

/// A generator and its program, on so many workers.
struct Scene {
    engine: Engine,
    port: PortId,
}

impl Scene {
    fn new(workers: usize, spread: Spread, rounds: usize, flows: u16) -> anyhow::Result<Scene> {
        let engine = start(workers)?;
        let templates = (0..flows).map(packet).collect();
        let options = generator::Options { templates, ..generator::Options::new(packet(0)) };
        let device = Box::new(Generator::new(options)?);
        // Down until it has its program.
        let options = PortOptions { spread, up: false, ..PortOptions::new("gen") };
        let port = engine.add_port(options, device)?;
        let program = load(small::works(rounds), workers)?;
        engine.change(|config| {
            attach(config, port, &[program], workers, 0)?;
            config.set_up(port, true)
        })?;
        Ok(Scene { engine, port })
    }

    /// Millions of frames a second that its program judged, and the share of frames that a worker
    /// had no room for.
    fn measure(&self, window: Duration) -> anyhow::Result<(f64, f64)> {
        std::thread::sleep(Duration::from_millis(20));
        let (start, before) = (Instant::now(), self.counts());
        std::thread::sleep(window);
        let (end, after) = (Instant::now(), self.counts());
        self.engine.stop();
        let conservation = self.engine.conservation();
        anyhow::ensure!(conservation.missing() == 0, "frames are missing: {conservation:?}");
        let [judged, dropped, received] =
            [0, 1, 2].map(|index| (after[index] - before[index]) as f64);
        Ok((judged / (end - start).as_secs_f64() / 1e6, dropped / received))
    }

    /// Frames that were judged, dropped before that, and received.
    fn counts(&self) -> [u64; 3] {
        let full = DropReason::RingFull as usize;
        let [judged, dropped] = self.engine.read(|config, snapshot| {
            let links = config.links(self.port, Hook::Rx).unwrap_or_default();
            let runs = links.iter().flat_map(|link| link.counters()).map(|it| it.runs.get());
            let port = snapshot.port(self.port);
            let drops = port.iter().flat_map(|port| port.opened.counters.iter());
            [runs.sum(), drops.map(|it| it.drops[full].get()).sum()]
        });
        [judged, dropped, received(&self.engine, self.port)]
    }
}

/// Processor time of a program for a frame that is in the cache, in nanoseconds.
fn program_ns(rounds: usize) -> anyhow::Result<f64> {
    let program = load(small::works(rounds), 1)?;
    let arena = Arena::new(256)?;
    let (mut pool, mut frames, mut burst) = (Pool::new(&arena), Vec::new(), Burst::default());
    let mut worker = program.worker(0);
    pool.take_many(64, &mut frames);
    frames.iter_mut().for_each(|frame| frame.fill(&packet(0)));
    let mut times = Vec::new();
    for _ in 0..7 {
        let start = thread_cpu_ns();
        for _ in 0..500 {
            program.run_burst(&mut worker, &mut frames, &mut burst)?;
        }
        times.push((thread_cpu_ns() - start) as f64 / (500.0 * 64.0));
    }
    pool.give_all(&mut frames);
    Ok(median(&times).0)
}

fn start(workers: usize) -> anyhow::Result<Engine> {
    let worker =
        |cpu| WorkerOptions { cpu: Some(cpu), mode: Mode::Busy, ..WorkerOptions::default() };
    // The last core first: the one that most machines interrupt least.
    let cpus = std::thread::available_parallelism()?.get();
    let workers = (0..workers).map(|number| worker((cpus - 1).saturating_sub(number)));
    Ok(Engine::start(&Options { workers: workers.collect(), frames: 8192 })?)
}

/// A UDP packet of that flow.
fn packet(flow: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45];
    packet.resize(64, 0);
    packet[23] = 17;
    packet[26..34].copy_from_slice(&[10, 0, (flow >> 8) as u8, flow as u8, 10, 1, 0, 1]);
    packet[34..36].copy_from_slice(&(1024 + flow).to_be_bytes());
    packet[37] = 53;
    packet
}
