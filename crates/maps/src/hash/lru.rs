//! The choice of the element that a full LRU table evicts: a clock.
//!
//! The kernel keeps active and inactive lists and moves elements between them by a reference bit
//! (`kernel/bpf/bpf_lru_list.c`). A hand that passes over the elements, clears the bit of used ones
//! and takes the first unused one gives the same promise (an insertion never fails, the recently
//! used stay) and needs no list: a look-up only sets a bit. `BPF_F_NO_COMMON_LRU` makes no
//! difference here, because the hand isn't a lock that cores wait for.
//!
//! The hand moves on by a block of elements, which then belongs to the worker that moved it: the
//! worker checks one after the other, and moves the hand again after a whole block. A worker gives
//! up its block when the hand is far ahead of it. So an evicted element is out of order by some
//! blocks for each worker, and a worker alone evicts in order.

use crate::hash::HashTable;
use crate::hash::pool::{Pool, header};
use crate::shared::{Line, Shared};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed};

/// Largest number of used elements that the hand spares before it takes a used one: this limits the
/// time of an insertion.
const SPARED_MAX: u32 = 1024;
/// Most elements of a block.
const BLOCK_MAX: u32 = 32;
/// Distances in elements at which an element, its bucket, and the bucket's first element are
/// prefetched.
const AHEAD: [u32; 3] = [9, 6, 3];

/// The hand, and the positions of workers.
pub(crate) struct Clock {
    /// Blocks that were given out.
    hand: Shared<AtomicU64>,
    /// Elements of a block.
    block: u32,
    /// The block of each worker. User threads share one; they may check the same element twice,
    /// which does no harm.
    blocks: Box<[Line<Block>]>,
}

/// Elements that a worker checks.
#[derive(Default)]
struct Block {
    /// The elements of the block that are left, as a word.
    rest: AtomicU64,
    /// Elements of the next block, if the worker has it already; else none.
    following: AtomicU64,
    /// The hand, after the last block was given out.
    hand: AtomicU64,
    /// The epoch in which the worker last read the hand.
    epoch: AtomicU64,
}

/// Elements of a block that are left.
#[derive(Clone, Copy)]
struct Rest {
    next: u32,
    /// The first one behind the block.
    end: u32,
}

impl Rest {
    fn of(word: u64) -> Self {
        Rest { next: (word >> 32) as u32, end: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.next) << 32 | u64::from(self.end)
    }
}

impl Clock {
    /// For the elements of a pool.
    pub(crate) fn new(pool: &Pool) -> Self {
        let shards = pool.shards();
        Clock {
            hand: Shared::default(),
            block: (pool.elements / (shards as u32 * 8)).clamp(1, BLOCK_MAX),
            blocks: (0..shards).map(|_| Line::default()).collect(),
        }
    }

    /// Removes one key, unless there is room meanwhile, and returns its place: an element that
    /// counts as taken, and the state that it is to have.
    pub(crate) fn evict(&self, map: &HashTable, worker: usize) -> Option<(u32, u32)> {
        let pool = &map.table.pool;
        let mut spared = 0;
        for _ in 0..pool.elements {
            let Some(element) = self.next(map, worker) else {
                // Elements may have become free in places that this worker doesn't check each time.
                if let Some(place) = pool.take_place(worker) {
                    return Some((place, 0));
                }
                self.move_on(pool, worker);
                continue;
            };
            let state = pool.header(element, header::STATE);
            let now = state.load(Acquire);
            if now & header::LINKED == 0 {
                continue;
            }
            if now & header::REFERENCED != 0 && spared < SPARED_MAX {
                spared += 1;
                // A look-up or an unlinking was faster: the element counts as spared.
                let (now, unused, order) = (now, header::LINKED, Relaxed);
                let _lost = state.compare_exchange(now, unused, order, order);
                continue;
            }
            if self.remove(map, element) {
                let new = pool.swap(worker, element)?;
                return Some((new, state_of(pool, element, new)));
            }
        }
        None
    }

    /// The element that is next in a worker's block.
    fn next(&self, map: &HashTable, worker: usize) -> Option<u32> {
        let pool = &map.table.pool;
        let own = &self.blocks[pool.shard_of(worker)].0;
        let rest = Rest::of(own.rest.load(Relaxed));
        if rest.next >= rest.end {
            return None;
        }
        if self.is_left_behind(pool, own, worker) {
            own.following.store(0, Relaxed);
            return None;
        }
        if rest.end - rest.next == AHEAD[0] {
            own.following.store(self.claim(pool, own), Relaxed);
        }
        own.rest.store(Rest { next: rest.next + 1, ..rest }.word(), Relaxed);
        look_ahead(map, rest, Rest::of(own.following.load(Relaxed)));
        Some(rest.next)
    }

    /// Gives a worker the next block.
    fn move_on(&self, pool: &Pool, worker: usize) {
        let own = &self.blocks[pool.shard_of(worker)].0;
        let following = own.following.load(Relaxed);
        own.following.store(0, Relaxed);
        own.rest.store(if following == 0 { self.claim(pool, own) } else { following }, Relaxed);
    }

    /// The next block of elements, for the worker that claims it.
    fn claim(&self, pool: &Pool, own: &Block) -> u64 {
        let blocks = u64::from(pool.elements.div_ceil(self.block));
        let hand = self.hand.write().fetch_add(1, Relaxed);
        own.hand.store(hand + 1, Relaxed);
        let next = (hand % blocks) as u32 * self.block;
        Rest { next, end: pool.elements.min(next.saturating_add(self.block)) }.word()
    }

    /// Whether others are so far ahead that a worker's block is not the oldest any more. While the
    /// worker announces the same epoch, the others can't get far ahead.
    fn is_left_behind(&self, pool: &Pool, own: &Block, worker: usize) -> bool {
        let epoch = pool.domain.announced(worker);
        if epoch.is_some_and(|epoch| epoch == own.epoch.load(Relaxed)) {
            return false;
        }
        own.epoch.store(epoch.unwrap_or_default(), Relaxed);
        let since = self.hand.read().load(Relaxed) - own.hand.load(Relaxed);
        since > pool.shards() as u64
    }

    /// Takes an element out of the table.
    fn remove(&self, map: &HashTable, element: u32) -> bool {
        let hash = map.table.pool.header(element, header::HASH).load(Relaxed);
        let bucket = map.table.lock(hash);
        // It may have been unlinked, or reused for another bucket, before the lock was taken.
        let state = map.table.pool.header(element, header::STATE).load(Relaxed);
        let here = map.table.pool.header(element, header::HASH).load(Relaxed) == hash;
        state & header::LINKED != 0 && here && map.unlink(bucket, element)
    }
}

/// The state of a new entry at `new`, while the hand is at `hand`. Most places were evicted a short
/// while ago, and the hand comes by after all others. One that waited long may lie before it: its
/// entry is spared once, or it would be evicted young.
fn state_of(pool: &Pool, hand: u32, new: u32) -> u32 {
    let ahead = if new > hand { new - hand } else { pool.elements - hand + new };
    if ahead < pool.elements / 2 { header::REFERENCED } else { 0 }
}

/// Prefetches the memory for the next evictions: elements, their buckets, and the first elements of
/// these.
fn look_ahead(map: &HashTable, rest: Rest, following: Rest) {
    let pool = &map.table.pool;
    let hash = |element| pool.header(element, header::HASH).load(Relaxed);
    let [element, bucket, first] = AHEAD.map(|steps| {
        let here = rest.next + steps;
        let there = following.next + here.saturating_sub(rest.end);
        if here < rest.end { Some(here) } else { (there < following.end).then_some(there) }
    });
    if let Some(element) = element {
        pool.region.prefetch_to_write(pool.offset(element));
    }
    if let Some(element) = bucket {
        map.table.prefetch(hash(element));
    }
    if let Some(element) = first {
        map.table.prefetch_first(hash(element));
    }
}
