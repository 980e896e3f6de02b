//! Flow sampling: the ingress ports of frames in some of the bursts that leave by a port.
//!
//! Egress frames are counted exactly ([`crate::counters::PortCounters`]); their ingress ports are
//! not worth a counter per frame. Instead, the watch makes each worker inspect [`LOOKED_AT`]
//! bursts, 50 times a second, and a port's egress frames are attributed to ingress ports in the
//! proportion of this sample. If fewer bursts leave, all of them are inspected.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

/// Number of sampled frames by ingress ifindex (0: from a socket, or made by the engine) and egress
/// ifindex.
pub type Flows = BTreeMap<(u32, u32), u64>;

/// Samples of one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct FlowCounts {
    /// Number of bursts still to be inspected.
    left: AtomicU32,
    seen: Mutex<Flows>,
}

impl FlowCounts {
    /// Requests inspection of the next [`LOOKED_AT`] bursts.
    pub(crate) fn ask(&self) {
        self.left.store(LOOKED_AT, Relaxed);
    }

    /// Whether this burst is to be inspected; called only by the worker.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        let left = self.left.load(Relaxed);
        if left > 0 {
            // A concurrent request may be lost.
            self.left.store(left - 1, Relaxed);
        }
        left > 0
    }

    /// Adds a burst to the samples: the ingress ifindex of each frame, and the egress ifindex.
    #[cold]
    pub(crate) fn note(&self, from: impl Iterator<Item = u32>, to: u32) {
        let mut seen = self.seen.lock();
        let mut from = from.peekable();
        while let Some(first) = from.next() {
            let mut count = 1;
            while from.next_if_eq(&first).is_some() {
                count += 1;
            }
            // Readers of differences must expect that counts start again at 0.
            if seen.len() >= FLOWS_MAX && !seen.contains_key(&(first, to)) {
                seen.clear();
            }
            *seen.entry((first, to)).or_default() += count;
        }
    }

    /// Adds this worker's samples to `all`.
    pub(crate) fn add_to(&self, all: &mut Flows) {
        for (way, count) in &*self.seen.lock() {
            *all.entry(*way).or_default() += count;
        }
    }
}

/// Bursts of a worker that are inspected per request.
const LOOKED_AT: u32 = 32;
/// Most pairs of ports that are kept.
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
