//! What the benchmarks share: rounds, medians, tables. Each binary measures one thing and prints
//! ratios between sides that took turns in the same run.

#![forbid(unsafe_code)]

pub mod hints;
pub mod hosts;
pub mod sockets;
pub mod testpmd;
pub mod world;

use std::time::{Duration, Instant};

use towpath_bpf::program::Linked;
use towpath_engine::{Config, Engine, Error, Hook, Link, PortId};
use towpath_xdp::{Exec, LoadOptions, Program};

/// Loads a program as machine code for an engine's workers.
pub fn load(linked: Linked, workers: usize) -> anyhow::Result<Program> {
    let options = LoadOptions { workers, exec: Exec::Jit, ..LoadOptions::default() };
    Ok(Program::from_linked(linked, &options)?)
}

/// Attaches programs to a port in this order.
pub fn attach(
    config: &mut Config,
    port: PortId,
    programs: &[Program],
    workers: usize,
    actions: u32,
) -> Result<(), Error> {
    let links = (0..).zip(programs).map(|(index, program)| {
        let mut link = Link::new(program.clone(), index + 1, workers);
        (link.priority, link.chain_call_actions) = (index, actions);
        link
    });
    config.set_links(port, Hook::Rx, links.collect())
}

/// Frames received on a port so far.
pub fn received(engine: &Engine, port: PortId) -> u64 {
    engine.read(|_, snapshot| {
        let slot = snapshot.port(port);
        slot.map_or(0, |slot| slot.opened.counters.iter().map(|c| c.rx_packets.get()).sum())
    })
}

/// Nanoseconds of the workers' processor time that a frame from one of these ports takes, over a
/// window. Time that the scheduler gives to other processes does not count.
pub fn ns_per_frame(engine: &Engine, ports: &[PortId], window: Duration) -> anyhow::Result<f64> {
    let frames = || ports.iter().map(|&port| received(engine, port)).sum::<u64>();
    let (start, before) = (own_threads_cpu_ns(WORKERS)?, frames());
    std::thread::sleep(window);
    let (end, after) = (own_threads_cpu_ns(WORKERS)?, frames());
    Ok((end - start) as f64 / (after - before).max(1) as f64)
}

/// Processor time of the whole machine in interrupts and softirqs, in nanoseconds; it advances by
/// ticks (`/proc/stat`).
pub fn softirq_ns() -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let fields: Vec<u64> =
        stat.lines().next().unwrap_or("").split_whitespace().flat_map(str::parse).collect();
    let ticks: u64 = fields.iter().skip(5).take(2).sum();
    Ok(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// Processor time of this process's threads whose names begin so, in nanoseconds.
pub fn own_threads_cpu_ns(name: &str) -> anyhow::Result<u64> {
    threads_cpu_ns("/proc/self/task", name)
}

/// Beginning of the names of an engine's workers.
pub const WORKERS: &str = "worker-";

/// Processor time of threads of a process (`/proc/PID/task`) whose names begin so, in nanoseconds.
fn threads_cpu_ns(tasks: &str, name: &str) -> anyhow::Result<u64> {
    let mut total = 0;
    for task in std::fs::read_dir(tasks)? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.starts_with(name) {
            let schedstat = std::fs::read_to_string(task.join("schedstat"))?;
            total += schedstat.split(' ').next().unwrap_or("0").parse::<u64>()?;
        }
    }
    Ok(total)
}

/// Frames a second, over a window of real time.
pub fn rate(engine: &Engine, port: PortId, window: Duration) -> f64 {
    let (start, before) = (Instant::now(), received(engine, port));
    std::thread::sleep(window);
    (received(engine, port) - before) as f64 / start.elapsed().as_secs_f64()
}

/// Processor time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The middle of some figures, with the smallest and the largest.
pub fn median(figures: &[f64]) -> (f64, f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted[..] {
        [] => (f64::NAN, f64::NAN, f64::NAN),
        _ => (sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1]),
    }
}

/// The middle of some figures, with the smallest and the largest, as text.
pub fn spread(figures: &[f64]) -> String {
    let (middle, least, most) = median(figures);
    format!("{middle:6.2} ({least:.2} .. {most:.2})")
}

/// Figures of two sides that took turns.
#[derive(Debug, Default)]
pub struct Turns {
    /// The side whose turn is first.
    pub one: Vec<f64>,
    /// The other one.
    pub other: Vec<f64>,
}

impl Turns {
    /// Measures both sides in each of so many rounds.
    pub fn take(
        rounds: usize,
        mut one: impl FnMut() -> anyhow::Result<f64>,
        mut other: impl FnMut() -> anyhow::Result<f64>,
    ) -> anyhow::Result<Turns> {
        let mut turns = Turns::default();
        for _ in 0..rounds {
            turns.one.push(one()?);
            turns.other.push(other()?);
        }
        Ok(turns)
    }

    /// The first side's figure as a multiple of the other's: the middle of those of all rounds,
    /// since what the machine does besides is the same for neighbours.
    pub fn ratio(&self) -> f64 {
        let ratios: Vec<f64> = self.one.iter().zip(&self.other).map(|(a, b)| a / b).collect();
        median(&ratios).0
    }
}
