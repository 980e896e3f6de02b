//! Address ranges of compiled code, which a signal handler can search.
//!
//! A handler may take no lock and must not allocate, so ranges are pairs of atomics in blocks that
//! are added and never removed; the slot of a removed range is reused.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A set of ranges of addresses.
pub(crate) struct Ranges {
    places: [RangeSlot; PLACES],
    /// The next block, once it was needed.
    more: OnceLock<Box<Ranges>>,
}

struct RangeSlot {
    /// Start of the range; 0 for a free slot, 1 during a write.
    start: AtomicU64,
    end: AtomicU64,
}

/// Number of ranges of a block.
const PLACES: usize = 128;
const FREE: u64 = 0;
/// A slot that is being written; no code is at this address.
const TAKEN: u64 = 1;

impl Ranges {
    pub(crate) const fn new() -> Ranges {
        let places =
            [const { RangeSlot { start: AtomicU64::new(FREE), end: AtomicU64::new(0) } }; PLACES];
        Ranges { places, more: OnceLock::new() }
    }

    /// Adds `start..end`.
    pub(crate) fn add(&self, start: u64, end: u64) {
        let take = |place: &&RangeSlot| {
            let taken = Ordering::AcqRel;
            place.start.compare_exchange(FREE, TAKEN, taken, Ordering::Relaxed).is_ok()
        };
        match self.places.iter().find(take) {
            Some(place) => {
                place.end.store(end, Ordering::Release);
                place.start.store(start, Ordering::Release);
            }
            None => self.more.get_or_init(|| Box::new(Ranges::new())).add(start, end),
        }
    }

    /// Removes the range that begins at `start`.
    pub(crate) fn remove(&self, start: u64) {
        match self.places.iter().find(|place| place.start.load(Ordering::Acquire) == start) {
            Some(place) => place.start.store(FREE, Ordering::Release),
            None => {
                if let Some(more) = self.more.get() {
                    more.remove(start);
                }
            }
        }
    }

    /// Whether an address is in one of the ranges. Signal handlers may call it.
    pub(crate) fn contain(&self, address: u64) -> bool {
        let has = |place: &RangeSlot| {
            let start = place.start.load(Ordering::Acquire);
            start > TAKEN && start <= address && address < place.end.load(Ordering::Acquire)
        };
        let mut block = Some(self);
        while let Some(ranges) = block {
            if ranges.places.iter().any(has) {
                return true;
            }
            block = ranges.more.get().map(Box::as_ref);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_come_and_go() {
        let ranges = Ranges::new();
        let starts = (1..=3 * PLACES as u64).map(|number| number * 100);
        starts.clone().for_each(|start| ranges.add(start, start + 10));
        for start in starts.clone() {
            assert!(ranges.contain(start) && ranges.contain(start + 9));
            assert!(!ranges.contain(start - 1) && !ranges.contain(start + 10));
        }
        starts.clone().for_each(|start| ranges.remove(start));
        assert!(!starts.clone().any(|start| ranges.contain(start)));
        // Slots are reused: no further block.
        starts.for_each(|start| ranges.add(start, start + 1));
        let third = ranges.more.get().and_then(|more| more.more.get()).expect("a third block");
        assert!(third.more.get().is_none());
    }
}
