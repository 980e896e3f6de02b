//! One frame through one program, here and in the running kernel: the last part of `towpath run`.

use serde::Serialize;

use super::kernel_version;
use super::measure::measure;
use super::subject::Subject;
use crate::args::{BenchArgs, Peer, RunArgs};
use crate::program::Opened;

/// Time for one frame, in nanoseconds, without the overhead of each engine around a program.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Beside {
    /// Time in this process.
    pub(crate) ns: f64,
    /// Time in the running kernel.
    pub(crate) kernel_ns: f64,
    /// Kernel time divided by the time here: above 1 is faster here.
    pub(crate) ratio: f64,
    /// Version of the kernel.
    pub(crate) kernel: String,
}

/// Measures the program of a run on one of its frames.
///
/// # Errors
///
/// Fails if the kernel can't be asked, or if its results can't be compared; the text says why in a
/// few words.
pub(crate) fn beside_kernel(run: &RunArgs, frame: Vec<u8>) -> Result<Beside, String> {
    towpath_kernel::Kernel::open().map_err(|error| error.to_string())?;
    // A thread has one network namespace: only this thread is moved into a new one.
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            let _not_permitted = towpath_kernel::isolate_network();
            measured(run, frame)
        });
        measured.join().unwrap_or_else(|_panic| Err("measuring it failed".to_owned()))
    })
}

fn measured(run: &RunArgs, frame: Vec<u8>) -> Result<Beside, String> {
    let args = BenchArgs {
        objects: vec![run.object.clone()],
        against: Peer::Kernel,
        helpers: false,
        exec: vec![run.exec],
        map_init: run.surroundings.map_init.clone(),
        input: None,
        frame: None,
        flows: vec![1],
        cold: false,
        rounds: ROUNDS,
        window: WINDOW_MS,
        without: Vec::new(),
        profile: false,
        trust: run.surroundings.trust,
        report: None,
        selection: run.selection.clone(),
        program: run.program.clone(),
    };
    let said = |error: crate::error::CliError| error.to_string();
    let opened = Opened::new(&run.object, &run.program).map_err(said)?;
    let program = opened.select(&run.selection).map_err(said)?;
    let frames = [frame];
    let subject = Subject::new(&args, &opened, program, args.map_init.as_deref(), &frames)?;
    let mut entries = measure(subject)?.into_iter().flat_map(|measured| measured.entries);
    let entry = entries.next().ok_or("nothing was measured")?;
    let (ns, kernel_ns, ratio) = (tenths(entry.ns), tenths(entry.peer_ns), entry.ratio);
    Ok(Beside { ns, kernel_ns, ratio: (ratio * 100.0).round() / 100.0, kernel: kernel_version() })
}

fn tenths(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

/// Limits of a measurement that takes half a second: most of it is spent in the kernel, which waits
/// before and after a test run. `towpath bench` takes longer.
const ROUNDS: u32 = 1;
const WINDOW_MS: u32 = 40;
