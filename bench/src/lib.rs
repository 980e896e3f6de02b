//! What the benchmarks share: rounds, medians, tables. Each binary measures one thing and prints
//! ratios between sides that took turns in the same run.

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

/// Nanoseconds a frame takes, over a window.
pub fn ns_per_frame(engine: &Engine, port: PortId, window: Duration) -> f64 {
    let (start, before) = (Instant::now(), received(engine, port));
    std::thread::sleep(window);
    let count = received(engine, port) - before;
    start.elapsed().as_nanos() as f64 / count.max(1) as f64
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
