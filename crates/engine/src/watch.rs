//! The watch: a thread that detects workers stuck in a round, and stops the programs that hold
//! them.
//!
//! A worker that is stuck in a program serves none of its ports, and adopts no configuration. The
//! watch inspects all workers several times per [`LATE`] or patience, whichever is shorter. It
//! reports late workers ([`Engine::stuck`](crate::Engine::stuck)), and ends a program's run after
//! [`LATE`] if a caller waits for the worker, or after the patience that is set otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use towpath_xdp::{Running, Standing, interrupt};

use crate::worker::WorkerShared;

/// A worker that has not finished its round for [`LATE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The worker's number.
    pub worker: usize,
    /// The program that it runs; `None` if other work holds it.
    pub program: Option<String>,
    /// Start of the round.
    pub since: SystemTime,
}

/// A program's run that was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// The program's name.
    pub program: String,
    /// Number of the worker that it held.
    pub worker: usize,
    /// Time since the worker's round started.
    pub after: Duration,
    /// The program is halted for good: it was stopped too often
    /// ([`towpath_xdp::standing::STOPS_MAX`]).
    pub is_halted: bool,
    /// A caller waited for the worker, so that the stop does not count against the program.
    pub on_demand: bool,
}

/// State shared by the watch and the engine.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Milliseconds after which a program is stopped although no caller waits.
    stuck_ms: AtomicU64,
    /// Number of callers that wait for workers.
    waiting: AtomicUsize,
    late: Mutex<Vec<Stuck>>,
    stopped: Mutex<Vec<Stopped>>,
    has_ended: Mutex<bool>,
    wakes: Condvar,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            stuck_ms: AtomicU64::new(PATIENCE.as_millis() as u64),
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

    /// Runs `work`, which waits for workers, while the watch stops programs early.
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

    /// Runs the watch until [`Watch::end`].
    pub(crate) fn run(&self, workers: &[Arc<WorkerShared>]) {
        let now = Instant::now();
        let mut looked = now;
        let mut seen: Vec<WorkerWatch> = workers.iter().map(|_| WorkerWatch::new(now)).collect();
        loop {
            let now = Instant::now();
            let mut is_any_late = false;
            // Not more often in urgent mode, because each sample stands for the same time.
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

    /// Inspects one worker; returns whether it is late.
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
        // A program that was stopped before gets the short time only.
        let is_short = on_demand || standing.stops() > 0;
        let patience_now = if is_short { patience.min(LATE) } else { patience };
        let is_due = late >= patience_now;
        // A program already stopped in this round is stopped again without the minimum run time.
        let is_known = seen.stopped.contains(&Arc::as_ptr(&standing));
        if !is_due || Some(run) != seen.run || (!is_known && ran < RUN_MIN.min(patience_now)) {
            return;
        }
        // Noted first, so that a program halted by this gets no further frame.
        if seen.asked.replace(run) != Some(run) {
            seen.stopped.push(Arc::as_ptr(&standing));
            self.note(worker, &standing, late, on_demand && late < patience);
        }
        worker.brake.ask(run);
        if let Some(&thread) = worker.thread.get() {
            interrupt(thread);
        }
    }

    /// Notes that a run was asked to end.
    fn note(&self, worker: &WorkerShared, standing: &Standing, after: Duration, on_demand: bool) {
        if !on_demand {
            standing.note_stop();
        }
        let mut stopped = self.stopped.lock();
        // Further stops are not recorded until the list is read.
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

/// Samples which program a worker runs.
fn note_program(worker: &WorkerShared) {
    let running = worker.brake.running();
    worker.load.look(running.and_then(|it| it.standing).as_ref());
}

/// The watch's memory of a worker.
struct WorkerWatch {
    /// The worker's round, and when it was first seen.
    beat: u64,
    since: Instant,
    /// The program run in progress, and when it was first seen.
    run: Option<u64>,
    run_since: Instant,
    /// The worker is already reported as late.
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

/// Time after which a worker that has not finished its round is reported as late.
pub const LATE: Duration = Duration::from_millis(100);
/// Time after which a program that does not return is stopped, unless
/// [`Engine::set_patience`](crate::Engine::set_patience) sets another one.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Shortest run for which a program is considered to hold its worker.
const RUN_MIN: Duration = Duration::from_millis(20);
/// Interval of the watch.
const PERIOD: Duration = Duration::from_millis(20);
/// Interval of the watch while a worker is late or waited for.
const URGENT: Duration = Duration::from_millis(1);
/// Most stops kept until they are read.
const STOPPED_MAX: usize = 1024;
const _: () = assert!(URGENT.as_nanos() < PERIOD.as_nanos() && PERIOD.as_nanos() < LATE.as_nanos());
const _: () =
    assert!(RUN_MIN.as_nanos() < LATE.as_nanos() && LATE.as_nanos() < PATIENCE.as_nanos());
