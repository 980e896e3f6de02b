//! The cost of a new flow in a table that was never written, so that its memory is touched for the
//! first time.

use std::fmt;

use towpath_bench::{median, thread_cpu_ns};
use towpath_bpf::{Env, Object};
use towpath_kernel::{Kernel, TestRun};
use towpath_xdp::{Burst, Exec, Frame, LoadOptions, Loader, Select};

/// The heading above the lines of [`First`].
pub(crate) const HEADING: &str = "the first insertions into a table of 524,288 entries, one \
     thread, ns each: here | kernel (ratio)";

/// The first so many insertions into one kind of table.
#[derive(Debug)]
pub(crate) struct First {
    pub(crate) program: &'static str,
    pub(crate) flows: u32,
    pub(crate) here: Vec<f64>,
    pub(crate) kernel: Vec<f64>,
}

impl First {
    /// Nanoseconds here and there, and the kernel's as a multiple of ours.
    pub(crate) fn figures(&self) -> [f64; 3] {
        let [here, kernel] = [&self.here, &self.kernel].map(|figures| median(figures).0);
        [here, kernel, kernel / here]
    }
}

/// Makes new tables in each round.
pub(crate) fn measure(
    object: &Object,
    env: &Env,
    rounds: usize,
    kernel: bool,
) -> anyhow::Result<Vec<First>> {
    let kernel = if kernel { Some(Kernel::open()?) } else { None };
    let mut all = Vec::new();
    for program in ["first_insert", "first_insert_lru"] {
        for flows in FLOWS {
            let mut first = First { program, flows, here: Vec::new(), kernel: Vec::new() };
            for _ in 0..rounds {
                first.here.push(here(object, env, program, flows)?);
                if let Some(kernel) = &kernel {
                    first.kernel.push(there(kernel, object, env, program, flows)?);
                }
            }
            all.push(first);
        }
    }
    Ok(all)
}

fn here(object: &Object, env: &Env, program: &str, flows: u32) -> anyhow::Result<f64> {
    let options = LoadOptions { workers: 1, exec: Exec::Jit, ..LoadOptions::default() };
    let loader = Loader::new(object, env, &options)?;
    let program = loader.program(Select::Name(program))?;
    let mut frames: Vec<Frame> = (0..64).map(|_| Frame::new(&[0; 64])).collect::<Result<_, _>>()?;
    let (mut burst, mut worker) = (Burst::default(), program.worker(0));
    let began = thread_cpu_ns();
    for _ in 0..flows / 64 {
        let run = program.run_burst(&mut worker, &mut frames, &mut burst);
        run.map_err(|fault| anyhow::anyhow!("{fault}"))?;
    }
    let took = thread_cpu_ns() - began;
    anyhow::ensure!(burst.returned(63) == 1, "{} did not insert", program.name());
    Ok(took as f64 / f64::from(flows))
}

fn there(
    kernel: &Kernel,
    object: &Object,
    env: &Env,
    program: &str,
    flows: u32,
) -> anyhow::Result<f64> {
    let linked = object.link(object.select(Some(program), None)?, env)?;
    let maps = kernel.load_maps(&linked.maps)?;
    let program = kernel.load(&linked, &maps)?;
    let began = thread_cpu_ns();
    let result = program.test_run(&TestRun { repeat: flows, ..TestRun::new(&[0; 64]) })?;
    let took = thread_cpu_ns() - began;
    anyhow::ensure!(result.retval == 1, "{} did not insert there", program.name());
    Ok(took as f64 / f64::from(flows))
}

impl fmt::Display for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [here, kernel, ratio] = self.figures();
        let First { program, flows, .. } = self;
        write!(f, "{program:20}{flows:>10} flows {here:>8.0} | {kernel:.0} ({ratio:.2})")
    }
}

/// So many flows: those of a short window, and almost as many as there are places.
const FLOWS: [u32; 2] = [4096, 458_752];
