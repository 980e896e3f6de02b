//! `bench/timers`: how long timers hold frames up, and what it costs to start them.
//!
//! `programs/flow_table.c`, where each flow has a timer that its packets push back, over a table of
//! as many flows as are asked for. Its clock is set by hand: 16,384 flows come at one moment and
//! the others later, so that 16,384 timers are due at once while all the others wait. Bursts of 64
//! frames are timed one by one; the longest is what a worker's other frames waited.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::path::PathBuf;

use clap::Parser;
use towpath_bench::{median, spread, thread_cpu_ns};
use towpath_bpf::object::GlobalValue;
use towpath_bpf::program::MapDef;
use towpath_bpf::{Env, Object};
use towpath_xdp::{Burst, Exec, Frame, LoadOptions, Program, Worker};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// The compiled program.
    #[arg(long, default_value = "build/programs/flow_table.o")]
    object: PathBuf,
    /// Flows, each with a timer that waits: 32,768 at least.
    #[arg(long, value_delimiter = ',', default_values_t = [32_768, 131_072, 1_000_000])]
    flows: Vec<u32>,
    /// Rounds, each with a table of its own.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Figures, one of each round.
#[derive(Default)]
struct Figures {
    /// Nanoseconds a frame: of a new flow, whose timer is started.
    new: Vec<f64>,
    /// Of a known flow, whose timer is pushed back.
    known: Vec<f64>,
    /// Microseconds of the longest burst while 16,384 timers were due, and of a usual one before.
    longest: Vec<f64>,
    before: Vec<f64>,
    /// Milliseconds until the last of them had fired.
    all: Vec<f64>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!("flow_table, bursts of 64 frames, {DUE} timers due at once; medians (least .. most)");
    for &flows in &args.flows {
        let mut figures = Figures::default();
        for _ in 0..args.rounds {
            round(&args, flows.max(2 * DUE), &mut figures)?;
        }
        println!("{flows} flows");
        println!("  new flow, its timer started   {} ns a frame", spread(&figures.new));
        println!("  known flow, pushed back       {} ns a frame", spread(&figures.known));
        println!("  burst with no timer due       {} us", spread(&figures.before));
        println!("  longest while they were due   {} us", spread(&figures.longest));
        println!("  until all had fired           {} ms", spread(&figures.all));
    }
    Ok(())
}

fn round(args: &Args, flows: u32, figures: &mut Figures) -> anyhow::Result<()> {
    let mut table = Table::new(args, flows)?;
    table.at(1);
    table.bursts(0..DUE)?;
    table.at(20);
    let new = table.bursts(DUE..flows)?;
    figures.new.push(new.iter().sum::<f64>() / f64::from(flows - DUE));
    // Only flows that came later are pushed back, by some seconds.
    table.at(25);
    let known = table.bursts(flows - DUE..flows)?;
    // These go on while the others are due.
    table.bursts(flows..flows + BURST)?;
    figures.known.push(known.iter().sum::<f64>() / f64::from(DUE));
    figures.before.push(median(&known).0 / 1e3);
    table.at(31);
    let (start, mut longest) = (thread_cpu_ns(), 0.0f64);
    while table.expired() < u64::from(DUE) {
        let bursts = table.bursts(flows..flows + BURST)?;
        longest = bursts.into_iter().fold(longest, f64::max);
    }
    figures.all.push((thread_cpu_ns() - start) as f64 / 1e6);
    figures.longest.push(longest / 1e3);
    Ok(())
}

/// The program with its tables.
struct Table {
    program: Program,
    worker: Worker,
    burst: Burst,
    frames: Vec<Frame>,
}

impl Table {
    fn new(args: &Args, flows: u32) -> anyhow::Result<Table> {
        let mut object = Object::open(&std::fs::read(&args.object)?, "flow_table")?;
        // A walk of the whole table every five seconds is the program's own wish.
        object.set_global("sweep_ns", &GlobalValue::Int(i64::MAX.into()))?;
        let mut linked = object.link(object.select(Some("flow_table"), None)?, &Env::builtin())?;
        linked.maps = linked.maps.iter().cloned().map(|map| sized(map, flows)).collect();
        let options = LoadOptions { exec: Exec::Jit, ..LoadOptions::default() };
        let program = Program::from_linked(linked, &options)?;
        // As a daemon does: memory that is touched first would be timed, 2 MiB at a time.
        for map in program.maps().maps() {
            while map.populate_step() {}
        }
        let frames = (0..BURST).map(|_| Frame::new(&packet(0))).collect::<Result<_, _>>()?;
        Ok(Table { worker: program.worker(0), program, burst: Burst::default(), frames })
    }

    fn at(&self, seconds: u64) {
        self.program.surroundings().clock.set(seconds * 1_000_000_000);
    }

    /// Runs a frame of each flow; gives the nanoseconds of processor time of each burst.
    fn bursts(&mut self, flows: std::ops::Range<u32>) -> anyhow::Result<Vec<f64>> {
        let mut times = Vec::with_capacity(flows.len() / BURST as usize);
        for first in flows.step_by(BURST as usize) {
            for (flow, frame) in (first..).zip(&mut self.frames) {
                frame.fill(&packet(flow));
            }
            let start = thread_cpu_ns();
            self.program.run_burst(&mut self.worker, &mut self.frames, &mut self.burst)?;
            times.push((thread_cpu_ns() - start) as f64);
        }
        Ok(times)
    }

    /// Flows whose timer fired.
    fn expired(&self) -> u64 {
        let map = self.program.maps().by_name("expired");
        map.and_then(|map| map.count()).unwrap_or_default()
    }
}

/// A map with room for all flows, and for those that go on while timers are due.
fn sized(mut map: MapDef, flows: u32) -> MapDef {
    match &*map.name {
        "flows" => map.max_entries = flows + BURST,
        "expired" => map.max_entries = 2 * DUE,
        _ => {}
    }
    map
}

/// A UDP packet of a flow.
fn packet(flow: u32) -> [u8; 64] {
    let mut packet = [0; 64];
    packet[12..14].copy_from_slice(&[8, 0]);
    packet[14..24].copy_from_slice(&[0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17]);
    packet[26..30].copy_from_slice(&flow.to_be_bytes());
    packet[30..34].copy_from_slice(&[10, 0, 0, 1]);
    packet[34..42].copy_from_slice(&[0x12, 0x34, 0, 53, 0, 30, 0, 0]);
    packet
}

/// Frames that run together.
const BURST: u32 = 64;
/// Timers that are due at the same time.
const DUE: u32 = 16_384;
