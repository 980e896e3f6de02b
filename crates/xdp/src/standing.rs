//! How a program stands with those it runs among: how often it kept them waiting, and whether it
//! still runs.
//!
//! A program that is halted stays where it is attached, and aborts every frame: what it was to keep
//! out does not get in because it was slow.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;

/// A program's standing, shared by everybody who runs it.
#[derive(Debug)]
pub struct Standing {
    number: u64,
    program: String,
    /// How often it was stopped because it did not return.
    stops: AtomicU32,
    /// Bursts over its budget, less those in between that were within it.
    over: AtomicU32,
    /// Nanoseconds that a frame took lately, where that is of interest.
    pub(crate) frame_ns: AtomicU32,
    halt: OnceLock<Halt>,
}

/// Why a program runs no more, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Halt {
    /// Why.
    pub why: Why,
    /// Since when.
    pub since: SystemTime,
}

/// Why a program runs no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It did not return, [`STOPS_MAX`] times.
    Stuck,
    /// It took more than it may have, burst after burst ([`OVER_MAX`]).
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
    /// The good standing of a program of that name.
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

    /// The standing of that number, while the program exists.
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

    /// How often it was stopped because it did not return.
    pub fn stops(&self) -> u32 {
        self.stops.load(Relaxed)
    }

    /// Why it runs no more, if it doesn't.
    #[inline]
    pub fn halted(&self) -> Option<&Halt> {
        self.halt.get()
    }

    /// It had to be stopped: after [`STOPS_MAX`] times it runs no more.
    pub fn note_stop(&self) {
        if self.stops.fetch_add(1, Relaxed) + 1 >= STOPS_MAX {
            self.halt(Why::Stuck);
        }
    }

    /// A burst took more than it may have, or not.
    pub(crate) fn note_burst(&self, is_over: bool) {
        if !is_over {
            // Workers may miss each other's: it is no exact number.
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
/// By number.
static ALL: Mutex<BTreeMap<u64, Weak<Standing>>> = Mutex::new(BTreeMap::new());

/// A program that did not return so often runs no more.
pub const STOPS_MAX: u32 = 3;
/// So many bursts over its budget, those within it taken away, are the last of a program.
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
