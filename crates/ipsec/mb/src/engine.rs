//! The engine.

use std::ops::Range;

use arrayvec::ArrayVec;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use towpath_ipsec::{
    AwsLc, Cryptography as _, Engine, Hmac, Operation, Schedule, Status, Suite, Task, Work,
    move_front,
};

use crate::keys::{MbKeys, key_len};
use crate::library_unsafe::{Library, OpenError};
use crate::manager_unsafe::{BATCH, CipherMessage, Direction, HashMessage, KeyLen, Manager, Tag};

/// An engine on libipsec-mb. It holds tasks back until it has a batch of them, or until
/// [`Engine::flush`]; all tasks return in the order in which they were submitted.
pub struct IpsecMb<T> {
    batches: Batches,
    /// Tasks in the order in which they were submitted.
    tasks: Vec<T>,
    /// Number of tasks at the front of `tasks` that were run.
    finished: usize,
    capacity: usize,
}

impl<T> IpsecMb<T> {
    /// An engine that holds at most `capacity` tasks.
    ///
    /// # Errors
    ///
    /// Fails if the library has no memory for a manager, or does not support the processor.
    pub fn new(library: &Library, capacity: usize) -> Result<IpsecMb<T>, OpenError> {
        let batches = Batches::new(library)?;
        Ok(IpsecMb { batches, tasks: Vec::with_capacity(capacity), finished: 0, capacity })
    }
}

impl<T: Task> Engine<T> for IpsecMb<T> {
    fn name(&self) -> &'static str {
        "ipsec-mb"
    }

    fn submit(&mut self, tasks: &mut Vec<T>) {
        let taken = tasks.len().min(self.room());
        move_front(tasks, taken, &mut self.tasks);
        let waiting = self.tasks.len() - self.finished;
        let whole = waiting - waiting % BATCH;
        self.run(whole);
    }

    fn complete(&mut self, out: &mut Vec<T>) {
        move_front(&mut self.tasks, self.finished, out);
        self.finished = 0;
    }

    fn flush(&mut self) {
        self.run(self.tasks.len() - self.finished);
    }

    fn room(&self) -> usize {
        self.capacity - self.tasks.len()
    }

    fn in_flight(&self) -> usize {
        self.tasks.len()
    }
}

impl<T: Task> IpsecMb<T> {
    /// Runs the next `count` tasks.
    fn run(&mut self, count: usize) {
        for batch in self.tasks[self.finished..][..count].chunks_mut(BATCH) {
            let mut statuses = [Status::Pending; BATCH];
            let mut parts: ArrayVec<Part<'_>, BATCH> = ArrayVec::new();
            for (index, (task, status)) in batch.iter_mut().zip(&mut statuses).enumerate() {
                let (schedule, work, bytes) = task.parts();
                match Plan::new(schedule, work, bytes.len(), &self.batches.manager) {
                    Some(plan) => {
                        let status = Status::Pending;
                        parts.push(Part { index, schedule, work, bytes, plan, status });
                    }
                    None => *status = AwsLc::run(schedule, work, bytes),
                }
            }
            self.batches.run(&mut parts);
            parts.iter().for_each(|part| statuses[part.index] = part.status);
            drop(parts);
            batch.iter_mut().zip(statuses).for_each(|(task, status)| task.set_status(status));
        }
        self.finished += count;
    }
}

/// A manager, and memory for the results of one batch.
struct Batches {
    manager: Manager,
    tags: Box<[Tag; BATCH]>,
}

impl Batches {
    fn new(library: &Library) -> Result<Batches, OpenError> {
        Ok(Batches { manager: Manager::new(&library.0)?, tags: Box::new([[0; _]; BATCH]) })
    }

    /// Runs the tasks of a batch: encrypts those to seal, authenticates all, and decrypts those
    /// with the right ICV.
    fn run(&mut self, parts: &mut [Part<'_>]) {
        let mut counts = [0; HMACS.len()];
        parts.iter().for_each(|part| counts[part.plan.hmac as usize] += 1);
        for part in &mut *parts {
            if counts[part.plan.hmac as usize] < WORTH {
                part.status = AwsLc::run(part.schedule, part.work, part.bytes);
            }
        }
        self.cipher(Operation::Seal, parts);
        for hmac in HMACS.into_iter().filter(|&hmac| counts[hmac as usize] >= WORTH) {
            self.authenticate(hmac, parts);
        }
        self.cipher(Operation::Open, parts);
    }

    /// Encrypts or decrypts the messages of tasks that are not finished.
    fn cipher(&mut self, operation: Operation, parts: &mut [Part<'_>]) {
        let (direction, after) = match operation {
            Operation::Seal => (Direction::Encrypt, Status::Pending),
            Operation::Open => (Direction::Decrypt, Status::Done),
        };
        for len in KEY_LENS {
            let is_next = |part: &Part<'_>| part.key_len(operation) == Some(len);
            if !parts.iter().any(is_next) {
                continue;
            }
            let next = parts.iter_mut().filter(|part| is_next(part));
            let is_done = self.manager.cipher(direction, len, next.map(Part::cipher_message));
            let status = if is_done { after } else { Status::Failed };
            parts.iter_mut().filter(|part| is_next(part)).for_each(|part| part.status = status);
        }
    }

    /// Computes the ICVs of tasks that are not finished, and writes or checks them.
    fn authenticate(&mut self, hmac: Hmac, parts: &mut [Part<'_>]) {
        let Batches { manager, tags } = self;
        let is_next = |part: &Part<'_>| part.is_next(hmac);
        parts.iter_mut().filter(|part| is_next(part)).for_each(Part::put_extra);
        let next = parts.iter_mut().filter(|part| is_next(part));
        let messages = next.zip(tags.iter_mut()).map(|(part, tag)| part.hash_message(tag));
        let is_done = manager.hash(hmac, messages);
        let next = parts.iter_mut().filter(|part| is_next(part));
        next.zip(tags.iter()).for_each(|(part, tag)| part.authenticated(is_done.then_some(tag)));
    }
}

/// The parts of a task, and its progress.
struct Part<'a> {
    /// The task's place in its batch.
    index: usize,
    schedule: &'a Schedule,
    work: &'a Work,
    bytes: &'a mut [u8],
    plan: Plan<'a>,
    /// [`Status::Pending`] until the task's last step.
    status: Status,
}

/// What the library has to do for a task.
struct Plan<'a> {
    keys: &'a MbKeys,
    /// `None` without encryption.
    key_len: Option<KeyLen>,
    hmac: Hmac,
    cipher: Range<usize>,
    /// Bytes to authenticate, of which the last ones may be in the place of the ICV.
    authenticate: Range<usize>,
    tag: Range<usize>,
    /// The first bytes of the ICV, while other bytes are in their place.
    saved: [u8; 16],
}

impl Part<'_> {
    /// Whether the task has to be authenticated with this algorithm now.
    fn is_next(&self, hmac: Hmac) -> bool {
        self.status == Status::Pending && self.plan.hmac == hmac
    }

    /// Length of the key, if the task has to be encrypted or decrypted now.
    fn key_len(&self, operation: Operation) -> Option<KeyLen> {
        let is_next = self.status == Status::Pending && self.work.operation == operation;
        self.plan.key_len.filter(|_| is_next)
    }

    fn cipher_message(&mut self) -> CipherMessage<'_> {
        let bytes = &mut self.bytes[self.plan.cipher.clone()];
        CipherMessage { keys: self.plan.keys, iv: &self.work.iv, bytes }
    }

    fn hash_message<'b>(&'b self, tag: &'b mut Tag) -> HashMessage<'b> {
        let bytes = &self.bytes[self.plan.authenticate.clone()];
        HashMessage { keys: self.plan.keys, bytes, tag }
    }

    /// Puts the authenticated bytes that are not in the packet after those that are.
    fn put_extra(&mut self) {
        let extra = self.work.extra();
        if !extra.is_empty() {
            let place = &mut self.bytes[self.plan.tag.start..][..extra.len()];
            self.plan.saved[..extra.len()].copy_from_slice(place);
            place.copy_from_slice(extra);
        }
    }

    /// Writes or checks the ICV; `None` if it was not computed.
    fn authenticated(&mut self, tag: Option<&Tag>) {
        let Plan { tag: place, saved, key_len, .. } = &self.plan;
        let icv = &mut self.bytes[place.clone()];
        let extra_len = self.work.extra().len();
        if extra_len > 0 {
            icv[..extra_len].copy_from_slice(&saved[..extra_len]);
        }
        let tag = tag.map(|tag| &tag[..icv.len()]);
        self.status = match (self.work.operation, tag) {
            (_, None) => Status::Failed,
            (Operation::Seal, Some(tag)) => {
                icv.copy_from_slice(tag);
                Status::Done
            }
            (Operation::Open, Some(tag)) => match verify_slices_are_equal(tag, icv) {
                Err(_unspecified) => Status::BadTag,
                Ok(()) if key_len.is_none() => Status::Done,
                Ok(()) => Status::Pending,
            },
        };
    }
}

impl<'a> Plan<'a> {
    /// `None` if the library can't run the task, because it is for an AEAD or has unusual ranges.
    fn new(schedule: &'a Schedule, work: &Work, len: usize, manager: &Manager) -> Option<Plan<'a>> {
        let Suite::CipherThenHmac(cipher, hmac) = schedule.suite() else { return None };
        let key_len = key_len(cipher);
        let (cipher, tag) = schedule.ranges(work, len)?;
        if key_len.is_some() && !(cipher.len().is_multiple_of(16) && is_allowed(cipher.len())) {
            return None;
        }
        let extra_len = work.extra().len();
        let (start, end) = (work.authenticate.start as usize, work.authenticate.end as usize);
        let has_place = extra_len == 0 || end == tag.start && extra_len <= tag.len();
        if start > end || end > len || !has_place {
            return None;
        }
        let authenticate = start..end + extra_len;
        if !is_allowed(authenticate.len()) {
            return None;
        }
        let keys = schedule.derived(|schedule| MbKeys::derive(manager, schedule))?;
        Some(Plan { keys, key_len, hmac, cipher, authenticate, tag, saved: [0; _] })
    }
}

/// Whether the library takes a message of this many bytes.
fn is_allowed(len: usize) -> bool {
    len > 0 && len <= LEN_MAX
}

const HMACS: [Hmac; 4] = [Hmac::Sha1_96, Hmac::Sha256_128, Hmac::Sha384_192, Hmac::Sha512_256];
const KEY_LENS: [KeyLen; 3] = [KeyLen::Aes128, KeyLen::Aes192, KeyLen::Aes256];

/// Minimum number of tasks with one HMAC for which the library is faster than AWS-LC.
const WORTH: usize = 4;
/// The library counts bytes of a message in 16 bits, and adds padding.
const LEN_MAX: usize = 65_535 - 128;
