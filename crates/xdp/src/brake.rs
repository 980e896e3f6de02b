//! The stop word of a worker: its current run, and whether the run was asked to end.
//!
//! The worker writes its run once per burst; any thread may ask for the end of that run. The
//! request is noticed at certain points: helpers that call back into the program check before each
//! call, the interpreter checks periodically, and compiled code checks when the worker's thread is
//! interrupted ([`towpath_jit::interrupt`]). A request for another run than the current one has no
//! effect.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::standing::Standing;

/// A worker's current run, and the run that it must end.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Brake {
    /// Number of the run: odd while it lasts, even after it.
    run: AtomicU64,
    /// Number of the program's standing.
    program: AtomicU64,
    /// Number of the run that is asked to end.
    asked: AtomicU64,
}

/// The run in progress when it was read.
#[derive(Debug, Clone)]
pub struct Running {
    /// The run's number.
    pub run: u64,
    /// The program's standing; `None` if the program is gone meanwhile.
    pub standing: Option<Arc<Standing>>,
}

impl Default for Brake {
    fn default() -> Brake {
        Brake { run: AtomicU64::new(0), program: AtomicU64::new(0), asked: AtomicU64::new(NONE) }
    }
}

impl Brake {
    /// Notes that the worker starts running a program.
    #[inline]
    pub(crate) fn begin(&self, standing: &Standing) {
        self.program.store(standing.number(), Relaxed);
        self.run.store(self.run.load(Relaxed).wrapping_add(1), Release);
    }

    /// Notes the end of the run.
    #[inline]
    pub(crate) fn end(&self) {
        self.run.store(self.run.load(Relaxed).wrapping_add(1), Release);
    }

    /// Whether the current run is asked to end; called by the worker.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Relaxed) == self.run.load(Relaxed)
    }

    /// For compiled code: the run's number, and the word to compare it with.
    pub(crate) fn word(&self) -> (u64, *const AtomicU64) {
        (self.run.load(Relaxed), &raw const self.asked)
    }

    /// Number of the current run, if there is one.
    pub fn run(&self) -> Option<u64> {
        let run = self.run.load(Acquire);
        (run % 2 == 1).then_some(run)
    }

    /// The current run.
    pub fn running(&self) -> Option<Running> {
        let run = self.run()?;
        let standing = Standing::of(self.program.load(Relaxed));
        // Otherwise the program may belong to another run.
        (self.run() == Some(run)).then_some(Running { run, standing })
    }

    /// Asks for the end of a run. Compiled code has to be interrupted, too.
    pub fn ask(&self, run: u64) {
        self.asked.store(run, Relaxed);
    }
}

/// No run has this number: it is even.
const NONE: u64 = u64::MAX - 1;
