//! Classes of objects: allocation and reuse of slots of one kind.
//!
//! Each worker has its own free slots; user threads share a set. The slot of a freed object waits
//! until every worker has been quiescent, in the set of the thread that released it.

use parking_lot::{Mutex, MutexGuard};
use towpath_maps::Domain;
use towpath_maps::fields::Field;

use super::slot_unsafe::{HEADER_BYTES, Slot};

/// Properties that equal objects share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes visible to programs, of all copies.
    pub(crate) bytes: usize,
    /// Bytes from one CPU's copy to the next; 0 for an ordinary object.
    pub(crate) cpu_stride: usize,
    /// Bytes behind them that are hidden from programs.
    pub(crate) hidden_bytes: usize,
    /// Whether there may be more than one reference.
    pub(crate) is_counted: bool,
    /// Fields that own other objects.
    pub(crate) fields: Vec<Field>,
    /// Whether each object has a cipher in its hidden part ([`super::Object::cipher`]).
    pub(crate) has_cipher: bool,
}

/// Objects of one kind.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) shape: Shape,
    shards: Box<[Shard]>,
    /// Slots that were never in a shard.
    fresh: Mutex<Vec<Slot>>,
}

/// One worker's slots, on cache lines of its own.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard(Mutex<Lists>);

/// Slots without references.
#[derive(Debug, Default)]
struct Lists {
    /// Free ones, last in first out.
    free: Option<Slot>,
    /// Slots that were never used.
    fresh: Vec<Slot>,
    /// Waiting slots, first in first out; all in `older` precede those in `newer`.
    older: Waiting,
    newer: Waiting,
}

/// A list of waiting slots.
#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    first: Option<Slot>,
    last: Option<Slot>,
    /// A tag taken after the last of them was released. Tags are expensive, so one serves many
    /// slots.
    tag: u64,
}

impl Class {
    /// A class without slots, for `workers` workers and user threads.
    pub(super) fn new(shape: Shape, workers: usize) -> Class {
        let shards = (0..=workers).map(|_| Shard::default()).collect();
        Class { shape, shards, fresh: Mutex::default() }
    }

    /// Bytes of an object, including the hidden part.
    pub(super) fn object_bytes(&self) -> usize {
        self.shape.bytes.next_multiple_of(8) + self.shape.hidden_bytes
    }

    /// Bytes from slot to slot.
    pub(super) fn stride(&self) -> usize {
        (HEADER_BYTES + self.object_bytes()).next_multiple_of(HEADER_BYTES)
    }

    #[inline(always)]
    pub(super) fn is_counted(&self) -> bool {
        self.shape.is_counted
    }

    /// A slot for a worker (any other number: a user thread); `more` makes new ones if there is
    /// none.
    pub(super) fn take(
        &self,
        worker: usize,
        domain: &Domain,
        more: impl FnOnce() -> Vec<Slot>,
    ) -> Option<Slot> {
        let mut lists = self.lock(worker);
        if self.shape.has_cipher {
            // Keys don't stay in memory until all slots were used.
            lists.reclaim(domain, self);
        }
        if lists.free.is_none() && lists.fresh.is_empty() {
            lists.reclaim(domain, self);
            if lists.free.is_none() {
                self.refill(&mut lists, worker, more);
            }
        }
        lists.pop(self)
    }

    /// Takes back the slot of an object whose last reference is gone.
    #[inline]
    pub(super) fn retire(&self, worker: usize, slot: Slot) {
        self.lock(worker).retire(slot);
    }

    fn lock(&self, worker: usize) -> MutexGuard<'_, Lists> {
        let shard = &self.shards[worker.min(self.shards.len() - 1)];
        shard.0.lock()
    }

    /// Gets slots from elsewhere: first other workers' free ones, so that objects which one worker
    /// makes and another one releases are reused.
    #[cold]
    fn refill(&self, lists: &mut Lists, worker: usize, more: impl FnOnce() -> Vec<Slot>) {
        let own = worker.min(self.shards.len() - 1);
        for (_, shard) in self.shards.iter().enumerate().filter(|(at, _)| *at != own) {
            // `try_lock` avoids a deadlock with a worker that does the same in reverse.
            if let Some(mut other) = shard.0.try_lock() {
                lists.free = other.free.take();
                if lists.free.is_some() {
                    return;
                }
            }
        }
        let mut fresh = self.fresh.lock();
        if fresh.is_empty() {
            *fresh = more();
        }
        let keep = fresh.len().saturating_sub(REFILL);
        lists.fresh.extend(fresh.drain(keep..));
    }
}

impl Lists {
    #[inline]
    fn pop(&mut self, class: &Class) -> Option<Slot> {
        let Some(slot) = self.free else {
            let slot = self.fresh.pop()?;
            slot.begin(class, true);
            return Some(slot);
        };
        self.free = slot.next();
        slot.begin(class, false);
        Some(slot)
    }

    #[inline]
    fn retire(&mut self, slot: Slot) {
        slot.set_next(None);
        match self.newer.last.replace(slot) {
            None => self.newer.first = Some(slot),
            Some(last) => last.set_next(Some(slot)),
        }
    }

    /// Frees slots that waited long enough, and requests a new grace period for the rest.
    #[cold]
    fn reclaim(&mut self, domain: &Domain, class: &Class) {
        for _ in 0..2 {
            if self.older.first.is_some() && domain.passed(self.older.tag) {
                let free = std::mem::take(&mut self.older);
                let mut at = free.first;
                while let Some(slot) = at {
                    slot.forget(class);
                    at = slot.next();
                }
                if let Some(last) = free.last {
                    last.set_next(self.free);
                }
                self.free = free.first;
            }
            if self.older.first.is_none() && self.newer.first.is_some() {
                self.older = Waiting { tag: domain.tag(), ..std::mem::take(&mut self.newer) };
                domain.advance();
            }
        }
    }
}

/// Number of slots that a worker gets at once.
const REFILL: usize = 32;
