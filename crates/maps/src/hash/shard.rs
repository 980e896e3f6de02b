//! A worker's own part of a pool: elements that are free, and those that wait for readers.

use std::ops::Range;

use super::chain::{Batch, Chain, cut_range};
use super::pool::Pool;
use crate::shared::Line;
use crate::sync::Ordering::{AcqRel, Acquire, Release};
use crate::sync::{AtomicU64, Mutex, fence};

/// Unlinked elements for which readers are asked to move on together.
const SETTLE: u32 = 32;

/// One worker's part, on cache lines of its own.
#[derive(Default)]
pub(super) struct Shard {
    lists: Line<Mutex<Lists>>,
    /// See [`Held`]. Written with the lists locked; a worker that looks for elements reads it
    /// first, and takes only this line from its owner.
    held: Line<AtomicU64>,
}

/// Number of elements that a shard holds, and number of its changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) count: u32,
    pub(super) changes: u32,
}

/// Elements that no bucket holds.
#[derive(Default)]
struct Lists {
    /// First in, first out: no element waits so long that it disturbs the order of evictions.
    free: Chain,
    /// Never used ones.
    fresh: Vec<Range<u32>>,
    /// Waiting ones, first in first out; `older` came before everything in `newer`.
    older: Waiting,
    newer: Waiting,
}

/// Waiting elements, with the epoch in which the last one was unlinked, or a later one.
#[derive(Clone, Copy, Default)]
struct Waiting {
    chain: Chain,
    /// `None` if no epoch was requested yet. A request is costly, and one for many elements is
    /// enough.
    tag: Option<u64>,
}

impl Shard {
    /// Number of elements that it holds, and of its changes.
    #[inline]
    pub(super) fn held(&self) -> Held {
        let held = self.held.0.load(Acquire);
        Held { count: held as u32, changes: (held >> 32) as u32 }
    }

    fn count(&self) -> u32 {
        self.held().count
    }

    fn set_count(&self, count: u32) {
        let changes = self.held().changes.wrapping_add(1);
        self.held.0.store(u64::from(changes) << 32 | u64::from(count), Release);
    }

    /// An element, if more than `keep` are here; one that a reader may stand on only when the depot
    /// has none either.
    pub(super) fn take(&self, pool: &Pool, worker: usize, keep: u32) -> Option<u32> {
        let mut lists = self.lists.0.lock();
        if self.count() <= keep {
            return None;
        }
        let mut element = lists.at_hand(pool, worker);
        if element.is_none() && pool.depot.held() == 0 {
            element = lists.take_waiting(pool);
        }
        if element.is_some() {
            self.set_count(self.count() - 1);
        }
        element
    }

    /// Takes an element and passes it to `link`, then takes in the unlinked element. Returns
    /// `false` without an effect if there is no element.
    pub(super) fn exchange(
        &self,
        pool: &Pool,
        worker: usize,
        old: u32,
        link: impl FnOnce(u32),
    ) -> bool {
        let mut lists = self.lists.0.lock();
        let element = lists.at_hand(pool, worker).or_else(|| lists.take_waiting(pool));
        let Some(element) = element else { return false };
        // Writes to an element that was reused under a reader come after its count.
        fence(Release);
        link(element);
        lists.retire(pool, worker, old);
        true
    }

    /// Takes in an element that was unlinked, and returns another one, or the same.
    pub(super) fn swap(&self, pool: &Pool, worker: usize, old: u32) -> Option<u32> {
        let mut lists = self.lists.0.lock();
        lists.retire(pool, worker, old);
        lists.at_hand(pool, worker).or_else(|| lists.take_waiting(pool))
    }

    /// Takes in an element that was unlinked; returns whether there are now enough free ones to
    /// share with others.
    pub(super) fn retire(&self, pool: &Pool, worker: usize, element: u32) -> bool {
        let mut lists = self.lists.0.lock();
        lists.retire(pool, worker, element);
        self.set_count(self.count() + 1);
        self.has_too_many(pool, &lists)
    }

    /// Takes in an element that was never linked.
    pub(super) fn give_back(&self, pool: &Pool, element: u32) {
        let mut lists = self.lists.0.lock();
        lists.free.push(pool, element);
        self.set_count(self.count() + 1);
    }

    /// Takes in several elements.
    pub(super) fn add(&self, pool: &Pool, batch: Batch) {
        let mut lists = self.lists.0.lock();
        self.set_count(self.count() + batch.len());
        match batch {
            Batch::Linked(chain) => lists.free.append(pool, chain),
            Batch::Fresh(range) => lists.fresh.push(range),
        }
    }

    /// Half of the elements beyond `keep`, at most `most`.
    pub(super) fn cut_above(&self, pool: &Pool, keep: u32, most: u32) -> Option<Batch> {
        if self.count() <= keep {
            return None;
        }
        let mut lists = self.lists.0.lock();
        let beyond = self.count().checked_sub(keep).filter(|&beyond| beyond > 0)?;
        let batch = lists.cut(pool, beyond.div_ceil(2).min(most))?;
        self.set_count(self.count() - batch.len());
        Some(batch)
    }

    /// Free elements for others, if there are too many.
    pub(super) fn cut_surplus(&self, pool: &Pool) -> Option<Batch> {
        let mut lists = self.lists.0.lock();
        if !self.has_too_many(pool, &lists) {
            return None;
        }
        let chain = lists.free.cut(pool, pool.batch)?;
        self.set_count(self.count() - chain.count);
        Some(Batch::Linked(chain))
    }

    fn has_too_many(&self, pool: &Pool, lists: &Lists) -> bool {
        lists.free.count > pool.batch && self.count() > pool.reserve + 2 * pool.batch
    }
}

impl Lists {
    /// An element that no reader stands on.
    fn at_hand(&mut self, pool: &Pool, worker: usize) -> Option<u32> {
        if let Some(element) = self.pop(pool) {
            return Some(element);
        }
        self.settle(pool, worker, 1);
        self.free.pop(pool)
    }

    /// Takes the element that waits longest although a reader may stand on it. The others that were
    /// unlinked as early are free from then on too.
    fn take_waiting(&mut self, pool: &Pool) -> Option<u32> {
        let list = if self.older.chain.is_empty() { &mut self.newer } else { &mut self.older };
        let chain = std::mem::take(list).chain;
        if chain.is_empty() {
            return None;
        }
        pool.reuses.write().fetch_add(1, AcqRel);
        self.free.append(pool, chain);
        self.free.pop(pool)
    }

    fn pop(&mut self, pool: &Pool) -> Option<u32> {
        if let Some(element) = self.free.pop(pool) {
            return Some(element);
        }
        self.cut_fresh(1).map(|range| range.start)
    }

    /// Up to `count` elements that were never used.
    fn cut_fresh(&mut self, count: u32) -> Option<Range<u32>> {
        let range = self.fresh.last_mut()?;
        let front = cut_range(range, count);
        if range.start == range.end {
            self.fresh.pop();
        }
        front
    }

    fn retire(&mut self, pool: &Pool, worker: usize, element: u32) {
        let is_first = self.newer.chain.is_empty();
        self.newer.chain.push_back(pool, element);
        self.newer.tag = is_first.then(|| pool.domain.tag());
        if self.newer.chain.count.is_multiple_of(SETTLE) {
            self.settle(pool, worker, SETTLE);
        }
    }

    /// Frees elements that waited long enough, and asks readers to move on for the rest, if there
    /// are at least `at_least`.
    fn settle(&mut self, pool: &Pool, worker: usize, at_least: u32) {
        for _ in 0..2 {
            if let Some(tag) = self.older.tag {
                // In the middle of a burst no element can be freed yet; this check costs one load.
                if !pool.domain.has_moved_on(worker, tag) || !pool.domain.passed(tag) {
                    return;
                }
                let passed = std::mem::take(&mut self.older).chain;
                self.free.append(pool, passed);
            }
            if self.newer.chain.count < at_least {
                return;
            }
            self.older = std::mem::take(&mut self.newer);
            let tag = *self.older.tag.get_or_insert_with(|| pool.domain.tag());
            pool.domain.advance_from(tag);
        }
    }

    /// Cuts off up to `count` elements for another shard, at least one if there is one.
    fn cut(&mut self, pool: &Pool, count: u32) -> Option<Batch> {
        if let Some(range) = self.cut_fresh(count) {
            return Some(Batch::Fresh(range));
        }
        if self.free.is_empty() {
            let element = self.take_waiting(pool)?;
            self.free.push(pool, element);
        }
        self.free.cut(pool, count).map(Batch::Linked)
    }
}
