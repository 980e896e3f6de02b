//! The programs in the running kernel.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use towpath_bench::thread_cpu_ns;
use towpath_bpf::{Env, Object};
use towpath_kernel::{Kernel, KernelMap, KernelProgram, MapSet, TestRun};

use crate::flows::{fill, seed};
use crate::threads::together;

/// The maps, filled.
pub(crate) struct InKernel {
    kernel: Kernel,
    maps: MapSet,
    linked: BTreeMap<String, towpath_bpf::Linked>,
    cpus: Vec<usize>,
}

/// A program, and how often one thread runs it in a call.
pub(crate) struct Peer {
    program: KernelProgram,
    repeat: u32,
}

impl InKernel {
    pub(crate) fn new(object: &Object, env: &Env, cpus: &[usize]) -> anyhow::Result<Self> {
        let kernel = Kernel::open()?;
        let maps = kernel.load_maps(object.maps())?;
        let names = object.programs().iter().map(|program| program.name.clone()).enumerate();
        let linked = names
            .map(|(index, name)| Ok((name, object.link(index, env)?)))
            .collect::<anyhow::Result<_>>()?;
        let peer = InKernel { kernel, maps, linked, cpus: cpus.to_vec() };
        let of_all = peer.kernel.possible_cpus();
        fill(|name, key, value| {
            let map = peer.map(name)?;
            let all = if name == "percpu_hash" { value.repeat(of_all) } else { value.to_vec() };
            map.update(key, &all, 0).map_err(|errno| anyhow::anyhow!("{name}: {errno}"))
        })?;
        let seeds: Vec<u8> = (0..of_all).flat_map(seed).collect();
        let seeded = peer.map("numbers")?.update(&[0; 4], &seeds, 0);
        seeded.map_err(|errno| anyhow::anyhow!("numbers: {errno}"))?;
        Ok(peer)
    }

    fn map(&self, name: &str) -> anyhow::Result<&KernelMap> {
        self.maps.maps().iter().find(|map| map.name() == name).context("a map of the object")
    }

    pub(crate) fn program(&self, name: &str) -> anyhow::Result<Peer> {
        let linked = self.linked.get(name).context("a program of the object")?;
        let program = self.kernel.load(linked, &self.maps)?;
        let mut peer = Peer { program, repeat: RUNS_FIRST };
        peer.call()?;
        let (runs, took) = peer.call()?;
        let in_a_call = CALL.as_nanos() as f64 * runs as f64 / took.max(1) as f64;
        peer.repeat = (in_a_call as u32).max(RUNS_FIRST);
        Ok(peer)
    }

    /// Runs a second on so many threads together.
    pub(crate) fn rate(
        &self,
        peer: &Peer,
        threads: usize,
        window: Duration,
    ) -> anyhow::Result<f64> {
        together(&self.cpus[..threads], |_, start| {
            start.wait();
            let (began, mut runs, mut ns) = (Instant::now(), 0, 0);
            while began.elapsed() < window {
                let (more, took) = peer.call()?;
                (runs, ns) = (runs + more, ns + took);
            }
            Ok(runs as f64 * 1e9 / ns.max(1) as f64)
        })
    }

    /// Runs so often in all, on so many threads.
    pub(crate) fn run(&self, peer: &Peer, threads: usize, runs: u64) -> anyhow::Result<()> {
        let each = runs.div_ceil(threads as u64);
        together(&self.cpus[..threads], |_, start| {
            start.wait();
            let repeat = u32::try_from(each).unwrap_or(u32::MAX);
            peer.program.test_run(&TestRun { repeat, ..TestRun::new(&[0; 64]) })?;
            Ok(0.0)
        })?;
        Ok(())
    }

    /// Keys of the map `order`, and the number of the next one.
    pub(crate) fn stamps(&self) -> anyhow::Result<(Vec<u64>, u64)> {
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let map = self.map("order")?;
        let (mut keys, mut at) = (Vec::new(), None);
        let failed = |errno| anyhow::anyhow!("order: {errno}");
        while let Some(key) = map.next_key(at.as_deref()).map_err(failed)? {
            keys.push(word(&key));
            at = Some(key);
        }
        let next = self.map("stamps")?.lookup(&[0; 4]).map_err(failed)?;
        Ok((keys, word(&next)))
    }
}

impl Peer {
    /// Runs and the nanoseconds that this thread was on its processor for them.
    fn call(&self) -> anyhow::Result<(u64, u64)> {
        let began = thread_cpu_ns();
        let run = TestRun { repeat: self.repeat, ..TestRun::new(&[0; 64]) };
        let result = self.program.test_run(&run)?;
        ensure!(result.retval == 1, "{} did not go as expected there", self.program.name());
        Ok((u64::from(self.repeat), thread_cpu_ns() - began))
    }
}

/// Runs by which is estimated how long one takes.
const RUNS_FIRST: u32 = 20_000;
/// How long a call is to take on one thread: setting it up takes some microseconds.
const CALL: Duration = Duration::from_millis(25);
