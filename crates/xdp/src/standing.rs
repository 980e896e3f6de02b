//! The standing of a program: how often it kept others waiting, and whether it still runs.
//!
//! A halted program stays attached and aborts every frame: traffic that it was to keep out does not
//! get in because the program was slow.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;

/// A program's standing, shared by all workers that run it.
#[derive(Debug)]
pub struct Standing {
    number: u64,
    program: String,
    /// Number of times that it was stopped because it did not return.
    stops: AtomicU32,
    /// Number of bursts over its budget, less the number of those within it, at least 0.
    over: AtomicU32,
    /// Nanoseconds that a frame took lately, where it is measured.
    pub(crate) frame_ns: AtomicU32,
    halt: OnceLock<Halt>,
}

/// The reason for which a program no longer runs, and the time from which on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Halt {
    /// The reason.
    pub why: Why,
    /// The time at which it was halted.
    pub since: SystemTime,
}

/// The reason for which a program no longer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It did not return, [`STOPS_MAX`] times.
    Stuck,
    /// It exceeded its budget in burst after burst ([`OVER_MAX`]).
    Budget,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Stuck => write!(f, "it did not return, and was stopped {STOPS_MAX} times"),
            Why::Budget => write!(f, "it took more than its budget in {OVER_MAX} bursts"),
        }
    }
}

impl Standing {
    /// The standing of a new program with this name.
    pub(crate) fn new(program: &str) -> Arc<Standing> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Relaxed);
        let standing = Arc::new(Standing {
            number,
            program: program.to_owned(),
            stops: AtomicU32::new(0),
            over: AtomicU32::new(0),
            frame_ns: AtomicU32::new(0),
            halt: OnceLock::new(),
        });
        let mut all = ALL.lock();
        all.retain(|_, known| known.strong_count() > 0);
        all.insert(number, Arc::downgrade(&standing));
        standing
    }

    /// The standing with this number, while the program exists.
    pub(crate) fn of(number: u64) -> Option<Arc<Standing>> {
        ALL.lock().get(&number)?.upgrade()
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The program's name.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Number of times that it was stopped because it did not return.
    pub fn stops(&self) -> u32 {
        self.stops.load(Relaxed)
    }

    /// The halt, if the program no longer runs.
    #[inline]
    pub fn halted(&self) -> Option<&Halt> {
        self.halt.get()
    }

    /// Notes that it had to be stopped: after [`STOPS_MAX`] stops it is halted.
    pub fn note_stop(&self) {
        if self.stops.fetch_add(1, Relaxed) + 1 >= STOPS_MAX {
            self.halt(Why::Stuck);
        }
    }

    /// Notes whether a burst was over the budget.
    pub(crate) fn note_burst(&self, is_over: bool) {
        if !is_over {
            // Workers may miss each other's updates: the number is not exact.
            let over = self.over.load(Relaxed);
            if over > 0 {
                self.over.store(over - 1, Relaxed);
            }
        } else if self.over.fetch_add(1, Relaxed) + 1 >= OVER_MAX {
            self.halt(Why::Budget);
        }
    }

    fn halt(&self, why: Why) {
        self.halt.get_or_init(|| {
            HALTS.fetch_add(1, Relaxed);
            Halt { why, since: SystemTime::now() }
        });
    }
}

/// Number of programs of this process halted so far: programs need a check only when it has
/// changed.
pub fn halts() -> u64 {
    HALTS.load(Relaxed)
}

static HALTS: AtomicU64 = AtomicU64::new(0);
/// The standings of all programs, by number.
static ALL: Mutex<BTreeMap<u64, Weak<Standing>>> = Mutex::new(BTreeMap::new());

/// A program that had to be stopped this often is halted.
pub const STOPS_MAX: u32 = 3;
/// A program is halted when it has this many bursts over its budget, less those within it.
pub const OVER_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stopped_again_and_again_runs_no_more() {
        let standing = Standing::new("p");
        for _ in 1..STOPS_MAX {
            standing.note_stop();
            assert_eq!(standing.halted(), None);
        }
        standing.note_stop();
        assert_eq!(standing.halted().map(|halt| halt.why), Some(Why::Stuck));
        assert_eq!(Standing::of(standing.number()).map(|it| it.stops()), Some(STOPS_MAX));
    }

    #[test]
    fn a_slow_burst_now_and_then_is_forgiven() {
        let standing = Standing::new("p");
        for _ in 0..10 * OVER_MAX {
            standing.note_burst(true);
            standing.note_burst(false);
        }
        assert_eq!(standing.halted(), None);
        (0..OVER_MAX).for_each(|_| standing.note_burst(true));
        assert_eq!(standing.halted().map(|halt| halt.why), Some(Why::Budget));
    }
}
