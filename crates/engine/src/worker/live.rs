//! Live test runs: a program runs on generated frames, which then go on as traffic
//! (`BPF_F_TEST_XDP_LIVE_FRAMES`).
//!
//! Kernel counterpart: `bpf_test_run_xdp_live` in `net/bpf/test_run.c`. Frames seem to arrive at a
//! port, are judged by the program alone, and go to the target of its verdict: `XDP_PASS` to the
//! port's upper, `XDP_TX` out of the port as after a redirect to it, `XDP_REDIRECT` as usual.
//! Unlike in the kernel, each frame starts as a fresh copy of the given one, whatever the program
//! changed in earlier frames.

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_maps::Domain;
use towpath_xdp::{Frame, Program};

use super::flush::flush;
use super::task::{ControlTask, TaskContext};
use crate::chain::Chain;
use crate::hook::HookSpec;
use crate::options::BURST;
use crate::snapshot::Port;

/// A live test run of a program.
#[derive(Debug)]
pub struct LiveRun {
    program: Program,
    chain: Arc<Chain>,
    frame: Frame,
    /// Ifindex of the port that frames seem to arrive at; `left` is the number of frames still to
    /// make.
    ingress: Option<u32>,
    left: u32,
    batch: u32,
    took: Duration,
    took_max: Duration,
    /// Start of the current period without free frames.
    starved: Option<Instant>,
    failure: Option<LiveError>,
    frames: Vec<Frame>,
}

/// The reason why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// No frame could be allocated for 100 ms: all are in flight, and none comes back.
    #[error("there are no frames left")]
    NoMemory,
    /// The port that frames seem to arrive at is gone.
    #[error("the port is gone")]
    NoPort,
    /// The run exceeded its time limit.
    #[error("it takes too long")]
    TooLong,
    /// The engine stopped.
    #[error("the engine stopped")]
    Stopped,
}

impl LiveRun {
    /// A run of `repeat` copies of `frame`, in batches of `batch`. `ingress` is the ifindex of the
    /// port that they seem to arrive at, as set in `frame`; without one, passed frames and frames
    /// sent back are dropped. The run ends early when it has taken longer than `took_max`.
    pub fn new(
        program: &Program,
        frame: Frame,
        ingress: Option<u32>,
        (repeat, batch): (u32, u32),
        took_max: Duration,
    ) -> LiveRun {
        LiveRun {
            program: program.clone(),
            chain: Arc::new(Chain::of_one(program, program.maps().domain().workers())),
            frame,
            ingress,
            left: repeat,
            batch: batch.max(1),
            took: Duration::ZERO,
            took_max,
            starved: None,
            failure: None,
            frames: Vec::with_capacity(BURST),
        }
    }

    /// Time the run took, once it is over.
    ///
    /// # Errors
    ///
    /// Fails if the run ended early.
    pub fn outcome(&self) -> Result<Duration, LiveError> {
        match self.failure {
            Some(failure) => Err(failure),
            None if self.left > 0 => Err(LiveError::Stopped),
            None => Ok(self.took),
        }
    }

    /// Runs one batch and sends the resulting frames.
    fn run_batch(&mut self, context: &mut TaskContext<'_>) -> Result<(), LiveError> {
        let TaskContext { snapshot, runner, nodes } = context;
        let port = self.ingress.map(|ifindex| snapshot.port_of_ifindex(ifindex));
        let port = port.map(|port| port.ok_or(LiveError::NoPort)).transpose()?;
        let is_delegate = |port: &Port| port.member.is_some_and(|member| member.is_delegate);
        let from = port.map(|port| (&port.rx, is_delegate(port)));
        let hook = HookSpec::live(from, Arc::clone(&self.chain));
        let mut rest = self.batch.min(self.left) as usize;
        while rest > 0 {
            let copies = (0..rest.min(BURST)).map_while(|_| nodes.graph.pool.copy(&self.frame));
            self.frames.extend(copies);
            let count = self.frames.len();
            if count == 0 {
                break;
            }
            nodes.graph.counters().created.add(count as u64);
            runner.run(snapshot, &hook, &mut self.frames, None, nodes);
            self.left -= count as u32;
            rest -= count;
        }
        flush(snapshot, nodes, runner, false);
        self.wait_for_frames(rest > 0)
    }

    /// Fails if no frame could be allocated for longer than [`PATIENCE`]. Frames come back when
    /// ports have sent them.
    fn wait_for_frames(&mut self, is_starved: bool) -> Result<(), LiveError> {
        if !is_starved {
            self.starved = None;
            return Ok(());
        }
        let since = *self.starved.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE { Err(LiveError::NoMemory) } else { Ok(()) }
    }
}

impl ControlTask for LiveRun {
    fn domain(&self) -> &Arc<Domain> {
        self.program.maps().domain()
    }

    fn step(&mut self, context: &mut TaskContext<'_>) -> bool {
        let start = Instant::now();
        self.failure = self.run_batch(context).err();
        self.took += start.elapsed();
        if self.left > 0 && self.took > self.took_max {
            self.failure.get_or_insert(LiveError::TooLong);
        }
        self.left == 0 || self.failure.is_some()
    }
}

/// Longest wait for frames to come back.
const PATIENCE: Duration = Duration::from_millis(100);
