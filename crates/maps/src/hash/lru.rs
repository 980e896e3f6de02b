//! Which element of a full LRU table goes: a clock.
//!
//! The kernel keeps active and inactive lists and moves elements between them by a reference bit
//! (`kernel/bpf/bpf_lru_list.c`). A hand that passes over the elements, clears the bit of used ones
//! and takes the first unused one gives the same promise (an insertion never fails, the recently
//! used stay) and needs no list: a look-up only sets a bit. `BPF_F_NO_COMMON_LRU` makes no
//! difference here, because the hand isn't a lock that cores wait for.

use crate::hash::HashTable;
use crate::hash::pool::header;
use crate::sync::{AtomicU32, Ordering};

/// Used elements the hand spares before it takes one all the same: a bound on the time an insertion
/// can take.
const SPARED_MAX: u32 = 1024;

/// The hand.
#[derive(Default)]
pub(crate) struct Clock {
    hand: AtomicU32,
}

impl Clock {
    /// Removes one key, unless others removed some meanwhile.
    pub(crate) fn evict(&self, map: &HashTable, worker: usize) {
        let pool = &map.table.pool;
        let mut spared = 0;
        for _ in 0..pool.elements {
            let element = self.hand.fetch_add(1, Ordering::Relaxed) % pool.elements;
            let state = pool.header(element, header::STATE);
            let now = state.load(Ordering::Acquire);
            if now & header::LINKED == 0 {
                continue;
            }
            if now & header::REFERENCED != 0 && spared < SPARED_MAX {
                spared += 1;
                // Lost against a look-up or an unlink: as good as spared.
                let _ = state.compare_exchange(
                    now,
                    header::LINKED,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                continue;
            }
            if self.remove(map, element, worker) {
                return;
            }
        }
    }

    fn remove(&self, map: &HashTable, element: u32, worker: usize) -> bool {
        let hash = map.table.pool.header(element, header::HASH).load(Ordering::Relaxed);
        let bucket = map.table.lock(hash);
        // It may have been unlinked, or reused for another bucket, before the lock was taken.
        let state = map.table.pool.header(element, header::STATE).load(Ordering::Relaxed);
        let here = map.table.pool.header(element, header::HASH).load(Ordering::Relaxed) == hash;
        if state & header::LINKED == 0 || !here || !bucket.contains(element) {
            return false;
        }
        map.discard(bucket, element, worker);
        map.count.fetch_sub(1, Ordering::Relaxed);
        true
    }
}
