//! `fault`: another engine that fails, delays and stalls as it is told, for tests.

use std::collections::VecDeque;

use super::{Engine, Status, Task};

/// The faults of an engine. By default it has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Each task of this number fails after it was run: 3 is every third. 0 is none.
    pub fail_every: u64,
    /// Calls of `complete` that a task waits for: task n waits for n modulo this number plus one.
    /// 0 is none.
    pub delay_rounds_max: u64,
    /// From the task with this number on, nothing is given back until [`Fault::resume`]. 0 is
    /// never.
    pub stall_from: u64,
}

/// An engine with [`Faults`]: the same ones each time.
#[derive(Debug)]
pub struct Fault<E, T> {
    inner: E,
    faults: Faults,
    /// Tasks that are run, with the round in which they may go.
    waiting: VecDeque<(u64, u64, T)>,
    finished: Vec<T>,
    /// Calls of `complete`.
    rounds: u64,
    /// Tasks that were run.
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

    /// First in, first out: a task that waits holds up those behind it, so that order is kept.
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

    /// The room of the inner engine, less the tasks that wait here.
    fn room(&self) -> usize {
        self.inner.room().saturating_sub(self.waiting.len())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.waiting.len()
    }
}
