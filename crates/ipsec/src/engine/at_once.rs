//! Engines that run each task when it is submitted, on the calling core.

use std::marker::PhantomData;

use super::{Engine, Operation, Status, Task, Work};
use crate::schedule::Schedule;

/// An engine that runs each task when it is submitted.
#[derive(Debug)]
pub struct AtOnce<C, T> {
    done: Vec<T>,
    capacity: usize,
    cryptography: PhantomData<C>,
}

/// `aws-lc`: AEADs and HMACs by AWS-LC, AES-CBC by the crate `aes`.
pub type Direct<T> = AtOnce<AwsLc, T>;

/// `null`: reports each task as done without changing the packet. Packets are **neither encrypted
/// nor checked**; this engine is for measurements only.
pub type Null<T> = AtOnce<Nothing, T>;

/// The cryptography of [`Direct`].
#[derive(Debug)]
pub enum AwsLc {}

/// The cryptography of [`Null`].
#[derive(Debug)]
pub enum Nothing {}

/// The cryptography of an engine that runs tasks when they are submitted.
pub trait Cryptography {
    /// Name of the engine.
    const NAME: &'static str;

    /// Runs the work on the bytes of a packet, with the keys of `schedule`.
    fn run(schedule: &Schedule, work: &Work, bytes: &mut [u8]) -> Status;
}

impl Cryptography for AwsLc {
    const NAME: &'static str = "aws-lc";

    #[inline]
    fn run(schedule: &Schedule, work: &Work, bytes: &mut [u8]) -> Status {
        match work.operation {
            Operation::Seal => schedule.seal(work, bytes),
            Operation::Open => schedule.open(work, bytes),
        }
    }
}

impl Cryptography for Nothing {
    const NAME: &'static str = "null";

    #[inline]
    fn run(_schedule: &Schedule, _work: &Work, _bytes: &mut [u8]) -> Status {
        Status::Done
    }
}

impl<C, T> AtOnce<C, T> {
    /// An engine that holds at most `capacity` finished tasks.
    pub fn new(capacity: usize) -> AtOnce<C, T> {
        AtOnce { done: Vec::with_capacity(capacity), capacity, cryptography: PhantomData }
    }
}

impl<C: Cryptography, T: Task> Engine<T> for AtOnce<C, T> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn submit(&mut self, tasks: &mut Vec<T>) {
        let taken = tasks.len().min(self.room());
        for task in &mut tasks[..taken] {
            let (schedule, work, bytes) = task.parts();
            let status = C::run(schedule, work, bytes);
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

/// Moves the first `count` elements of `from` to the end of `to`, by a swap of the vectors if that
/// has the same effect.
pub fn move_front<T>(from: &mut Vec<T>, count: usize, to: &mut Vec<T>) {
    if to.is_empty() && count == from.len() && to.capacity() >= count {
        std::mem::swap(from, to);
    } else {
        to.extend(from.drain(..count));
    }
}
