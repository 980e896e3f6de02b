//! Which worker polls which queue: where nobody says that, it is decided when the queue is opened.

use std::sync::Arc;

use super::{Config, PortConfig};
use crate::error::Error;
use crate::place::{Seat, seat};
use crate::snapshot::PortId;
use crate::spread::Spread;

/// Which workers serve a port.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    /// The worker of each queue, once it was open; it stays its worker while it is not.
    queues: Vec<Option<usize>>,
    /// The worker of what belongs to no queue that is open.
    home: Option<usize>,
}

impl Config {
    /// Has a worker poll a queue, the first time that it is open, or another one. What was pinned
    /// ([`PortOptions::workers`](crate::PortOptions::workers)) does not move.
    ///
    /// # Errors
    ///
    /// There is no such port, queue or worker, or the port's queues are pinned.
    pub fn move_queue(&mut self, id: PortId, queue: u32, worker: usize) -> Result<(), Error> {
        let workers = self.workers;
        if worker >= workers {
            return Err(Error::NoWorker(worker, workers));
        }
        let port = self.port_mut(id)?;
        let refused = |why: &str| Error::Queue {
            port: port.options.name.clone(),
            queue,
            why: why.to_owned(),
        };
        if !port.options.workers.is_empty() {
            return Err(refused("the port's `workers` say which worker polls it"));
        }
        if port.opened.rx(queue).is_none() {
            return Err(refused("it is not open"));
        }
        *port.places.queue_mut(queue) = Some(worker);
        Ok(())
    }

    /// The worker that polls a queue.
    pub(super) fn worker_of(&self, port: &PortConfig, queue: u32) -> usize {
        let pinned = &port.options.workers;
        let pinned = pinned.get(queue as usize % pinned.len().max(1)).copied();
        let placed = || port.places.queues.get(queue as usize).copied().flatten();
        pinned.or_else(placed).unwrap_or_else(|| self.home_of(port))
    }

    /// The workers that run a port's programs, if it spreads its flows over several.
    pub(super) fn spread_of(&self, port: &PortConfig) -> Option<Arc<[usize]>> {
        let workers = match port.options.spread {
            Spread::Off => return None,
            Spread::Flow if port.options.workers.is_empty() => (0..self.workers).collect(),
            Spread::Flow => port.options.workers.clone(),
        };
        let is_one = workers.iter().all(|worker| *worker == workers[0]);
        (!is_one).then(|| workers.into())
    }

    /// The worker of what belongs to a port and to no queue of it. It stays the same when queues
    /// move.
    pub(super) fn home_of(&self, port: &PortConfig) -> usize {
        port.options.workers.first().copied().or(port.places.home).unwrap_or(0)
    }

    /// All queues that are polled: the port, the number, the worker, and whether it stays there: it
    /// is pinned, or to move it would leave the work where it is.
    pub(crate) fn polled(&self) -> impl Iterator<Item = (PortId, u32, usize, bool)> {
        let up = self.ports.iter().filter(|(_, port)| port.is_up());
        up.flat_map(move |(&id, port)| {
            let queues = port.opened.open_queues().into_iter();
            let is_pinned = !port.options.workers.is_empty() || self.spread_of(port).is_some();
            queues.map(move |queue| (id, queue, self.worker_of(port, queue), is_pinned))
        })
    }

    /// Gives queues that were opened a worker, when workers are as busy as that; nothing is known
    /// of those that are missing.
    pub(crate) fn place_queues(&mut self, busy: &[f64]) {
        let is_new = |port: &PortConfig| {
            let has_place = |queue| port.places.has(queue);
            port.options.workers.is_empty()
                && (port.places.home.is_none()
                    || !port.opened.open_queues().into_iter().all(has_place))
        };
        let new: Vec<PortId> =
            self.ports.iter().filter(|(_, port)| is_new(port)).map(|(&id, _)| id).collect();
        if new.is_empty() {
            return;
        }
        let mut seats: Vec<Seat> = (0..self.workers)
            .map(|worker| Seat {
                busy: busy.get(worker).copied().unwrap_or(0.0),
                ..Seat::default()
            })
            .collect();
        for port in self.ports.values() {
            let placed = port.opened.open_queues();
            let placed = placed
                .into_iter()
                .filter(|&queue| !port.options.workers.is_empty() || port.places.has(queue));
            placed.for_each(|queue| seats[self.worker_of(port, queue)].queues += 1);
        }
        for id in new {
            if let Some(port) = self.ports.get_mut(&id) {
                Arc::make_mut(port).place(&mut seats);
            }
        }
    }
}

impl PortConfig {
    fn place(&mut self, seats: &mut [Seat]) {
        seats.iter_mut().for_each(|seat| seat.own = 0);
        let open = self.opened.open_queues();
        for &worker in
            open.iter().filter_map(|&queue| self.places.queues.get(queue as usize)?.as_ref())
        {
            seats[worker].own += 1;
        }
        for queue in open {
            let place = self.places.queue_mut(queue);
            if place.is_none() {
                let worker = seat(seats);
                *place = Some(worker);
                seats[worker].own += 1;
                seats[worker].queues += 1;
            }
        }
        let first = self.places.queues.first().copied().flatten();
        self.places.home.get_or_insert_with(|| first.unwrap_or_else(|| seat(seats)));
    }
}

impl Places {
    fn has(&self, queue: u32) -> bool {
        self.queues.get(queue as usize).is_some_and(Option::is_some)
    }

    fn queue_mut(&mut self, queue: u32) -> &mut Option<usize> {
        let count = self.queues.len().max(queue as usize + 1);
        self.queues.resize(count, None);
        &mut self.queues[queue as usize]
    }
}
