//! What workers do with their time: for how much of it they have something to do, and for which
//! programs.
//!
//! A worker that finds nothing reads the clock anyway, to know when to sleep. What lies between two
//! such readings is work if something was found between them, so that no clock is read while frames
//! come. Which program takes the time is seen by the watch, which looks at what each worker runs.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_xdp::Standing;

use crate::numbers::PortId;
use crate::options::Mode;

/// What a worker did so far.
#[derive(Debug, Clone)]
pub struct WorkerLoad {
    /// Its number.
    pub worker: usize,
    /// The CPU that it was to stay on.
    pub cpu: Option<usize>,
    /// How it waits.
    pub mode: Mode,
    /// For how long it had something to do: frames, packets of sockets, timers, what control code
    /// wanted. A round that found nothing is not part of it, and neither is sleep.
    pub worked: Duration,
    /// Frames that it took out of receive queues.
    pub received: u64,
    /// Frames that it took over from other workers, out of queues, or at their launch time.
    pub taken_over: u64,
    /// Programs that it was in, and the share of its time, 0 to 1, that each took in the last
    /// [`LOOKS`] looks, the largest first.
    pub programs: Vec<(Arc<Standing>, f64)>,
}

/// A worker's time, as others see it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Load {
    epoch: Instant,
    /// Without work: nanoseconds that it worked. At work: [`AT_WORK`], and when it would have begun
    /// if it had worked without a break since then.
    word: AtomicU64,
    /// What was told last, which never gets less.
    told: AtomicU64,
    /// What it ran at each look; nothing where it ran no program.
    looks: Mutex<VecDeque<Weak<Standing>>>,
    /// Whose frames it is at: [`source`]'s number, or 0 for what came from no queue.
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

    /// For how long it had something to do by now.
    pub(crate) fn worked(&self) -> Duration {
        let now = self.ns(Instant::now());
        let word = self.word.load(Ordering::Acquire);
        let worked = if word & AT_WORK == 0 { word } else { now.saturating_sub(word & !AT_WORK) };
        Duration::from_nanos(self.told.fetch_max(worked, Ordering::Relaxed).max(worked))
    }

    /// It is at frames of this queue.
    #[inline]
    pub(crate) fn is_at(&self, port: PortId, queue: u32) {
        self.at.store(source(port, queue), Ordering::Relaxed);
    }

    /// It is at something else.
    #[inline]
    pub(crate) fn is_elsewhere(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    /// What it was at since this was asked last.
    pub(crate) fn take_sources(&self) -> Sources {
        std::mem::take(&mut *self.sources.lock())
    }

    /// Notes whose frames it is at, and which program it is in, if it is in one.
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

    /// The programs it was in lately, with their shares of its time.
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

/// What a worker was at, at each of some looks at which it had something to do.
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

    /// Share of its work, 0 to 1, that was for frames of this queue; 0 where it was looked at too
    /// seldom to say.
    pub(crate) fn share(&self, port: PortId, queue: u32) -> f64 {
        let count = self.by_queue.get(&source(port, queue)).copied().unwrap_or(0);
        if self.looks < SOURCE_LOOKS_MIN { 0.0 } else { f64::from(count) / f64::from(self.looks) }
    }
}

/// A queue's number among all, which is not 0.
fn source(port: PortId, queue: u32) -> u64 {
    (u64::from(port.0) << 32) | (u64::from(queue) + 1)
}

/// A worker's own look at its time.
pub(crate) struct Stint {
    /// It has found something since it had nothing to do.
    pub(crate) is_at_work: bool,
    /// When it had nothing to do last.
    last: Instant,
    /// How long a round takes that finds nothing: one ends each stint.
    empty: Duration,
    /// When this stint began, and for how long it worked before.
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

    /// There is something to do, the first since there was nothing.
    #[cold]
    pub(crate) fn begin(&mut self, load: &Load) {
        self.is_at_work = true;
        self.began = self.last + self.empty;
        let since = load.ns(self.began).saturating_sub(self.worked.as_nanos() as u64);
        load.word.store(AT_WORK | since, Ordering::Release);
    }

    /// There was nothing to do in the last round.
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

    /// It slept until now.
    pub(crate) fn wake(&mut self, now: Instant) {
        self.last = now;
    }
}

const AT_WORK: u64 = 1 << 63;
/// From fewer looks at a worker nobody can tell what takes its time.
const SOURCE_LOOKS_MIN: u32 = 20;
/// What takes longer was no round that found nothing: the system let the worker wait.
const EMPTY_MAX: Duration = Duration::from_micros(50);
/// Looks at what a worker runs that are remembered: those of ten seconds.
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
            // What it has done lies in the past of who asks for it.
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
        // As if it had paused sooner than somebody saw it work.
        lab.stint.pause(&lab.load, lab.now);
        assert!(lab.load.worked() >= first + Duration::from_millis(2));
    }
}
