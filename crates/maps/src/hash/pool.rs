//! Elements of a hash table: a fixed number of equal blocks in one region.
//!
//! An element that was unlinked *waits* until every reader has passed (see [`crate::qsbr`]); only
//! then it becomes free. When nothing is free, those that wait longest are reused at once, as the
//! kernel does with preallocated elements always; [`Pool::reuses`] then tells readers, who may be
//! standing on one, to start their walk again.
//!
//! Each worker has a [`Shard`] of its own, and takes and gives back elements without reading the
//! others; elements go from shard to shard in batches, through the [`Depot`]. There are as many
//! elements as the table has places, and a *reserve* for each shard, for replacements and for
//! waiting elements. Keys are not counted: a table is full when no shard holds more than its
//! reserve.

use std::sync::Arc;

use towpath_bpf::Errno;

use super::chain::Batch;
use super::depot::Depot;
use super::shard::Shard;
use crate::memory::Region;
use crate::qsbr::Domain;
use crate::shared::Shared;
use crate::sync::Ordering::{Acquire, Release};
use crate::sync::{AtomicU32, AtomicU64, fence};

/// The index that stands for no element.
pub(crate) const NIL: u32 = u32::MAX;

/// Offsets in an element; the key follows at [`HEADER_BYTES`].
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

/// Most elements that move together.
const BATCH_MAX: u32 = 64;

/// All elements of a table.
pub(crate) struct Pool {
    pub(crate) region: Region,
    /// Bytes of an element.
    pub(crate) stride: usize,
    /// Number of elements.
    pub(crate) elements: u32,
    /// Number of elements that each shard keeps for itself.
    pub(super) reserve: u32,
    /// Number of elements that move together.
    pub(super) batch: u32,
    shards: Box<[Shard]>,
    pub(super) depot: Depot,
    /// Number of reuses of elements while a reader might stand on them. It has memory of its own,
    /// because its address is in compiled code.
    pub(super) reuses: Box<Shared<AtomicU64>>,
    pub(super) domain: Arc<Domain>,
}

impl Pool {
    /// `places` elements of `stride` bytes, and `reserve` more for each of the workers of `domain`
    /// and one more.
    pub(crate) fn new(
        places: u32,
        reserve: u32,
        stride: usize,
        domain: Arc<Domain>,
    ) -> Result<Self, Errno> {
        let shards = domain.workers() as u32 + 1;
        let reserved = reserve.checked_mul(shards).ok_or(Errno::E2BIG)?;
        let elements = places.checked_add(reserved).ok_or(Errno::E2BIG)?;
        let bytes = u64::from(elements).checked_mul(stride as u64).ok_or(Errno::ENOMEM)?;
        let pool = Pool {
            region: Region::new(bytes)?.in_huge_pages(),
            stride,
            elements,
            reserve,
            batch: (places / (shards * 4)).clamp(1, BATCH_MAX),
            shards: (0..shards).map(|_| Shard::default()).collect(),
            depot: Depot::new(0..places),
            reuses: Box::default(),
            domain,
        };
        if reserve > 0 {
            for (shard, first) in pool.shards.iter().zip((places..).step_by(reserve as usize)) {
                shard.add(&pool, Batch::Fresh(first..first + reserve));
            }
        }
        Ok(pool)
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

    /// The result of `read`, repeated until no element was reused under it.
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
        self.reuses.read().load(Acquire)
    }

    /// Address of that number.
    pub(crate) fn reuses_address(&self) -> u64 {
        std::ptr::from_ref(self.reuses.read()) as u64
    }

    /// An element to put in the place of another one, for `worker` (any other number: a user
    /// thread). `None` only when there is none that isn't linked.
    pub(crate) fn take(&self, worker: usize) -> Option<u32> {
        self.take_above(worker, 0)
    }

    /// An element for a new key; `None` when all places are taken.
    pub(crate) fn take_place(&self, worker: usize) -> Option<u32> {
        self.take_above(worker, self.reserve)
    }

    /// As above, without checking other shards.
    pub(crate) fn take_place_near(&self, worker: usize) -> Option<u32> {
        self.take_if(worker, self.reserve, || self.depot.held() > 0)
    }

    /// Gives back an element that was never linked.
    pub(crate) fn give_back(&self, worker: usize, element: u32) {
        self.own(worker).give_back(self, element);
    }

    /// Gives back an element that was just unlinked.
    pub(crate) fn retire(&self, worker: usize, element: u32) {
        if self.own(worker).retire(self, worker, element) {
            let mut depot = self.depot.open();
            if let Some(batch) = self.own(worker).cut_surplus(self) {
                depot.add(batch);
            }
        }
    }

    /// Takes an element and gives back another one that `link` unlinks, the new one in its place:
    /// this has the effect of [`Pool::take`] and [`Pool::retire`], at the cost of one of them.
    /// Returns `false` without an effect if the worker's own shard has no free element.
    pub(crate) fn exchange(&self, worker: usize, old: u32, link: impl FnOnce(u32)) -> bool {
        // Other shards may have free ones, but to look there costs more than the update. The kernel
        // takes the one that was replaced last.
        self.own(worker).exchange(self, worker, old, link)
    }

    /// Gives back an element that was just unlinked, and takes its place with another one.
    pub(crate) fn swap(&self, worker: usize, old: u32) -> Option<u32> {
        let element = self.own(worker).swap(self, worker, old);
        fence(Release);
        element
    }

    /// Number of elements that are linked, or about to be.
    pub(crate) fn taken(&self) -> u32 {
        let of_shards = || self.shards.iter().map(|shard| shard.held().count).sum::<u32>();
        let held = || of_shards() + self.depot.held();
        self.elements.saturating_sub(self.depot.while_nothing_moves(held))
    }

    /// Number of shards, and which one is a worker's.
    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    pub(super) fn shard_of(&self, worker: usize) -> usize {
        worker.min(self.shards.len() - 1)
    }

    fn own(&self, worker: usize) -> &Shard {
        &self.shards[self.shard_of(worker)]
    }

    fn take_above(&self, worker: usize, keep: u32) -> Option<u32> {
        self.take_if(worker, keep, || self.has_more_than(keep))
    }

    /// An element of the worker's shard, which is refilled from other shards while these have any.
    fn take_if(&self, worker: usize, keep: u32, are_any: impl Fn() -> bool) -> Option<u32> {
        loop {
            if let Some(element) = self.own(worker).take(self, worker, keep) {
                // Writes to an element that was reused under a reader come after its count: see
                // `reuses`.
                fence(Release);
                return Some(element);
            }
            if !are_any() {
                return None;
            }
            self.bring(self.shard_of(worker), keep);
        }
    }

    /// Whether the depot has an element, or any shard more than `keep`; if not, there was a moment
    /// when that was so for all of them. Writes nothing, so that workers don't disturb each other
    /// over a table that is full.
    fn has_more_than(&self, keep: u32) -> bool {
        self.depot.while_nothing_moves(|| {
            loop {
                let Some(before) = self.changes_of_none(keep) else { return true };
                match self.changes_of_none(keep) {
                    None => return true,
                    Some(after) if after == before => return false,
                    Some(_) => {}
                }
            }
        })
    }

    /// Number of changes of the shards' elements so far; `None` when a shard has more than `keep`,
    /// or the depot has an element.
    fn changes_of_none(&self, keep: u32) -> Option<u64> {
        if self.depot.held() > 0 {
            return None;
        }
        self.shards.iter().try_fold(0, |changes, shard| {
            let held = shard.held();
            (held.count <= keep).then(|| changes + u64::from(held.changes))
        })
    }

    /// Moves elements to a shard: from the depot, or from the first other shard that has some.
    fn bring(&self, own: usize, keep: u32) {
        let mut depot = self.depot.open();
        let (before, behind) = self.shards.split_at(own);
        let mut others = behind[1..].iter().chain(before);
        let cut = || others.find_map(|other| other.cut_above(self, keep, self.batch));
        if let Some(batch) = depot.cut(self.batch).or_else(cut) {
            self.shards[own].add(self, batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlinked_elements_wait_for_readers() {
        let domain = Domain::new(1);
        domain.quiesce(0);
        let pool = Pool::new(4, 0, 32, domain.clone()).unwrap();
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
        let pool = Pool::new(2, 0, 32, domain).unwrap();
        let (first, second) = (pool.take(0).unwrap(), pool.take(9).unwrap());
        pool.retire(0, second);
        pool.retire(0, first);
        assert_eq!(pool.take(0), Some(second));
        assert_eq!(pool.take(9), Some(first));
        assert_eq!(pool.reuses(), 1, "what was unlinked before is reused with it");
        assert_eq!(pool.take(0), None);
    }
}
