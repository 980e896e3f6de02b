//! Assignment of workers: which polls a queue, sends the packets of sockets, and runs programs.

use std::sync::Arc;

use super::{Config, PortConfig};
use crate::error::Error;
use crate::numbers::PortId;
use crate::place::Seat;
use crate::spread::Spread;

impl Config {
    /// Assigns a queue to a worker. Pinned queues
    /// ([`PortOptions::workers`](crate::PortOptions::workers)) do not move.
    ///
    /// # Errors
    ///
    /// Fails if the port, queue or worker does not exist, the queue is not open, or the port's
    /// queues are pinned.
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
        port.places.set(queue, worker);
        Ok(())
    }

    /// The worker that polls a queue.
    pub(super) fn worker_of(&self, port: &PortConfig, queue: u32) -> usize {
        let pinned = &port.options.workers;
        let pinned = pinned.get(queue as usize % pinned.len().max(1)).copied();
        pinned.or_else(|| port.places.worker_of(queue)).unwrap_or_else(|| self.home_of(port))
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

    /// The worker of the port's work that belongs to none of its queues. It stays the same when
    /// queues move.
    pub(super) fn home_of(&self, port: &PortConfig) -> usize {
        port.options.workers.first().copied().or(port.places.home).unwrap_or(0)
    }

    /// All polled queues: port, queue number, worker, and whether the queue stays there because it
    /// is pinned or because its port spreads flows, so that a move would not move the work.
    pub(crate) fn polled(&self) -> impl Iterator<Item = (PortId, u32, usize, bool)> {
        let up = self.ports.iter().filter(|(_, port)| port.is_up());
        up.flat_map(move |(&id, port)| {
            let queues = port.opened.open_queues().into_iter();
            let is_pinned = !port.options.workers.is_empty() || self.spread_of(port).is_some();
            queues.map(move |queue| (id, queue, self.worker_of(port, queue), is_pinned))
        })
    }

    /// Assigns workers to newly opened queues, given each worker's load, 0 to 1; workers without a
    /// figure count as idle.
    pub(crate) fn place_queues(&mut self, busy: &[f64]) {
        let is_new = |port: &PortConfig| {
            let has_place = |queue| port.places.worker_of(queue).is_some();
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
            let has_place = |queue: &u32| {
                !port.options.workers.is_empty() || port.places.worker_of(*queue).is_some()
            };
            let placed = port.opened.open_queues().into_iter().filter(has_place);
            placed.for_each(|queue| seats[self.worker_of(port, queue)].queues += 1);
        }
        for id in new {
            if let Some(port) = self.ports.get_mut(&id) {
                let open = port.opened.open_queues();
                Arc::make_mut(port).places.fill(&open, &mut seats);
            }
        }
    }
}
