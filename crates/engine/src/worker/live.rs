//! Live frames: a program makes traffic of its own (`BPF_F_TEST_XDP_LIVE_FRAMES`).
//!
//! Kernel counterpart: `bpf_test_run_xdp_live` in `net/bpf/test_run.c`. Frames seem to have come
//! from a port, are judged by the program alone, and go where it says: `XDP_PASS` to the port's
//! upper, `XDP_TX` out of the port as after a redirect to it, `XDP_REDIRECT` as ever. Unlike the
//! kernel's, each frame begins as the one that was given, whatever was done to frames before.

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

/// A program that is to run on frames which then go on.
#[derive(Debug)]
pub struct LiveRun {
    program: Program,
    chain: Arc<Chain>,
    frame: Frame,
    /// The port that frames seem to come from, and how many are to come.
    ingress: Option<u32>,
    left: u32,
    batch: u32,
    took: Duration,
    took_max: Duration,
    /// Since when there are no frames to be had.
    starved: Option<Instant>,
    failure: Option<LiveError>,
    frames: Vec<Frame>,
}

/// Why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// All frames are under way, and none comes back.
    #[error("there are no frames left")]
    NoMemory,
    /// The port that frames seem to come from is gone.
    #[error("the port is gone")]
    NoPort,
    /// It took longer than it may.
    #[error("it takes too long")]
    TooLong,
    /// The engine stopped.
    #[error("the engine stopped")]
    Stopped,
}

impl LiveRun {
    /// A run of `repeat` frames like `frame`, which says where they seem to come from, in batches
    /// of `batch`. `ingress` is that port's ifindex; without one, what passes or is sent back has
    /// nowhere to go. It ends when it took longer than `took_max`.
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

    /// How long it took, once it is over.
    ///
    /// # Errors
    ///
    /// It was not complete.
    pub fn outcome(&self) -> Result<Duration, LiveError> {
        match self.failure {
            Some(failure) => Err(failure),
            None if self.left > 0 => Err(LiveError::Stopped),
            None => Ok(self.took),
        }
    }

    /// Runs one batch and sends what comes of it.
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

    /// Frames come back while traffic goes on, if somebody takes them.
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

/// Frames that do not come back for so long are not waited for.
const PATIENCE: Duration = Duration::from_millis(100);
