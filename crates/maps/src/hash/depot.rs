//! The depot, through which elements go from worker to worker in batches.

use std::ops::Range;

use super::chain::{Batch, cut_range};
use crate::shared::Shared;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, Mutex, MutexGuard, fence, yield_now};

/// Free elements that belong to no shard.
pub(super) struct Depot {
    stock: Shared<Mutex<Stock>>,
    counts: Shared<Counts>,
}

/// Counts that are read without the lock, and written with it.
#[derive(Default)]
struct Counts {
    /// Odd while elements move.
    moves: AtomicU32,
    /// Number of elements here.
    held: AtomicU32,
}

struct Stock {
    batches: Vec<Batch>,
    /// First elements that were never used.
    fresh: Range<u32>,
}

/// The depot, locked: elements may move as long as this lives.
pub(super) struct Open<'a> {
    stock: MutexGuard<'a, Stock>,
    counts: &'a Counts,
}

impl Depot {
    /// A depot with these elements.
    pub(super) fn new(fresh: Range<u32>) -> Self {
        let held = AtomicU32::new(fresh.end - fresh.start);
        Depot {
            stock: Shared::new(Mutex::new(Stock { batches: Vec::new(), fresh })),
            counts: Shared::new(Counts { moves: AtomicU32::new(0), held }),
        }
    }

    /// Number of elements here.
    #[inline]
    pub(super) fn held(&self) -> u32 {
        self.counts.read().held.load(Relaxed)
    }

    pub(super) fn open(&self) -> Open<'_> {
        let stock = self.stock.write().lock();
        let counts = self.counts.write();
        counts.moves.store(counts.moves.load(Relaxed).wrapping_add(1), Relaxed);
        fence(Release);
        Open { stock, counts }
    }

    /// The result of `read`, repeated until no elements moved meanwhile; repetitions are rare and
    /// short.
    pub(super) fn while_nothing_moves<T>(&self, mut read: impl FnMut() -> T) -> T {
        let counts = self.counts.read();
        loop {
            let moves = counts.moves.load(Acquire);
            let result = read();
            fence(Acquire);
            if moves.is_multiple_of(2) && counts.moves.load(Relaxed) == moves {
                return result;
            }
            yield_now();
        }
    }
}

impl Open<'_> {
    /// A batch; of elements that were never used, at most `count`.
    pub(super) fn cut(&mut self, count: u32) -> Option<Batch> {
        let stock = &mut *self.stock;
        let fresh = || cut_range(&mut stock.fresh, count).map(Batch::Fresh);
        let batch = stock.batches.pop().or_else(fresh)?;
        self.counts.held.store(self.counts.held.load(Relaxed) - batch.len(), Relaxed);
        Some(batch)
    }

    pub(super) fn add(&mut self, batch: Batch) {
        self.counts.held.store(self.counts.held.load(Relaxed) + batch.len(), Relaxed);
        self.stock.batches.push(batch);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let moves = &self.counts.moves;
        moves.store(moves.load(Relaxed).wrapping_add(1), Release);
    }
}
