//! Engines: what runs the cryptography of packets.
//!
//! An engine knows neither packets nor SAs. A [`Task`] gives it a key, a [`Work`] and bytes. All
//! work on headers is done before [`Engine::submit`] and after [`Engine::complete`], so that an
//! engine can work on the tasks of many SAs at once, later, or on another core.

mod at_once;
mod fault;

use aws_lc_rs::aead::Nonce;

use crate::schedule::Schedule;

pub use at_once::{AtOnce, AwsLc, Cryptography, Direct, Nothing, Null};
pub use fault::{Fault, Faults};

use std::ops::Range;

/// Runs tasks. It never holds more than a fixed number of them.
pub trait Engine<T: Task> {
    /// Name of the kind of engine.
    fn name(&self) -> &'static str;

    /// Takes tasks from the front of `tasks`, and leaves those that it has no room for.
    fn submit(&mut self, tasks: &mut Vec<T>);

    /// Appends finished tasks to `out`. Those of one key come in the order in which they were
    /// submitted.
    fn complete(&mut self, out: &mut Vec<T>);

    /// Finishes tasks that wait for others to be run together with. A worker calls it at the end of
    /// its round, so that the last packets of a burst do not wait for the next burst.
    fn flush(&mut self) {}

    /// Number of tasks that [`Engine::submit`] takes now.
    fn room(&self) -> usize;

    /// Number of tasks that were taken and not given back.
    fn in_flight(&self) -> usize;
}

/// A packet on its way through an engine.
pub trait Task {
    /// The key, the operation, and the bytes that its ranges refer to.
    fn parts(&mut self) -> (&Schedule, &Work, &mut [u8]);

    /// Notes the result.
    fn set_status(&mut self, status: Status);
}

/// A cryptographic operation and the ranges of the packet that it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The operation.
    pub operation: Operation,
    /// IV of a block cipher, or in its first 12 bytes the nonce of an AEAD.
    pub iv: [u8; 16],
    /// Bytes that are authenticated but not in the packet in this form: the associated data of an
    /// AEAD, or those which an HMAC takes behind its range. [`Work::extra`] is the part that
    /// counts.
    pub extra: [u8; 16],
    /// Number of bytes in `extra`.
    pub extra_len: u8,
    /// Range that an HMAC authenticates.
    pub authenticate: Range<u32>,
    /// Range to encrypt or decrypt.
    pub cipher: Range<u32>,
    /// Offset of the ICV. It is not before the end of the other ranges; an AEAD's is at the end of
    /// `cipher`.
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
    /// It has not been run.
    Pending,
    /// It was done. The ICV was right if it was to be checked.
    Done,
    /// The ICV is wrong.
    BadTag,
    /// The engine could not do it.
    Failed,
}
