//! The programs in this process.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use towpath_bpf::{Env, Object};
use towpath_xdp::{Burst, Exec, Frame, LoadOptions, Loader, Program, Select};

use crate::flows::{fill, seed};
use crate::threads::together;

/// The maps, filled.
pub(crate) struct Here<'a> {
    loader: Loader<'a>,
    cpus: &'a [usize],
}

impl<'a> Here<'a> {
    pub(crate) fn new(object: &'a Object, env: &'a Env, cpus: &'a [usize]) -> anyhow::Result<Self> {
        // Leaked, because a loader borrows it; once a process.
        let options: &'static LoadOptions = Box::leak(Box::new(LoadOptions {
            workers: cpus.len(),
            exec: Exec::Jit,
            ..LoadOptions::default()
        }));
        let loader = Loader::new(object, env, options)?;
        let here = Here { loader, cpus };
        // A worker that runs nothing must not keep unlinked elements from being reused.
        (0..cpus.len()).for_each(|worker| here.loader.maps().domain().offline(worker));
        fill(|name, key, value| here.store(name, 0, key, value))?;
        for worker in 0..cpus.len() {
            here.store("numbers", worker, &[0; 4], &seed(worker))?;
        }
        Ok(here)
    }

    fn store(&self, name: &str, worker: usize, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let map = self.loader.maps().by_name(name).context("a map of the object")?;
        map.update(worker, key, value, 0).map_err(|errno| anyhow::anyhow!("{name}: {errno}"))
    }

    pub(crate) fn program(&self, name: &str) -> anyhow::Result<Program> {
        let program = self.loader.program(Select::Name(name))?;
        ensure!(program.exec() == Exec::Jit, "{name} could not be compiled");
        Ok(program)
    }

    /// Runs a second on so many threads together.
    pub(crate) fn rate(
        &self,
        program: &Program,
        threads: usize,
        window: Duration,
    ) -> anyhow::Result<f64> {
        together(&self.cpus[..threads], |worker, start| {
            let mut runs = 0;
            let elapsed = run(program, worker, start, |burst_runs, elapsed| {
                runs = burst_runs;
                elapsed < window
            })?;
            Ok(runs as f64 / elapsed.as_secs_f64())
        })
    }

    /// Keys of the map `order`, and the number of the next one.
    pub(crate) fn stamps(&self) -> anyhow::Result<(Vec<u64>, u64)> {
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let map = |name| self.loader.maps().by_name(name).context("a map of the object");
        let keys = map("order")?.user().entries().map(|(key, _)| word(&key)).collect();
        let next = map("stamps")?.user().lookup(&[0; 4], 0);
        let next = next.map_err(|errno| anyhow::anyhow!("stamps: {errno}"))?;
        Ok((keys, word(next.bytes())))
    }

    /// The processors of the first workers.
    pub(crate) fn cpus(&self, threads: usize) -> &[usize] {
        &self.cpus[..threads]
    }
}

/// Runs bursts as long as `go_on`, which is told of the runs so far, wants.
pub(crate) fn run(
    program: &Program,
    worker: usize,
    start: &Barrier,
    mut go_on: impl FnMut(u64, Duration) -> bool,
) -> anyhow::Result<Duration> {
    let mut frames: Vec<Frame> =
        (0..BURST_FRAMES).map(|_| Frame::new(&[0; 64])).collect::<Result<_, _>>()?;
    let (mut burst, mut at) = (Burst::default(), program.worker(worker as u32));
    start.wait();
    let (began, mut runs, mut elapsed) = (Instant::now(), 0, Duration::ZERO);
    while go_on(runs, elapsed) {
        for _ in 0..BURSTS {
            program
                .run_burst(&mut at, &mut frames, &mut burst)
                .map_err(|fault| anyhow::anyhow!("{fault}"))?;
        }
        runs += BURSTS * BURST_FRAMES as u64;
        elapsed = began.elapsed();
    }
    program.maps().domain().offline(worker);
    ensure!(burst.faults().is_empty(), "{}: a fault", program.name());
    ensure!(burst.returned(0) == 1, "{} did not go as expected", program.name());
    Ok(elapsed)
}

/// Frames that are judged one after another, as an engine does.
const BURST_FRAMES: usize = 64;
/// Bursts between two looks at the clock.
const BURSTS: u64 = 8;
