//! Ways into a trie by a key's first bits: a table tells which node a walk from the top would reach
//! after these bits, so that the walk begins there.
//!
//! For each value of these bits it has two links: to the topmost node whose prefix has at least
//! this many bits and begins with this value (all other such prefixes are below it), and to the
//! node of the longest shorter prefix. A change of one prefix changes one of the two and no more,
//! so a look-up that reads both while a writer is at work finds the state before or after the
//! change.

use towpath_bpf::Errno;

use super::trie::{Link, Prefix, Trie};
use crate::sync::{AtomicU64, Ordering};

/// The table.
pub(super) struct Jumps {
    bits: u32,
    ways: Box<[Way]>,
}

/// Knowledge about keys with the same first bits.
pub(super) struct Way {
    below: AtomicU64,
    shorter: AtomicU64,
}

impl Way {
    /// The node to begin at.
    #[inline(always)]
    pub(super) fn below(&self) -> Link {
        Link(self.below.load(Ordering::Acquire))
    }

    /// The longest prefix if nothing is found from there on.
    #[inline(always)]
    pub(super) fn shorter(&self) -> Link {
        Link(self.shorter.load(Ordering::Acquire))
    }
}

impl Jumps {
    /// A table for at most `entries` prefixes of at most `bits_max` bits: a way for every four
    /// prefixes, and none for a few prefixes.
    pub(super) fn new(entries: u32, bits_max: u32) -> Result<Jumps, Errno> {
        let bits = entries.checked_ilog2().unwrap_or(0).saturating_sub(2).min(BITS_MAX);
        let bits = if bits < BITS_MIN || bits >= bits_max { 0 } else { bits };
        let count = if bits == 0 { 0 } else { 1usize << bits };
        let mut ways = Vec::new();
        ways.try_reserve_exact(count).map_err(|_full| Errno::ENOMEM)?;
        let nowhere = || AtomicU64::new(Link::NOWHERE.0);
        ways.resize_with(count, || Way { below: nowhere(), shorter: nowhere() });
        Ok(Jumps { bits, ways: ways.into_boxed_slice() })
    }

    /// The way of a key, whose first word is in network order; `None` if there is no table, or the
    /// key has fewer bits.
    #[inline(always)]
    pub(super) fn way(&self, word: u64, length: u32) -> Option<&Way> {
        // Without a table, the number is beyond its end.
        let number = word.unbounded_shr(64 - self.bits) as usize;
        self.ways.get(number).filter(|_| length >= self.bits)
    }
}

impl Trie {
    /// Brings ways up to date behind a prefix that was added, replaced or removed. Nodes that went
    /// may be given back afterwards, not before.
    pub(super) fn lead_ways(&self, key: Prefix<'_>) {
        let Jumps { bits, ways } = &self.jumps;
        if ways.is_empty() {
            return;
        }
        let first = (key.first_word() >> (64 - bits)) as usize;
        if key.length >= *bits {
            let below = self.first_below_bits(Prefix { length: *bits, ..key });
            return ways[first].below.store(below.0, Ordering::Release);
        }
        let longest = self.longest_link(key);
        let below = 1usize << (bits - key.length);
        let first = first & !(below - 1);
        for way in &ways[first..first + below] {
            let shorter = way.shorter();
            // Links to longer prefixes stay.
            if shorter == Link::NOWHERE || shorter.bits() <= key.length {
                way.shorter.store(longest.0, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
impl Trie {
    /// Compares all ways with walks from the top.
    pub(super) fn check_ways(&self) {
        let bits = self.jumps.bits;
        for (number, way) in (0u64..).zip(&self.jumps.ways) {
            let data = (number << (64 - bits)).to_be_bytes();
            let key = |length| Prefix {
                length,
                data: &data[..data.len().min(self.bits_max() as usize / 8)],
            };
            assert_eq!(way.below(), self.first_below_bits(key(bits)), "{number:#x} of {bits} bits");
            assert_eq!(
                way.shorter(),
                self.longest_link(key(bits - 1)),
                "{number:#x} of {bits} bits"
            );
        }
    }
}

/// 65,536 ways are 1 MiB.
const BITS_MAX: u32 = 16;
/// With fewer a walk from the top is as short.
const BITS_MIN: u32 = 4;
