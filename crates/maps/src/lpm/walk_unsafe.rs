//! The walk of a lookup, for keys of one or two words (IPv4 and IPv6 addresses, a few bytes more).
//!
//! The same as [`Trie::walk`](super::trie::Trie) without checks of offsets: all links were written
//! by the trie itself, and lead to nodes of its pool.

#![expect(unsafe_code, reason = "follows links without checking them")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::trie::{CHILDREN, DATA, INTERMEDIATE, Link, NIL, Trie};

/// Where the nodes are.
#[derive(Clone, Copy)]
struct Nodes {
    /// What a link's lower half, in words of 8 bytes, is added to.
    base: u64,
}

impl Trie {
    /// The node of the longest prefix of a key whose data are `WORDS` words, or [`NIL`].
    #[inline]
    pub(super) fn walk_words<const WORDS: usize>(&self, key: [u64; WORDS], length: u32) -> u32 {
        let nodes = Nodes { base: self.pool.region.base() - 8 };
        let link = Link(self.root.load(Ordering::Acquire));
        // SAFETY: our own links and our own pool; the caller chose `WORDS` by the size of its data.
        unsafe { nodes.longest(link, key, length) }
    }
}

impl Nodes {
    /// The node of the longest prefix of the key's first `length` bits, or [`NIL`]. The words are
    /// in network order, filled up with zeroes.
    ///
    /// # Safety
    ///
    /// `link` and all links of the nodes lead to nodes of this pool, which is alive; their data are
    /// `WORDS` words.
    #[inline]
    unsafe fn longest<const WORDS: usize>(
        self,
        mut link: Link,
        key: [u64; WORDS],
        key_length: u32,
    ) -> u32 {
        let mut found = NIL;
        while link != Link::NOWHERE {
            let node = self.base + (link.0 & u64::from(u32::MAX)) * 8;
            let bits = link.length() & !INTERMEDIATE;
            // SAFETY: the caller's promise, here and below.
            if bits > key_length || unsafe { shared(node, key) } < bits {
                break;
            }
            if link.length() & INTERMEDIATE == 0 {
                found = link.node();
            }
            if bits == key_length {
                break;
            }
            // The way on is what all else waits for: no table, and no key in memory.
            let word = if bits & 64 == 0 { key[0] } else { key[WORDS - 1] };
            let side = (word << (bits % 64)) >> 63;
            // SAFETY: as above.
            link = unsafe { link_at(node + side * CHILD_BYTES) };
        }
        found
    }
}

/// From one child's link to the other's; the first is where the node begins.
const CHILD_BYTES: u64 = (CHILDREN[1] - CHILDREN[0]) as u64;
const _: () = assert!(CHILDREN[0] == 0);

/// Bits that a node's data and the key have in common.
///
/// # Safety
///
/// A node with data of `WORDS` words is at the address.
#[inline]
unsafe fn shared<const WORDS: usize>(node: u64, key: [u64; WORDS]) -> u32 {
    for (at, word) in key.into_iter().enumerate() {
        let address = node + (DATA + at * 8) as u64;
        // SAFETY: the caller's promise; data are whole words, and only accessed atomically.
        let own = unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Relaxed);
        let differ = word ^ u64::from_be(own);
        if differ != 0 {
            return at as u32 * 64 + differ.leading_zeros();
        }
    }
    WORDS as u32 * 64
}

/// # Safety
///
/// A child's link is at the address as long as the call takes.
#[inline]
unsafe fn link_at(address: u64) -> Link {
    // SAFETY: the caller's promise; links are only accessed atomically.
    Link(unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Acquire))
}
