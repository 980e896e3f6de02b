//! Moving queues between workers, by what these had to do lately.

use std::time::{Duration, Instant};

use crate::numbers::PortId;

/// A queue that went from one worker to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// Its port's name.
    pub port: String,
    /// Its number.
    pub queue: u32,
    /// The worker that polled it, and the share of that one's time, 0 to 1, in which it had
    /// something to do.
    pub from: (usize, f64),
    /// The worker that polls it now, and the same of that one before.
    pub to: (usize, f64),
}

/// What is known from the last look.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    last: Option<Look>,
    /// Queues that moved, and when.
    moved: Vec<((PortId, u32), Instant)>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    /// For how long each worker had worked.
    worked: Vec<Duration>,
    /// What share of the time before that was.
    busy: Vec<f64>,
}

impl Balance {
    /// How busy each worker was when it was looked at last; nothing for none.
    pub(crate) fn busy(&self) -> &[f64] {
        self.last.as_ref().map_or(&[], |last| &last.busy)
    }

    /// Looks again, if it is time; gives whether there is something to compare with.
    pub(crate) fn look(&mut self, at: Instant, worked: Vec<Duration>) -> bool {
        let last = self.last.take();
        let busy: Vec<f64> = match &last {
            Some(last) => {
                let time = at.saturating_duration_since(last.at).as_secs_f64().max(1e-9);
                let both = worked.iter().zip(&last.worked);
                let share = |(now, then): (&Duration, &Duration)| {
                    (now.saturating_sub(*then).as_secs_f64() / time).min(1.0)
                };
                both.map(share).collect()
            }
            None => vec![0.0; worked.len()],
        };
        self.last = Some(Look { at, worked, busy });
        self.moved.retain(|(_, when)| at.saturating_duration_since(*when) < REST);
        last.is_some()
    }

    /// Whether a queue moved a short time ago.
    pub(crate) fn rests(&self, port: PortId, queue: u32) -> bool {
        self.moved.iter().any(|(it, _)| *it == (port, queue))
    }

    /// A queue moves.
    pub(crate) fn note(&mut self, port: PortId, queue: u32, at: Instant) {
        self.moved.push(((port, queue), at));
    }

    /// Whether it is time to look again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let last = self.last.as_ref();
        last.is_none_or(|last| now.saturating_duration_since(last.at) >= BALANCE_PERIOD)
    }
}

/// Queues move no more often.
pub const BALANCE_PERIOD: Duration = Duration::from_secs(1);
/// A queue that moved stays for so long, whatever is measured.
const REST: Duration = Duration::from_secs(10);
const _: () =
    assert!(BALANCE_PERIOD.as_nanos() < REST.as_nanos(), "a move is seen before the next");
