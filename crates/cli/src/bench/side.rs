//! One program in one engine, ready to be run over a frame many times.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use towpath_bpf::{Env, Linked};
use towpath_kernel::{Kernel, KernelProgram, MapSet, TestRun, TestRunResult};
use towpath_xdp::{Burst, Frame, Program, Worker};

use super::feed::{Feed, Renewal};
use crate::kernel_session::KernelSession;

/// Result of a run, or of the last of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The program's return value.
    pub(super) retval: u32,
    /// Metadata, then the packet.
    pub(super) data: Vec<u8>,
    /// Length of the metadata at the start of `data`.
    pub(super) meta_bytes: usize,
    /// Offset in `data` at which the linear part ends.
    pub(super) linear_end: usize,
}

/// A program and its frames, in one engine.
pub(super) trait Side {
    /// Runs the program `repeat` times from the feed's first frame on.
    fn run(&mut self, repeat: u32) -> Result<Outcome, String>;

    /// Runs the program about `runs` times. Gives the number of runs, the processor time they took
    /// and the last return value.
    fn time(&mut self, runs: u64) -> Result<Timed, String>;
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timed {
    runs: u64,
    elapsed: Duration,
    /// Return value of the last run.
    pub(super) retval: u32,
}

impl Timed {
    /// Average time of one run, in nanoseconds.
    pub(super) fn ns(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.runs.max(1) as f64
    }

    /// Both measurements together.
    pub(super) fn and(self, other: Timed) -> Timed {
        let (runs, elapsed) = (self.runs + other.runs, self.elapsed + other.elapsed);
        Timed { runs, elapsed, retval: other.retval }
    }

    pub(super) fn is_longer_than(&self, time: Duration) -> bool {
        self.elapsed > time
    }

    /// Number of runs that take `window`.
    pub(super) fn runs_in(&self, window: Duration) -> u64 {
        (window.as_nanos() as f64 / self.ns().max(0.5)) as u64
    }
}

/// Processor time of this thread: unlike a wall clock it stands still while others run.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// A program in the running kernel.
#[derive(Debug)]
pub(super) struct InKernel<'a> {
    /// The program, or the one that makes its frames and calls it.
    program: KernelProgram,
    packet: Vec<u8>,
    /// Programs and maps that must stay open: a program array keeps its entries only while it is
    /// open.
    _called: Option<(KernelProgram, MapSet)>,
    _session: Option<KernelSession<'a>>,
}

impl<'a> InKernel<'a> {
    /// A loaded program with frames of `feed` in front of it; `linked` is the same program.
    pub(super) fn new(
        program: KernelProgram,
        linked: &Linked,
        feed: &Feed,
        env: &Env,
        session: Option<KernelSession<'a>>,
    ) -> Result<Self, String> {
        let packet = feed.packet.clone();
        if feed.renewal == Renewal::Kept {
            return Ok(InKernel { program, packet, _called: None, _session: session });
        }
        let kernel = Kernel::open().map_err(|error| error.to_string())?;
        let front = feed.program(&linked.name, linked.has_frags, env);
        let maps = kernel.load_maps(&front.maps).map_err(|error| error.to_string())?;
        maps.set_program(&program).map_err(|error| error.to_string())?;
        let front = kernel.load(&front, &maps).map_err(|error| error.to_string())?;
        Ok(InKernel { program: front, packet, _called: Some((program, maps)), _session: session })
    }

    fn test_run(&self, repeat: u32) -> Result<TestRunResult, String> {
        let run = TestRun { repeat, ..TestRun::new(&self.packet) };
        self.program.test_run(&run).map_err(|error| error.to_string())
    }
}

impl Side for InKernel<'_> {
    fn run(&mut self, repeat: u32) -> Result<Outcome, String> {
        let result = self.test_run(repeat)?;
        Ok(Outcome {
            retval: result.retval,
            meta_bytes: result.context.data as usize,
            linear_end: result.context.data_end as usize,
            data: result.data,
        })
    }

    fn time(&mut self, runs: u64) -> Result<Timed, String> {
        let repeat = u32::try_from(runs).unwrap_or(u32::MAX).max(1);
        let start = thread_time();
        let result = self.test_run(repeat)?;
        let elapsed = thread_time().saturating_sub(start);
        Ok(Timed { runs: repeat.into(), elapsed, retval: result.retval })
    }
}

/// A program in this process.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) program: Program,
    worker: Worker,
    feed: Feed,
    frames: Vec<Frame>,
    burst: Burst,
}

impl Here {
    pub(super) fn new(program: Program, feed: &Feed) -> Result<Self, String> {
        let worker = program.worker(0);
        let frames = (0..BURST_FRAMES)
            .map(|_| Frame::new(&feed.packet).map_err(|error| error.to_string()))
            .collect::<Result<_, _>>()?;
        Ok(Here { program, worker, feed: feed.clone(), frames, burst: Burst::default() })
    }

    /// Takes frames from another feed from now on.
    pub(super) fn set_feed(&mut self, feed: &Feed) -> Result<(), String> {
        self.feed = feed.clone();
        self.frames.iter_mut().try_for_each(|frame| refill(frame, &feed.packet))
    }

    /// Number of instructions that the interpreter executes for a frame of this feed, once the maps
    /// know the frame.
    pub(super) fn work(&mut self, feed: &Feed) -> Result<u64, String> {
        self.set_feed(feed)?;
        let Here { program, worker, feed, frames, burst } = self;
        let frame = &mut frames[..1];
        for _ in 0..RUNS_TO_SETTLE {
            refill(&mut frame[0], feed.next())?;
            program.run_burst(worker, frame, burst).map_err(|fault| fault.to_string())?;
            if let Some((_, fault)) = burst.faults().first() {
                return Err(fault.to_string());
            }
        }
        Ok(burst.executed())
    }

    /// Runs one burst, as an engine does.
    fn burst(&mut self) -> Result<u32, String> {
        let Here { program, worker, feed, frames, burst } = self;
        if feed.renewal != Renewal::Kept {
            frames.iter_mut().try_for_each(|frame| refill(frame, feed.next()))?;
        }
        program.run_burst(worker, frames, burst).map_err(|fault| fault.to_string())?;
        match burst.faults().first() {
            Some((_, fault)) => Err(fault.to_string()),
            None => Ok(burst.returned(frames.len() - 1)),
        }
    }
}

fn refill(frame: &mut Frame, packet: &[u8]) -> Result<(), String> {
    frame.refill(packet, 0).map_err(|error| error.to_string())
}

impl Side for Here {
    fn run(&mut self, repeat: u32) -> Result<Outcome, String> {
        let mut frame = Frame::new(&self.feed.packet).map_err(|error| error.to_string())?;
        let mut retval = 0;
        for _ in 0..repeat {
            if self.feed.renewal != Renewal::Kept {
                refill(&mut frame, self.feed.next())?;
            }
            let run = self.program.run(&mut self.worker, &mut frame);
            retval = run.map_err(|fault| fault.to_string())?.returned;
        }
        let meta_bytes = frame.metadata_len();
        let (data, linear_end) = (frame.to_vec_with_metadata(), meta_bytes + frame.linear_len());
        Ok(Outcome { retval, data, meta_bytes, linear_end })
    }

    fn time(&mut self, runs: u64) -> Result<Timed, String> {
        let bursts = runs.div_ceil(BURST_FRAMES as u64).max(1);
        let start = thread_time();
        let mut retval = 0;
        for _ in 0..bursts {
            retval = self.burst()?;
        }
        let elapsed = thread_time().saturating_sub(start);
        Ok(Timed { runs: bursts * BURST_FRAMES as u64, elapsed, retval })
    }
}

/// The first frame of a flow makes work that the next ones do not.
const RUNS_TO_SETTLE: usize = 4;
/// Frames that are judged one after another, each in a buffer of its own.
pub(super) const BURST_FRAMES: usize = 64;
