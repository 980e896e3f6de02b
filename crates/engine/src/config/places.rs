//! The workers that poll the queues of a port whose options pin none, chosen when each queue is
//! opened.

use crate::place::{Seat, seat};

/// The workers that serve a port.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    /// The worker of each queue that was ever open; a stopped queue keeps its worker.
    queues: Vec<Option<usize>>,
    /// The worker of the port's work that belongs to no open queue.
    pub(super) home: Option<usize>,
}

impl Places {
    /// The worker of a queue, if it has one.
    pub(super) fn worker_of(&self, queue: u32) -> Option<usize> {
        self.queues.get(queue as usize).copied().flatten()
    }

    /// Assigns a queue to a worker.
    pub(super) fn set(&mut self, queue: u32, worker: usize) {
        let count = self.queues.len().max(queue as usize + 1);
        self.queues.resize(count, None);
        self.queues[queue as usize] = Some(worker);
    }

    /// Assigns a worker to each open queue without one, and a home to the port.
    pub(super) fn fill(&mut self, open: &[u32], seats: &mut [Seat]) {
        seats.iter_mut().for_each(|seat| seat.own = 0);
        for worker in open.iter().filter_map(|&queue| self.worker_of(queue)) {
            seats[worker].own += 1;
        }
        for &queue in open {
            if self.worker_of(queue).is_none() {
                let worker = seat(seats);
                self.set(queue, worker);
                seats[worker].own += 1;
                seats[worker].queues += 1;
            }
        }
        let first = self.worker_of(0);
        self.home.get_or_insert_with(|| first.unwrap_or_else(|| seat(seats)));
    }
}
