//! Elements of a hash table: a fixed number of equal blocks in one region.
//!
//! An element that was unlinked *waits* until every reader has passed (see [`crate::qsbr`]); only
//! then it becomes free. When nothing is free, the one that waits longest is reused at once, as the
//! kernel does with preallocated elements always; [`Pool::reuses`] then tells readers, who may be
//! standing on it, to start their walk again.
//!
//! Each worker has a shard of its own, so that taking and giving back rarely meets another core.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use towpath_bpf::Errno;

use crate::memory::Region;
use crate::qsbr::Domain;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, AtomicU64, fence};

/// Index of no element.
pub(crate) const NIL: u32 = u32::MAX;

/// Where things are in an element; the key follows at [`HEADER_BYTES`].
pub(crate) mod header {
    /// Index of the next element in the bucket.
    pub(crate) const NEXT: usize = 0;
    /// Hash of the key.
    pub(crate) const HASH: usize = 4;
    /// Index of the next free or waiting element. Not `NEXT`: a reader on an unlinked element
    /// still goes on from there.
    pub(crate) const LINK: usize = 8;
    /// [`LINKED`] and [`REFERENCED`].
    pub(crate) const STATE: usize = 12;
    /// In a bucket.
    pub(crate) const LINKED: u32 = 1;
    /// Used since the clock's hand last came by.
    pub(crate) const REFERENCED: u32 = 2;
}

/// Bytes of an element before its key.
pub(crate) const HEADER_BYTES: usize = 16;

/// Elements a shard takes from the untouched ones at a time.
const REFILL: u32 = 32;

/// All elements of a table.
pub(crate) struct Pool {
    pub(crate) region: Region,
    /// Bytes of an element.
    pub(crate) stride: usize,
    /// Number of elements.
    pub(crate) elements: u32,
    /// First element that was never used; past `elements` when there is none.
    untouched: AtomicU32,
    shards: Box<[Shard]>,
    /// How often an element was reused while a reader might stand on it. Apart, because its
    /// address is in compiled code.
    reuses: Box<AtomicU64>,
    domain: Arc<Domain>,
}

/// One worker's part, on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<Lists>);

/// Elements nobody has linked.
struct Lists {
    /// Free ones, last in first out.
    free: u32,
    /// Never used ones: from, to.
    fresh: (u32, u32),
    /// Waiting ones, first in first out; `older` came before everything in `newer`.
    older: Waiting,
    newer: Waiting,
}

/// A list of waiting elements, and when the last one was unlinked, or some time after that.
#[derive(Clone, Copy)]
struct Waiting {
    first: u32,
    last: u32,
    /// `None`: not asked for yet. Asking is dear, and once for many is enough.
    tag: Option<u64>,
}

impl Waiting {
    const NONE: Waiting = Waiting { first: NIL, last: NIL, tag: None };
}

impl Default for Lists {
    fn default() -> Self {
        Lists { free: NIL, fresh: (0, 0), older: Waiting::NONE, newer: Waiting::NONE }
    }
}

impl Pool {
    /// `elements` elements of `stride` bytes, for the workers of `domain` and one more.
    pub(crate) fn new(elements: u32, stride: usize, domain: Arc<Domain>) -> Result<Self, Errno> {
        let bytes = u64::from(elements).checked_mul(stride as u64).ok_or(Errno::ENOMEM)?;
        Ok(Pool {
            region: Region::new(bytes)?,
            stride,
            elements,
            untouched: AtomicU32::new(0),
            shards: (0..=domain.workers()).map(|_| Shard::default()).collect(),
            reuses: Box::new(AtomicU64::new(0)),
            domain,
        })
    }

    /// Offset of an element in the region.
    #[inline]
    pub(crate) fn offset(&self, element: u32) -> usize {
        element as usize * self.stride
    }

    /// A field of an element's header.
    #[inline]
    pub(crate) fn header(&self, element: u32, field: usize) -> &AtomicU32 {
        self.region.half(self.offset(element) + field)
    }

    /// What `read` gives when no element was reused under it.
    #[inline]
    pub(crate) fn unless_reused<T>(&self, mut read: impl FnMut() -> T) -> T {
        loop {
            let reuses = self.reuses();
            let result = read();
            fence(Acquire);
            if self.reuses() == reuses {
                return result;
            }
        }
    }

    /// Number of reuses under a reader. Read it before a walk and, after an acquire fence, behind
    /// it: when it changed, the walk may have gone astray.
    #[inline]
    pub(crate) fn reuses(&self) -> u64 {
        self.reuses.load(Acquire)
    }

    /// Address of that number.
    pub(crate) fn reuses_address(&self) -> u64 {
        std::ptr::from_ref(&*self.reuses) as u64
    }

    /// An element for `worker` (any other number: a user thread). `None` only when all are linked.
    pub(crate) fn take(&self, worker: usize) -> Option<u32> {
        let own = self.shard_of(worker);
        let shards = self.shards.len();
        let in_turn = || (0..shards).map(move |step| (own + step) % shards);
        in_turn()
            .find_map(|shard| self.shards[shard].0.lock().take(self, worker))
            .or_else(|| in_turn().find_map(|shard| self.shards[shard].0.lock().take_waiting(self)))
    }

    /// Gives back an element that was never linked.
    pub(crate) fn give_back(&self, worker: usize, element: u32) {
        self.own(worker).push_free(self, element);
    }

    /// Gives back an element that was just unlinked.
    pub(crate) fn retire(&self, worker: usize, element: u32) {
        self.own(worker).retire(self, element);
    }

    /// Takes an element and gives back another one that `link` unlinks, the new one in its place:
    /// what [`Pool::take`] and [`Pool::retire`] do, for the price of one. `false`, and nothing
    /// done, when the worker's own shard has no element at hand.
    pub(crate) fn exchange(&self, worker: usize, old: u32, link: impl FnOnce(u32)) -> bool {
        let mut lists = self.own(worker);
        // Other shards may have free ones, but to look there costs more than the update. The kernel
        // takes the one that was replaced last.
        let element = lists.take(self, worker).or_else(|| lists.take_waiting(self));
        let Some(element) = element else { return false };
        link(element);
        lists.retire(self, old);
        true
    }

    fn own(&self, worker: usize) -> MutexGuard<'_, Lists> {
        self.shards[self.shard_of(worker)].0.lock()
    }

    fn shard_of(&self, worker: usize) -> usize {
        worker.min(self.shards.len() - 1)
    }

    fn refill(&self) -> (u32, u32) {
        let share = (self.elements / self.shards.len() as u32).clamp(1, REFILL);
        let from = self.untouched.fetch_update(Relaxed, Relaxed, |next| {
            (next < self.elements).then(|| next.saturating_add(share).min(self.elements))
        });
        from.map_or((0, 0), |from| (from, from.saturating_add(share).min(self.elements)))
    }
}

impl Lists {
    /// An element that is free, for a worker.
    fn take(&mut self, pool: &Pool, worker: usize) -> Option<u32> {
        if let Some(element) = self.pop_free(pool) {
            return Some(element);
        }
        if self.fresh.0 == self.fresh.1 {
            self.fresh = pool.refill();
        }
        if self.fresh.0 < self.fresh.1 {
            self.fresh.0 += 1;
            return Some(self.fresh.0 - 1);
        }
        // In the middle of a burst nothing has passed: to know that costs a load.
        if self.older.tag.is_none_or(|tag| pool.domain.has_moved_on(worker, tag)) {
            self.reclaim(pool);
        }
        self.pop_free(pool)
    }

    fn retire(&mut self, pool: &Pool, element: u32) {
        pool.header(element, header::LINK).store(NIL, Relaxed);
        let Waiting { first, last, .. } = self.newer;
        if first == NIL {
            let tag = Some(pool.domain.tag());
            self.newer = Waiting { first: element, last: element, tag };
        } else {
            pool.header(last, header::LINK).store(element, Relaxed);
            self.newer = Waiting { first, last: element, tag: None };
        }
    }

    /// Frees what waited long enough, and asks readers to move on for the rest.
    fn reclaim(&mut self, pool: &Pool) {
        for _ in 0..2 {
            let has_passed = |tag: u64| pool.domain.passed(tag);
            if self.older.first != NIL && self.older.tag.is_some_and(has_passed) {
                let rest = std::mem::replace(&mut self.free, self.older.first);
                pool.header(self.older.last, header::LINK).store(rest, Relaxed);
                self.older = Waiting::NONE;
            }
            if self.older.first == NIL && self.newer.first != NIL {
                self.older = std::mem::replace(&mut self.newer, Waiting::NONE);
                self.older.tag.get_or_insert_with(|| pool.domain.tag());
                pool.domain.advance();
            }
        }
    }

    /// Takes the element that waits longest although a reader may stand on it.
    fn take_waiting(&mut self, pool: &Pool) -> Option<u32> {
        let list = if self.older.first == NIL { &mut self.newer } else { &mut self.older };
        let element = list.first;
        if element == NIL {
            return None;
        }
        list.first = pool.header(element, header::LINK).load(Relaxed);
        pool.reuses.fetch_add(1, AcqRel);
        // What is written to the element from now on comes with the count: see `reuses`.
        fence(Release);
        Some(element)
    }

    fn pop_free(&mut self, pool: &Pool) -> Option<u32> {
        if self.free == NIL {
            return None;
        }
        let element = self.free;
        self.free = pool.header(element, header::LINK).load(Relaxed);
        Some(element)
    }

    fn push_free(&mut self, pool: &Pool, element: u32) {
        pool.header(element, header::LINK).store(self.free, Relaxed);
        self.free = element;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlinked_elements_wait_for_readers() {
        let domain = Domain::new(1);
        domain.quiesce(0);
        let pool = Pool::new(4, 32, domain.clone()).unwrap();
        let first = pool.take(0).unwrap();
        pool.retire(0, first);
        let others: Vec<u32> = (0..3).map(|_| pool.take(0).unwrap()).collect();
        assert!(!others.contains(&first));
        assert_eq!(pool.reuses(), 0);
        domain.quiesce(0);
        domain.advance();
        domain.quiesce(0);
        assert_eq!(pool.take(0), Some(first));
        assert_eq!(pool.reuses(), 0, "the reader had passed");
        assert_eq!(pool.take(0), None);
    }

    #[test]
    fn with_nothing_free_the_longest_waiting_is_reused() {
        let domain = Domain::new(1);
        domain.quiesce(0);
        let pool = Pool::new(2, 32, domain).unwrap();
        let (first, second) = (pool.take(0).unwrap(), pool.take(9).unwrap());
        pool.retire(0, second);
        pool.retire(0, first);
        assert_eq!(pool.take(0), Some(second));
        assert_eq!(pool.take(9), Some(first));
        assert_eq!(pool.reuses(), 2);
        assert_eq!(pool.take(0), None);
    }
}
