//! `null`: does nothing, to measure what everything else costs.

use super::direct::move_front;
use super::{Engine, Status, Task};

/// Reports each task as done without touching the packet. Packets are **neither encrypted nor
/// checked**: it is for measurements only.
#[derive(Debug)]
pub struct Null<T> {
    done: Vec<T>,
    capacity: usize,
}

impl<T> Null<T> {
    /// An engine that holds at most `capacity` tasks.
    pub fn new(capacity: usize) -> Null<T> {
        Null { done: Vec::with_capacity(capacity), capacity }
    }
}

impl<T: Task> Engine<T> for Null<T> {
    fn name(&self) -> &'static str {
        "null"
    }

    fn submit(&mut self, tasks: &mut Vec<T>) {
        let taken = tasks.len().min(self.room());
        tasks[..taken].iter_mut().for_each(|task| task.set_status(Status::Done));
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
