//! Which worker polls which queue of a port, where nobody says that: it is decided when the queue
//! is opened.

use crate::place::{Seat, seat};

/// Which workers serve a port.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    /// The worker of each queue, once it was open; it stays its worker while it is not.
    queues: Vec<Option<usize>>,
    /// The worker of what belongs to no queue that is open.
    pub(super) home: Option<usize>,
}

impl Places {
    /// The worker of a queue, if it has one.
    pub(super) fn worker_of(&self, queue: u32) -> Option<usize> {
        self.queues.get(queue as usize).copied().flatten()
    }

    /// Gives a queue to a worker.
    pub(super) fn set(&mut self, queue: u32, worker: usize) {
        let count = self.queues.len().max(queue as usize + 1);
        self.queues.resize(count, None);
        self.queues[queue as usize] = Some(worker);
    }

    /// Gives those of the open queues that have none a worker, and the port a home.
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
