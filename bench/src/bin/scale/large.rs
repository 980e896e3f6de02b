//! Look-ups in tables that are larger than the caches: their cost here, with and without looking
//! ahead, and in the kernel.

use std::fmt;

use anyhow::{Context as _, ensure};
use towpath_bench::{median, thread_cpu_ns};
use towpath_bpf::object::GlobalValue;
use towpath_bpf::{Env, Object};
use towpath_kernel::{Kernel, TestRun};
use towpath_xdp::{Burst, Exec, Frame, LoadOptions, Loader, Select};

use crate::flows::flow;

/// The heading above the lines of [`Large`].
pub(crate) const HEADING: &str = "a look-up in a table of so many flows that come at random, one \
     thread, ns: here, without looking ahead | kernel (our share of the kernel's time)";

/// A look-up in one kind of table: what a run takes less one without a look-up.
#[derive(Debug, Default)]
pub(crate) struct Large {
    pub(crate) kind: &'static str,
    pub(crate) flows: u32,
    /// Of each round.
    pub(crate) here: Vec<f64>,
    pub(crate) plain: Vec<f64>,
    pub(crate) kernel: Vec<f64>,
}

impl Large {
    /// Nanoseconds here, without looking ahead, and there; and our share of the kernel's time: the
    /// middle of the rounds'.
    pub(crate) fn figures(&self) -> [f64; 4] {
        let [here, plain, kernel] =
            [&self.here, &self.plain, &self.kernel].map(|figures| median(figures).0);
        let shares: Vec<f64> = self.here.iter().zip(&self.kernel).map(|(a, b)| a / b).collect();
        [here, plain, kernel, median(&shares).0]
    }
}

/// Each number of flows fills new tables.
pub(crate) fn measure(
    open: impl Fn() -> anyhow::Result<Object>,
    env: &Env,
    flows: &[u32],
    rounds: usize,
    kernel: bool,
) -> anyhow::Result<Vec<Large>> {
    let mut all = Vec::new();
    for &flows in flows {
        let mut object = open()?;
        object.set_global("flows", &GlobalValue::Int(flows.into()))?;
        for (map, _) in TABLES {
            // As the kernel evicts before an LRU table is full.
            object.set_map_size(map, flows + flows / 4)?;
        }
        all.extend(with(&object, env, flows, rounds, kernel)?);
    }
    Ok(all)
}

fn with(
    object: &Object,
    env: &Env,
    flows: u32,
    rounds: usize,
    kernel: bool,
) -> anyhow::Result<Vec<Large>> {
    let options = || LoadOptions { workers: 1, exec: Exec::Jit, ..LoadOptions::default() };
    let (of_ahead, mut of_plain) = (options(), options());
    of_plain.jit.passes.without.insert("look-ahead".into());
    let [ahead, plain] = [&of_ahead, &of_plain].map(|options| filled(object, env, options, flows));
    let (ahead, plain) = (ahead?, plain?);
    let kernel = if kernel { Some(Kernel::open()?) } else { None };
    let mut ours = [here(&ahead)?, here(&plain)?];
    let mut theirs = kernel.as_ref().map(|it| there(it, object, env, flows)).transpose()?;
    let of_kind = |(_, kind)| Large { kind, flows, ..Large::default() };
    let mut all = TABLES.map(of_kind);
    for _ in 0..rounds {
        for (at, side) in ours.iter_mut().chain(&mut theirs).enumerate() {
            for (large, ns) in all.iter_mut().zip(look_ups(side)?) {
                [&mut large.here, &mut large.plain, &mut large.kernel][at].push(ns);
            }
        }
    }
    Ok(all.into())
}

/// Tables of its own, filled.
fn filled<'a>(
    object: &'a Object,
    env: &'a Env,
    options: &'a LoadOptions,
    flows: u32,
) -> anyhow::Result<Loader<'a>> {
    let loader = Loader::new(object, env, options)?;
    for (name, _) in TABLES {
        let map = loader.maps().by_name(name).context("a map of the object")?;
        let store = |number| map.update(0, &flow(number), &ENTRY, 0);
        (0..flows).try_for_each(store).map_err(failed)?;
    }
    Ok(loader)
}

/// Runs [`RUNS`] frames through a program; gives the nanoseconds of each.
type Timed<'a> = Box<dyn FnMut() -> anyhow::Result<f64> + 'a>;

/// Nanoseconds of a look-up in each of [`TABLES`], from the times of one side's programs.
fn look_ups([bare, tables @ ..]: &mut [Timed<'_>; 3]) -> anyhow::Result<[f64; 2]> {
    let bare = bare()?;
    let [first, second] = tables;
    Ok([first()? - bare, second()? - bare])
}

fn here<'a>(loader: &Loader<'_>) -> anyhow::Result<[Timed<'a>; 3]> {
    let timed = |name| -> anyhow::Result<Timed<'a>> {
        let program = loader.program(Select::Name(name))?;
        let frame = |_| Frame::new(&packet());
        let mut frames: Vec<Frame> = (0..64).map(frame).collect::<Result<_, _>>()?;
        let (mut burst, mut worker) = (Burst::default(), program.worker(0));
        Ok(Box::new(move || {
            let began = thread_cpu_ns();
            for _ in 0..RUNS / 64 {
                let run = program.run_burst(&mut worker, &mut frames, &mut burst);
                run.map_err(|fault| anyhow::anyhow!("{fault}"))?;
            }
            let took = thread_cpu_ns() - began;
            ensure!(burst.returned(63) == 1, "{} found no flow", program.name());
            Ok(took as f64 / f64::from(RUNS))
        }))
    };
    let [bare, hash, lru] = PROGRAMS.map(timed);
    Ok([bare?, hash?, lru?])
}

fn there<'a>(
    kernel: &Kernel,
    object: &Object,
    env: &Env,
    flows: u32,
) -> anyhow::Result<[Timed<'a>; 3]> {
    let maps = kernel.load_maps(object.maps())?;
    for map in maps.maps().iter().filter(|map| TABLES.iter().any(|(name, _)| *name == map.name())) {
        let store = |number| map.update(&flow(number), &ENTRY, 0);
        (0..flows).try_for_each(store).map_err(failed)?;
    }
    let timed = |name| -> anyhow::Result<Timed<'a>> {
        let linked = object.link(object.select(Some(name), None)?, env)?;
        let program = kernel.load(&linked, &maps)?;
        Ok(Box::new(move || {
            let began = thread_cpu_ns();
            let result = program.test_run(&TestRun { repeat: RUNS, ..TestRun::new(&packet()) })?;
            let took = thread_cpu_ns() - began;
            ensure!(result.retval == 1, "{} found no flow there", program.name());
            Ok(took as f64 / f64::from(RUNS))
        }))
    };
    let [bare, hash, lru] = PROGRAMS.map(timed);
    Ok([bare?, hash?, lru?])
}

/// A frame of the first flow.
fn packet() -> [u8; 64] {
    let mut packet = [0; 64];
    packet[..16].copy_from_slice(&flow(0));
    packet
}

fn failed(errno: towpath_bpf::Errno) -> anyhow::Error {
    anyhow::anyhow!("the tables could not be filled: {errno}")
}

impl fmt::Display for Large {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [here, plain, kernel, share] = self.figures();
        let Large { kind, flows, .. } = self;
        write!(f, "{kind:10}{flows:>12} flows {here:>8.0}, {plain:.0} | {kernel:.0} ({share:.2})")
    }
}

/// Programs of `bench/scale/large.c`: without a look-up, and with one in each of [`TABLES`].
const PROGRAMS: [&str; 3] = ["no_table", "large_hash", "large_lru"];
/// Maps there, and what they are.
const TABLES: [(&str, &str); 2] = [("hash", "hash"), ("lru", "LRU hash")];
/// The value of each entry: a count of one packet.
const ENTRY: [u8; 16] = 1u128.to_ne_bytes();
/// Frames of a measurement.
const RUNS: u32 = 1 << 19;
