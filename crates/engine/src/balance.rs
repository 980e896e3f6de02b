//! Moving queues between workers, by what these had to do lately.

use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::place::{Polled, choose};
use crate::snapshot::PortId;

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
    fn look(&mut self, at: Instant, worked: Vec<Duration>) -> bool {
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

    fn is_due(&self, now: Instant) -> bool {
        let last = self.last.as_ref();
        last.is_none_or(|last| now.saturating_duration_since(last.at) >= BALANCE_PERIOD)
    }
}

impl Engine {
    /// Moves a queue to a worker that has less to do, if one has too much: above 80 % of its time,
    /// another one below half of that. One at most in each [`BALANCE_PERIOD`], and never so that
    /// the other has more to do then; queues of ports with [`PortOptions::workers`] stay. No frame
    /// is lost, and those of a queue stay in their order. Control code calls it now and then.
    ///
    /// [`PortOptions::workers`]: crate::PortOptions::workers
    pub fn balance(&self) -> Option<Moved> {
        let now = Instant::now();
        let mut balance = self.balance.lock();
        if !balance.is_due(now) {
            return None;
        }
        let worked = self.loads().into_iter().map(|load| load.worked).collect();
        let is_known = balance.look(now, worked);
        let sources = self.take_sources();
        if !is_known {
            return None;
        }
        let busy = balance.busy().to_vec();
        let (chosen, port, from) = self.read(|config, _| {
            let queues = config.polled().map(|(port, queue, worker, is_pinned)| {
                let rests = balance.moved.iter().any(|(it, _)| *it == (port, queue));
                let share = sources[worker].share(port, queue) * busy[worker];
                Polled { port, queue, worker, share, stays: is_pinned || rests }
            });
            let queues: Vec<Polled> = queues.collect();
            let chosen = choose(&busy, &queues)?;
            let is_it = |it: &&Polled| (it.port, it.queue) == (chosen.port, chosen.queue);
            let from = queues.iter().find(is_it)?.worker;
            Some((chosen, config.name(chosen.port).ok()?.to_owned(), from))
        })?;
        balance.moved.push(((chosen.port, chosen.queue), now));
        // Whoever adds a port meanwhile looks at it.
        drop(balance);
        let moved = self.change_in_time(|it| it.move_queue(chosen.port, chosen.queue, chosen.to));
        moved.ok()?;
        let (from, to) = ((from, busy[from]), (chosen.to, busy[chosen.to]));
        Some(Moved { port, queue: chosen.queue, from, to })
    }
}

/// Queues move no more often.
pub const BALANCE_PERIOD: Duration = Duration::from_secs(1);
/// A queue that moved stays for so long, whatever is measured.
const REST: Duration = Duration::from_secs(10);
