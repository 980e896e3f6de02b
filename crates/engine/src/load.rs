//! Load of the workers: how long each had work, and which programs took the time.
//!
//! A worker that finds no work reads the clock anyway, to know when to sleep. The time between two
//! such readings counts as work if the worker found some in between, so that it reads no clock
//! while frames arrive. The watch samples which program each worker runs; the samples give each
//! program's share of the time.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_xdp::Standing;

use crate::numbers::PortId;
use crate::options::Mode;

/// A worker's load and counters since the start.
#[derive(Debug, Clone)]
pub struct WorkerLoad {
    /// The worker's number.
    pub worker: usize,
    /// The CPU that the worker is configured to stay on.
    pub cpu: Option<usize>,
    /// How the worker waits for work.
    pub mode: Mode,
    /// Time with work: frames, packets of sockets, timers, tasks of control code. Rounds that found
    /// nothing and sleep are not included.
    pub worked: Duration,
    /// Frames taken out of receive queues.
    pub received: u64,
    /// Frames taken over from other workers, from dequeue queues, or at their launch time.
    pub taken_over: u64,
    /// Programs seen running in the last [`LOOKS`] samples, with the share of samples, 0 to 1, of
    /// each; the largest first.
    pub programs: Vec<(Arc<Standing>, f64)>,
}

/// A worker's load, readable by other threads.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Load {
    epoch: Instant,
    /// While idle: nanoseconds worked so far. While working: [`AT_WORK`] and the present time minus
    /// the nanoseconds worked, as of the start of work.
    word: AtomicU64,
    /// The value reported last, so that reports never decrease.
    told: AtomicU64,
    /// The program running at each sample; a dangling reference if none was.
    looks: Mutex<VecDeque<Weak<Standing>>>,
    /// The queue whose frames are being processed: a number from [`source`], or 0 for other work.
    at: AtomicU64,
    sources: Mutex<Sources>,
}

impl Load {
    pub(crate) fn new() -> Load {
        Load {
            epoch: Instant::now(),
            word: AtomicU64::new(0),
            told: AtomicU64::new(0),
            looks: Mutex::default(),
            at: AtomicU64::new(0),
            sources: Mutex::default(),
        }
    }

    /// Time the worker had work so far.
    pub(crate) fn worked(&self) -> Duration {
        let now = self.ns(Instant::now());
        let word = self.word.load(Ordering::Acquire);
        let worked = if word & AT_WORK == 0 { word } else { now.saturating_sub(word & !AT_WORK) };
        Duration::from_nanos(self.told.fetch_max(worked, Ordering::Relaxed).max(worked))
    }

    /// Notes that the worker processes frames of this queue.
    #[inline]
    pub(crate) fn is_at(&self, port: PortId, queue: u32) {
        self.at.store(source(port, queue), Ordering::Relaxed);
    }

    /// Notes that the worker does other work.
    #[inline]
    pub(crate) fn is_elsewhere(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    /// The samples since the last call.
    pub(crate) fn take_sources(&self) -> Sources {
        std::mem::take(&mut *self.sources.lock())
    }

    /// Takes a sample: the queue being processed, and the running program, if any.
    pub(crate) fn look(&self, program: Option<&Arc<Standing>>) {
        if self.word.load(Ordering::Relaxed) & AT_WORK != 0 {
            self.sources.lock().note(self.at.load(Ordering::Relaxed));
        }
        let mut looks = self.looks.lock();
        if looks.len() >= LOOKS {
            looks.pop_front();
        }
        looks.push_back(program.map(Arc::downgrade).unwrap_or_default());
    }

    /// Programs seen in recent samples, with the share of samples, 0 to 1, of each; the largest
    /// first.
    pub(crate) fn programs(&self) -> Vec<(Arc<Standing>, f64)> {
        let looks = self.looks.lock();
        let one = 1.0 / looks.len().max(1) as f64;
        let mut found: Vec<(Arc<Standing>, f64)> = Vec::new();
        for standing in looks.iter().filter_map(Weak::upgrade) {
            match found.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &standing)) {
                Some((_, share)) => *share += one,
                None => found.push((standing, one)),
            }
        }
        found.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        found
    }

    fn ns(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

/// Samples of the queue a worker processed, taken while it had work.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    looks: u32,
    by_queue: HashMap<u64, u32>,
}

impl Sources {
    fn note(&mut self, source: u64) {
        self.looks += 1;
        *self.by_queue.entry(source).or_default() += 1;
    }

    /// Share of the work, 0 to 1, that was for frames of this queue; 0 if there are too few
    /// samples.
    pub(crate) fn share(&self, port: PortId, queue: u32) -> f64 {
        let count = self.by_queue.get(&source(port, queue)).copied().unwrap_or(0);
        if self.looks < SOURCE_LOOKS_MIN { 0.0 } else { f64::from(count) / f64::from(self.looks) }
    }
}

/// A non-zero number that identifies a queue among those of all ports.
fn source(port: PortId, queue: u32) -> u64 {
    (u64::from(port.0) << 32) | (u64::from(queue) + 1)
}

/// A worker's private time keeping.
pub(crate) struct Stint {
    /// The worker has found work since its last idle round.
    pub(crate) is_at_work: bool,
    /// End of the last idle round or sleep.
    last: Instant,
    /// Duration of an idle round; one ends each stint of work.
    empty: Duration,
    /// Start of this stint; `worked` is the time worked before it.
    began: Instant,
    worked: Duration,
}

impl Stint {
    pub(crate) fn new() -> Stint {
        let now = Instant::now();
        Stint {
            is_at_work: false,
            last: now,
            empty: Duration::ZERO,
            began: now,
            worked: Duration::ZERO,
        }
    }

    /// Starts a stint: the worker found work after an idle round.
    #[cold]
    pub(crate) fn begin(&mut self, load: &Load) {
        self.is_at_work = true;
        self.began = self.last + self.empty;
        let since = load.ns(self.began).saturating_sub(self.worked.as_nanos() as u64);
        load.word.store(AT_WORK | since, Ordering::Release);
    }

    /// Ends a stint, if any: the last round was idle.
    #[inline]
    pub(crate) fn pause(&mut self, load: &Load, now: Instant) {
        if self.is_at_work {
            self.is_at_work = false;
            self.worked += now.saturating_duration_since(self.began);
            load.word.store(self.worked.as_nanos() as u64, Ordering::Release);
        } else {
            self.empty = now.saturating_duration_since(self.last).min(EMPTY_MAX);
        }
        self.last = now;
    }

    /// Notes that the worker slept until `now`.
    pub(crate) fn wake(&mut self, now: Instant) {
        self.last = now;
    }
}

const AT_WORK: u64 = 1 << 63;
/// Fewest samples from which shares are derived.
const SOURCE_LOOKS_MIN: u32 = 20;
/// Longest plausible idle round; if one took longer, the worker was descheduled.
const EMPTY_MAX: Duration = Duration::from_micros(50);
/// Number of samples kept per worker: those of the last ten seconds.
pub const LOOKS: usize = 500;
const _: () = assert!(SOURCE_LOOKS_MIN as usize <= LOOKS);

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of a worker whose clock is moved by hand.
    struct Lab {
        load: Load,
        stint: Stint,
        now: Instant,
    }

    impl Lab {
        fn new() -> Lab {
            let (load, stint) = (Load::new(), Stint::new());
            // Simulated time starts at the real time, so that all work lies in the past of
            // `worked`.
            let now = stint.last;
            Lab { load, stint, now }
        }

        fn round(&mut self, took: Duration, finds: bool) {
            if finds && !self.stint.is_at_work {
                self.stint.begin(&self.load);
            }
            self.now += took;
            if !finds {
                self.stint.pause(&self.load, self.now);
            }
        }

        fn worked(&self) -> Duration {
            Duration::from_nanos(self.load.word.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn rounds_that_find_something_are_work_and_no_others() {
        let mut lab = Lab::new();
        let (short, long) = (Duration::from_micros(2), Duration::from_micros(70));
        let mut expected = Duration::ZERO;
        let mut random = fastrand::Rng::with_seed(7);
        lab.round(short, false);
        for _ in 0..1000 {
            for _ in 0..random.usize(1..5) {
                lab.round(short, false);
            }
            for _ in 0..random.usize(0..4) {
                lab.round(long, true);
                expected += long;
            }
            lab.round(short, false);
        }
        assert_eq!(lab.worked(), expected);
    }

    #[test]
    fn a_stint_that_goes_on_counts_and_nothing_is_taken_back() {
        let mut lab = Lab::new();
        lab.round(Duration::ZERO, false);
        lab.round(Duration::ZERO, true);
        let first = lab.load.worked();
        while lab.load.worked() < first + Duration::from_millis(2) {
            std::thread::yield_now();
        }
        // Simulates a pause earlier than the work already reported.
        lab.stint.pause(&lab.load, lab.now);
        assert!(lab.load.worked() >= first + Duration::from_millis(2));
    }
}
