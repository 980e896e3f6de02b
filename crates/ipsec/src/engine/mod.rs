//! Engines, which run the cryptography of packets.
//!
//! An engine knows neither packets nor SAs. A [`Task`] provides a key, a [`Work`] and bytes. All
//! work on headers is done before [`Engine::submit`] and after [`Engine::complete`], so that an
//! engine can run the tasks of many SAs together, later, or on another core.

mod at_once;
mod fault;

use aws_lc_rs::aead::Nonce;

use crate::schedule::Schedule;

pub use at_once::{AtOnce, AwsLc, Cryptography, Direct, Nothing, Null, move_front};
pub use fault::{Fault, Faults};

use std::ops::Range;

/// Runs tasks, and holds at most a fixed number of them.
pub trait Engine<T: Task> {
    /// Name of the kind of engine.
    fn name(&self) -> &'static str;

    /// Takes tasks from the front of `tasks`, and leaves the tasks for which the engine has no
    /// room.
    fn submit(&mut self, tasks: &mut Vec<T>);

    /// Appends finished tasks to `out`. The tasks of one key are returned in the order in which
    /// they were submitted.
    fn complete(&mut self, out: &mut Vec<T>);

    /// Runs the tasks that the engine holds back to form a batch. A worker calls this function at
    /// the end of its round, so that the last packets of a burst do not wait for the next burst.
    fn flush(&mut self) {}

    /// Number of tasks that [`Engine::submit`] takes now.
    fn room(&self) -> usize;

    /// Number of tasks that were submitted and not yet returned.
    fn in_flight(&self) -> usize;
}

/// A packet on its way through an engine.
pub trait Task {
    /// The key, the operation, and the bytes to which the operation's ranges refer.
    fn parts(&mut self) -> (&Schedule, &Work, &mut [u8]);

    /// Notes the result.
    fn set_status(&mut self, status: Status);
}

/// A cryptographic operation and the ranges of the packet that it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The operation.
    pub operation: Operation,
    /// IV of a block cipher; for an AEAD, the nonce in the first 12 bytes.
    pub iv: [u8; 16],
    /// Authenticated bytes that are not in the packet in this form: the associated data of an AEAD,
    /// or bytes that an HMAC covers after its range. [`Work::extra`] returns the valid part.
    pub extra: [u8; 16],
    /// Number of bytes in `extra`.
    pub extra_len: u8,
    /// Range of the packet that an HMAC authenticates.
    pub authenticate: Range<u32>,
    /// Range of the packet to encrypt or decrypt.
    pub cipher: Range<u32>,
    /// Offset of the ICV in the packet. The ICV is after the other ranges; for an AEAD it starts at
    /// the end of `cipher`.
    pub tag: u32,
}

impl Work {
    /// The valid part of the field `extra`.
    #[inline]
    pub fn extra(&self) -> &[u8] {
        &self.extra[..usize::from(self.extra_len).min(self.extra.len())]
    }

    /// The nonce of an AEAD. It is unique for a key, because it contains the sequence number.
    #[inline]
    pub(crate) fn nonce(&self) -> Nonce {
        let mut nonce = [0; 12];
        nonce.copy_from_slice(&self.iv[..12]);
        Nonce::assume_unique_for_key(nonce)
    }
}

/// A cryptographic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Encrypt, and write the ICV.
    Seal,
    /// Check the ICV, and decrypt.
    Open,
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The task has not been run.
    Pending,
    /// The task was run; for [`Operation::Open`], the ICV was right.
    Done,
    /// The ICV is wrong.
    BadTag,
    /// The engine failed to run the task.
    Failed,
}
