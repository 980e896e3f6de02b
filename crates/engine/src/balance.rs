//! State of load balancing, which moves queues between workers by their recent load.

use std::time::{Duration, Instant};

use crate::numbers::PortId;

/// A queue that moved from one worker to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// Its port's name.
    pub port: String,
    /// Its number.
    pub queue: u32,
    /// The worker that polled it before, and that worker's load before the move, 0 to 1.
    pub from: (usize, f64),
    /// The worker that polls it now, and that worker's load before the move, 0 to 1.
    pub to: (usize, f64),
}

/// The last measurement of the workers' load, and recent moves.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    last: Option<Look>,
    /// Queues that moved recently, and when.
    moved: Vec<((PortId, u32), Instant)>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    /// Time each worker had worked by then.
    worked: Vec<Duration>,
    /// Load of each worker, 0 to 1, between the measurement before and this one.
    busy: Vec<f64>,
}

impl Balance {
    /// Load of each worker, 0 to 1, at the last measurement; empty if there was none.
    pub(crate) fn busy(&self) -> &[f64] {
        self.last.as_ref().map_or(&[], |last| &last.busy)
    }

    /// Takes a measurement; returns whether there was an earlier one to compare it with.
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

    /// Whether a queue moved within the last [`REST`].
    pub(crate) fn rests(&self, port: PortId, queue: u32) -> bool {
        self.moved.iter().any(|(it, _)| *it == (port, queue))
    }

    /// Notes that a queue moves.
    pub(crate) fn note(&mut self, port: PortId, queue: u32, at: Instant) {
        self.moved.push(((port, queue), at));
    }

    /// Whether the next measurement is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let last = self.last.as_ref();
        last.is_none_or(|last| now.saturating_duration_since(last.at) >= BALANCE_PERIOD)
    }
}

/// Shortest time between two measurements, and so between two moves.
pub const BALANCE_PERIOD: Duration = Duration::from_secs(1);
/// Time for which a queue stays with its new worker, whatever the load.
const REST: Duration = Duration::from_secs(10);
const _: () =
    assert!(BALANCE_PERIOD.as_nanos() < REST.as_nanos(), "a move is seen before the next");
