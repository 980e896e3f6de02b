//! `aws-lc`: runs each task at once, on the calling core.

use super::{Engine, Operation, Task};

/// Runs each task as it is submitted: AEADs and HMACs by AWS-LC, AES-CBC by the crate `aes`.
#[derive(Debug)]
pub struct Direct<T> {
    done: Vec<T>,
    capacity: usize,
}

impl<T> Direct<T> {
    /// An engine that holds at most `capacity` finished tasks.
    pub fn new(capacity: usize) -> Direct<T> {
        Direct { done: Vec::with_capacity(capacity), capacity }
    }
}

impl<T: Task> Engine<T> for Direct<T> {
    fn name(&self) -> &'static str {
        "aws-lc"
    }

    fn submit(&mut self, tasks: &mut Vec<T>) {
        let taken = tasks.len().min(self.room());
        for task in &mut tasks[..taken] {
            let (schedule, work, bytes) = task.parts();
            let status = match work.operation {
                Operation::Seal => schedule.seal(work, bytes),
                Operation::Open => schedule.open(work, bytes),
            };
            task.set_status(status);
        }
        move_front(tasks, taken, &mut self.done);
    }

    fn complete(&mut self, out: &mut Vec<T>) {
        let taken = self.done.len();
        move_front(&mut self.done, taken, out);
    }

    fn room(&self) -> usize {
        self.capacity - self.done.len()
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}

/// Moves the first `count` elements to the end of `to`: by a swap if that is all there is to do.
pub(super) fn move_front<T>(from: &mut Vec<T>, count: usize, to: &mut Vec<T>) {
    if to.is_empty() && count == from.len() && to.capacity() >= count {
        std::mem::swap(from, to);
    } else {
        to.extend(from.drain(..count));
    }
}
