//! Which way frames go: for some of the bursts that leave by a port, where their frames came from.
//!
//! How many frames leave is known exactly ([`crate::counters::PortCounters`]); who sent them is
//! worth no count of each frame. The watch has each worker look at [`LOOKED_AT`] bursts each time,
//! fifty times a second, so that each port's frames are divided among those they came from as those
//! of these bursts were. Where fewer leave, all of them are looked at.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

/// Frames that were seen, by the ifindex of the port where they arrived (0: they came from a
/// socket, or were made here), and that of the port that was to send them.
pub type Flows = BTreeMap<(u32, u32), u64>;

/// What one worker saw.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct FlowCounts {
    /// Bursts that are still to be looked at.
    left: AtomicU32,
    seen: Mutex<Flows>,
}

impl FlowCounts {
    /// Has the next bursts looked at.
    pub(crate) fn ask(&self) {
        self.left.store(LOOKED_AT, Relaxed);
    }

    /// Whether this burst is to be looked at: for the worker alone.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        let left = self.left.load(Relaxed);
        if left > 0 {
            // One that is asked for meanwhile may be missed.
            self.left.store(left - 1, Relaxed);
        }
        left > 0
    }

    /// Adds a burst to what was seen.
    #[cold]
    pub(crate) fn note(&self, from: impl Iterator<Item = u32>, to: u32) {
        let mut seen = self.seen.lock();
        let mut from = from.peekable();
        while let Some(first) = from.next() {
            let mut count = 1;
            while from.next_if_eq(&first).is_some() {
                count += 1;
            }
            // Whoever looks at differences finds that it began again.
            if seen.len() >= FLOWS_MAX && !seen.contains_key(&(first, to)) {
                seen.clear();
            }
            *seen.entry((first, to)).or_default() += count;
        }
    }

    /// Adds what was seen to that of others.
    pub(crate) fn add_to(&self, all: &mut Flows) {
        for (way, count) in &*self.seen.lock() {
            *all.entry(*way).or_default() += count;
        }
    }
}

/// Bursts of a worker that are looked at each time.
const LOOKED_AT: u32 = 32;
/// Ways that are remembered.
const FLOWS_MAX: usize = 4096;
const _: () = assert!(LOOKED_AT as usize * crate::BURST <= FLOWS_MAX, "one look finds room");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_by_where_they_came_from_and_memory_is_bounded() {
        let counts = FlowCounts::default();
        assert!(!counts.is_asked());
        counts.ask();
        assert_eq!((0..100).filter(|_| counts.is_asked()).count(), LOOKED_AT as usize);
        counts.note([1, 1, 2, 1, 0].into_iter(), 7);
        counts.note([1].into_iter(), 8);
        let all = |counts: &FlowCounts| {
            let mut all = Flows::new();
            counts.add_to(&mut all);
            all
        };
        let expected = [((0, 7), 1), ((1, 7), 3), ((1, 8), 1), ((2, 7), 1)];
        assert_eq!(all(&counts), Flows::from(expected));
        counts.note(0..10 * FLOWS_MAX as u32, 9);
        assert!(all(&counts).len() <= FLOWS_MAX);
    }
}
