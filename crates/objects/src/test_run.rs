//! Test runs from the side of their executor: the request, and its progress.

use std::time::{Duration, Instant};

use towpath_bpf::Errno;
use towpath_xdp::{CallError, Frame, Program, Worker};

/// A program that is to run on one frame a number of times, or on a context, apart from all
/// devices.
#[derive(Debug)]
pub struct TestRun {
    program: Program,
    input: Input,
    repeat: u32,
    left: u32,
    /// Runs that are made in one piece.
    piece: u32,
    returned: u32,
    took: Duration,
}

/// What a program runs on.
#[derive(Debug)]
enum Input {
    Frame(Frame),
    /// The context of a program that users call, and whether it was called.
    Context(Vec<u8>, Result<(), Errno>),
}

/// A program that is to run on frames that then go where it says (`BPF_F_TEST_XDP_LIVE_FRAMES`).
#[derive(Debug, Clone, Copy)]
pub struct LiveRun<'a> {
    /// The program.
    pub program: &'a Program,
    /// Template of each frame: packet, metadata, and apparent ingress.
    pub frame: &'a Frame,
    /// The device from which it appears to come; none is the loopback device.
    pub ingress: Option<u32>,
    /// Frames in all, at least one.
    pub repeat: u32,
    /// Number of frames that run before they are sent together, 1 to 256.
    pub batch: u32,
}

impl TestRun {
    pub(crate) fn new(program: &Program, frame: Frame, repeat: u32) -> TestRun {
        TestRun::of(program, Input::Frame(frame), repeat.max(1))
    }

    /// One call of a program that users call.
    pub(crate) fn call(program: &Program, context: Vec<u8>) -> TestRun {
        TestRun::of(program, Input::Context(context, Ok(())), 1)
    }

    fn of(program: &Program, input: Input, repeat: u32) -> TestRun {
        let program = program.clone();
        let took = Duration::ZERO;
        TestRun { program, input, repeat, left: repeat, piece: 1, returned: 0, took }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether some of the runs, or all, are done.
    pub(crate) fn is_begun(&self) -> bool {
        self.left < self.repeat
    }

    /// Makes the runs of about 50 microseconds; returns whether none is left.
    pub fn step(&mut self, worker: &mut Worker) -> bool {
        let count = self.piece.min(self.left);
        let start = Instant::now();
        for _ in 0..count {
            self.returned = match &mut self.input {
                // A fault is the program's: the kernel would have no such thing to tell.
                Input::Frame(frame) => {
                    self.program.run(worker, frame).map_or(0, |verdict| verdict.returned)
                }
                Input::Context(context, outcome) => {
                    let called = self.program.call(worker, context);
                    *outcome = called.as_ref().map(|_| ()).map_err(CallError::errno);
                    called.unwrap_or(0)
                }
            };
        }
        let took = start.elapsed();
        self.piece = match took < PIECE_TIME {
            true => self.piece.saturating_mul(2).min(PIECE_MAX),
            false => (self.piece / 2).max(1),
        };
        self.took += took;
        self.left -= count;
        self.left == 0 || self.took > TIME_MAX
    }

    /// The frame as the last run left it, the return value of that run, and the time that one took.
    ///
    /// # Errors
    ///
    /// `EINTR`: some runs were not made.
    pub(crate) fn outcome(self) -> Result<(Frame, u32, Duration), Errno> {
        match (self.left, self.input) {
            (0, Input::Frame(frame)) => Ok((frame, self.returned, self.took / self.repeat)),
            _ => Err(Errno::EINTR),
        }
    }

    /// What a called program returned, and the context as it left it.
    ///
    /// # Errors
    ///
    /// `EINTR`: it was not called. Others say why it can't be.
    pub(crate) fn outcome_of_call(self) -> Result<(u32, Vec<u8>), Errno> {
        match (self.left, self.input) {
            (0, Input::Context(context, outcome)) => outcome.map(|()| (self.returned, context)),
            _ => Err(Errno::EINTR),
        }
    }
}

impl LiveRun<'_> {
    /// Runs the program where frames cannot go anywhere; returns the time it took.
    pub(crate) fn alone(&self, worker: &mut Worker) -> Result<Duration, Errno> {
        let start = Instant::now();
        let bytes = self.frame.to_vec_with_metadata();
        let mut frame = Frame::default();
        frame.rx = self.frame.rx;
        for round in 0..self.repeat {
            let fits = frame.refill(&bytes, self.frame.metadata_len());
            fits.map_err(|_it_did_before| Errno::EINVAL)?;
            // Frames whose program fails are dropped, as all others are here.
            let _verdict = self.program.run(worker, &mut frame);
            if round % 1024 == 1023 && start.elapsed() > TIME_MAX {
                return Err(Errno::EINTR);
            }
        }
        Ok(start.elapsed())
    }
}

/// Longest time of a test run. The kernel stops one at a signal, which does not exist here.
pub const TIME_MAX: Duration = Duration::from_secs(2);
/// Time of one piece of a test run: traffic does not wait much longer.
const PIECE_TIME: Duration = Duration::from_micros(50);
const PIECE_MAX: u32 = 1 << 16;
