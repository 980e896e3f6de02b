//! The watch: who sees a worker that does not come round, and stops the program that keeps it.
//!
//! A worker that is stuck in a program serves none of its ports, and adopts no configuration. So a
//! thread of its own looks at all of them, a few times in the time that is of interest. It tells of
//! those that are late ([`Engine::stuck`](crate::Engine::stuck)), and has a program's run end when
//! somebody waits for its worker, or when nobody could wait any longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use towpath_xdp::{Running, Standing, interrupt};

use crate::worker::WorkerShared;

/// A worker that has not come round for [`LATE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// Its number.
    pub worker: usize,
    /// The program that it runs; `None` when it is something else that keeps it.
    pub program: Option<String>,
    /// Since when.
    pub since: SystemTime,
}

/// A program's run that was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Whose run it was.
    pub program: String,
    /// The worker that it kept.
    pub worker: usize,
    /// How long that had not come round.
    pub after: Duration,
    /// The program runs no more: this was once too often ([`towpath_xdp::standing::STOPS_MAX`]).
    pub is_halted: bool,
    /// Somebody waited for the worker: it does not count against the program.
    pub on_demand: bool,
}

/// What the watch and others know.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Milliseconds after which a program is stopped though nobody waits.
    stuck_ms: AtomicU64,
    /// Who waits for workers.
    waiting: AtomicUsize,
    late: Mutex<Vec<Stuck>>,
    stopped: Mutex<Vec<Stopped>>,
    has_ended: Mutex<bool>,
    wakes: Condvar,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            stuck_ms: AtomicU64::new(STUCK.as_millis() as u64),
            waiting: AtomicUsize::new(0),
            late: Mutex::default(),
            stopped: Mutex::default(),
            has_ended: Mutex::default(),
            wakes: Condvar::new(),
        }
    }
}

impl Watch {
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.stuck_ms.store(patience.as_millis() as u64, Relaxed);
    }

    pub(crate) fn late(&self) -> Vec<Stuck> {
        self.late.lock().clone()
    }

    pub(crate) fn take_stopped(&self) -> Vec<Stopped> {
        std::mem::take(&mut *self.stopped.lock())
    }

    /// Does something that workers are waited for in.
    pub(crate) fn hurrying<T>(&self, work: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Relaxed);
        self.wakes.notify_all();
        let result = work();
        self.waiting.fetch_sub(1, Relaxed);
        result
    }

    /// Ends the watch.
    pub(crate) fn end(&self) {
        *self.has_ended.lock() = true;
        self.wakes.notify_all();
    }

    /// Watches until told not to.
    pub(crate) fn run(&self, workers: &[Arc<WorkerShared>]) {
        let now = Instant::now();
        let mut looked = now;
        let mut seen: Vec<WorkerWatch> = workers.iter().map(|_| WorkerWatch::new(now)).collect();
        loop {
            let now = Instant::now();
            let mut is_any_late = false;
            // Not more often when it is urgent: each look stands for the same time.
            if now - looked >= PERIOD - URGENT {
                looked = now;
                for worker in workers {
                    note_program(worker);
                    worker.flows.ask();
                }
            }
            for (seen, worker) in seen.iter_mut().zip(workers) {
                is_any_late |= self.look(seen, worker, now);
            }
            let is_urgent = is_any_late || self.waiting.load(Relaxed) > 0;
            let mut has_ended = self.has_ended.lock();
            if !*has_ended {
                self.wakes.wait_for(&mut has_ended, if is_urgent { URGENT } else { PERIOD });
            }
            if *has_ended {
                return;
            }
        }
    }

    /// Looks at one worker; gives whether it is late.
    fn look(&self, seen: &mut WorkerWatch, worker: &WorkerShared, now: Instant) -> bool {
        let beat = worker.counters.beat();
        if beat != seen.beat || beat.is_multiple_of(2) {
            self.comes_round(seen, worker.number);
            *seen = WorkerWatch { beat, ..WorkerWatch::new(now) };
            return false;
        }
        let run = worker.brake.run();
        if run != seen.run {
            (seen.run, seen.run_since) = (run, now);
        }
        let late = now - seen.since;
        let is_late = late >= LATE;
        if is_late && !seen.is_told {
            seen.is_told = true;
            let program = worker.brake.running().and_then(|it| it.standing);
            let program = program.map(|standing| standing.program().to_owned());
            let since = SystemTime::now() - late;
            self.late.lock().push(Stuck { worker: worker.number, program, since });
        }
        if run.is_some() {
            self.stop_if_due(seen, worker, now);
        }
        is_late
    }

    fn stop_if_due(&self, seen: &mut WorkerWatch, worker: &WorkerShared, now: Instant) {
        let (late, ran) = (now - seen.since, now - seen.run_since);
        let on_demand = self.waiting.load(Relaxed) > 0;
        let Some(Running { run, standing: Some(standing) }) = worker.brake.running() else {
            return;
        };
        let patience = Duration::from_millis(self.stuck_ms.load(Relaxed));
        // Nobody waits long a second time for a program that did not return once.
        let is_short = on_demand || standing.stops() > 0;
        let patience_now = if is_short { patience.min(LATE) } else { patience };
        let is_due = late >= patience_now;
        // What kept the worker before in this round need not do so for long again.
        let is_known = seen.stopped.contains(&Arc::as_ptr(&standing));
        if !is_due || Some(run) != seen.run || (!is_known && ran < RUN_MIN.min(patience_now)) {
            return;
        }
        // Noted first: a program that this halts does not get another frame.
        if seen.asked.replace(run) != Some(run) {
            seen.stopped.push(Arc::as_ptr(&standing));
            self.note(worker, &standing, late, on_demand && late < patience);
        }
        worker.brake.ask(run);
        if let Some(&thread) = worker.thread.get() {
            interrupt(thread);
        }
    }

    /// A run was asked to end.
    fn note(&self, worker: &WorkerShared, standing: &Standing, after: Duration, on_demand: bool) {
        if !on_demand {
            standing.note_stop();
        }
        let mut stopped = self.stopped.lock();
        // Whoever is interested has looked by then.
        if stopped.len() < STOPPED_MAX {
            stopped.push(Stopped {
                program: standing.program().to_owned(),
                worker: worker.number,
                after,
                is_halted: standing.halted().is_some(),
                on_demand,
            });
        }
    }

    fn comes_round(&self, seen: &WorkerWatch, worker: usize) {
        if seen.is_told {
            self.late.lock().retain(|stuck| stuck.worker != worker);
        }
    }
}

/// Notes which program a worker is in.
fn note_program(worker: &WorkerShared) {
    let running = worker.brake.running();
    worker.load.look(running.and_then(|it| it.standing).as_ref());
}

/// The state of a worker at the last look.
struct WorkerWatch {
    /// Its round, and since when.
    beat: u64,
    since: Instant,
    /// The run that it is in, and since when.
    run: Option<u64>,
    run_since: Instant,
    /// It is known to be late.
    is_told: bool,
    /// The run that was asked to end.
    asked: Option<u64>,
    /// Programs that were stopped in this round.
    stopped: Vec<*const Standing>,
}

impl WorkerWatch {
    fn new(now: Instant) -> WorkerWatch {
        WorkerWatch {
            beat: 0,
            since: now,
            run: None,
            run_since: now,
            is_told: false,
            asked: None,
            stopped: Vec::new(),
        }
    }
}

/// A worker that has not come round for so long is told of.
pub const LATE: Duration = Duration::from_millis(100);
/// After so long a program is stopped, unless another time is set.
const STUCK: Duration = Duration::from_secs(1);
/// No run that is shorter is what keeps a worker.
const RUN_MIN: Duration = Duration::from_millis(20);
/// How often the watch looks.
const PERIOD: Duration = Duration::from_millis(20);
/// The same when there is something to be seen.
const URGENT: Duration = Duration::from_millis(1);
/// Stops that are remembered until somebody asks.
const STOPPED_MAX: usize = 1024;
const _: () = assert!(URGENT.as_nanos() < PERIOD.as_nanos() && PERIOD.as_nanos() < LATE.as_nanos());
const _: () = assert!(RUN_MIN.as_nanos() < LATE.as_nanos() && LATE.as_nanos() < STUCK.as_nanos());
