//! `fault`: wraps an engine and injects failures, delays and stalls, for tests.

use std::collections::VecDeque;

use super::{Engine, Status, Task};

/// The faults to inject; by default none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Every n-th task fails after it was run; 0: none.
    pub fail_every: u64,
    /// Highest number of calls of `complete` by which a task is delayed: task n is delayed by
    /// `n % (delay_rounds_max + 1)` calls. 0: no delays.
    pub delay_rounds_max: u64,
    /// Number of the first task that is held back, with all later ones, until [`Fault::resume`].
    /// The first task of an engine is number 1; 0: no stall.
    pub stall_from: u64,
}

/// An engine with [`Faults`], which are deterministic.
#[derive(Debug)]
pub struct Fault<E, T> {
    inner: E,
    faults: Faults,
    /// Tasks that were run: number, first round in which the task may be returned, task.
    waiting: VecDeque<(u64, u64, T)>,
    finished: Vec<T>,
    /// Number of calls of `complete`.
    rounds: u64,
    /// Number of tasks that were run.
    tasks: u64,
}

impl<E, T> Fault<E, T> {
    /// The engine `inner`, with faults.
    pub fn new(inner: E, faults: Faults) -> Fault<E, T> {
        let (waiting, finished) = (VecDeque::new(), Vec::new());
        Fault { inner, faults, waiting, finished, rounds: 0, tasks: 0 }
    }

    /// Ends a stall.
    pub fn resume(&mut self) {
        self.faults.stall_from = 0;
    }
}

impl<E: Engine<T>, T: Task> Fault<E, T> {
    /// Takes the finished tasks of the inner engine, and applies the faults to them.
    fn collect(&mut self) {
        self.inner.complete(&mut self.finished);
        for mut task in self.finished.drain(..) {
            self.tasks += 1;
            if self.faults.fail_every > 0 && self.tasks.is_multiple_of(self.faults.fail_every) {
                task.set_status(Status::Failed);
            }
            let delay = match self.faults.delay_rounds_max {
                0 => 0,
                max => self.tasks % (max + 1),
            };
            self.waiting.push_back((self.tasks, self.rounds + delay, task));
        }
    }
}

impl<E: Engine<T>, T: Task> Engine<T> for Fault<E, T> {
    fn name(&self) -> &'static str {
        "fault"
    }

    fn submit(&mut self, tasks: &mut Vec<T>) {
        let rest = tasks.split_off(tasks.len().min(self.room()));
        self.inner.submit(tasks);
        tasks.extend(rest);
    }

    /// First in, first out: a delayed task holds up the tasks after it, which keeps their order.
    fn complete(&mut self, out: &mut Vec<T>) {
        self.collect();
        let (rounds, stall_from) = (self.rounds, self.faults.stall_from);
        let may_go =
            |number: u64, round: u64| round <= rounds && (stall_from == 0 || number < stall_from);
        while self.waiting.front().is_some_and(|&(number, round, _)| may_go(number, round)) {
            out.extend(self.waiting.pop_front().map(|(_, _, task)| task));
        }
        self.rounds += 1;
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    /// The room of the inner engine, less the number of tasks that wait here.
    fn room(&self) -> usize {
        self.inner.room().saturating_sub(self.waiting.len())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.waiting.len()
    }
}
