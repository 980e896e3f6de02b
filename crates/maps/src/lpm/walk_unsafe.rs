//! The walk of a look-up, for keys whose data are a few words (addresses, and what goes with them).
//!
//! It goes down by the key's bits alone and compares once, at the end: the nodes it passed are
//! prefixes of the one it arrived at, so as many of them match as are no longer than what that one
//! and the key have in common. Each step waits only for the link before it, and no offset is
//! checked: all links were written by the trie itself, and lead to nodes of its pool.

#![expect(unsafe_code, reason = "follows links without checking them")]

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use super::trie::{CHILDREN, DATA, Link, NIL, Trie};

/// Most words of data that a key may have here.
pub(super) const WORDS_MAX: usize = 5;

/// The address of the nodes.
#[derive(Clone, Copy)]
struct Nodes {
    /// Base of the nodes, to which a link, in words of 8 bytes, is added.
    base: u64,
}

/// The links that a walk went through, the topmost first: one for each bit, at most.
struct Path {
    links: [MaybeUninit<Link>; WORDS_MAX * 64],
    len: usize,
}

impl Trie {
    /// The node of the longest prefix of a key's first `length` bits, or [`NIL`]. The words are in
    /// network order, filled up with zeroes; there are as many as the trie's data have, or more.
    #[inline]
    pub(super) fn walk_words<const WORDS: usize>(&self, key: [u64; WORDS], length: u32) -> u32 {
        let nodes = Nodes { base: self.pool.region.base() - 8 };
        if let Some(way) = self.jumps.way(key[0], length) {
            // SAFETY: as below.
            let found = unsafe { nodes.longest(way.below(), key, length.min(self.bits_max())) };
            return if found == NIL { way.shorter().node() } else { found };
        }
        let link = Link(self.root.load(Ordering::Acquire));
        // SAFETY: our own links and our own pool; data are no shorter than the key.
        unsafe { nodes.longest(link, key, length.min(self.bits_max())) }
    }
}

impl Nodes {
    /// # Safety
    ///
    /// `link` and all links of the nodes lead to nodes of this pool, which is alive; their data
    /// have `length` bits or more.
    #[inline]
    unsafe fn longest<const WORDS: usize>(self, link: Link, key: [u64; WORDS], length: u32) -> u32 {
        // A key that does not begin as all prefixes do is in none: no need to go down. SAFETY: the
        // caller's promise, here and below.
        if link.place() != 0 && unsafe { shared(self.address(link), key, length) } < link.bits() {
            return NIL;
        }
        let mut path = Path::new();
        // SAFETY: as above.
        let last = unsafe { self.descend(link, key, length, &mut path) };
        // If the last node is not as long as the key, the walk ended at a node that is longer.
        let deepest = if last.bits() == length { Some(last) } else { path.pop() };
        let Some(deepest) = deepest else { return NIL };
        // SAFETY: as above; the link leads to a node.
        let shared = unsafe { shared(self.address(deepest), key, length) };
        let mut link = deepest;
        while link.bits() > shared || link.is_intermediate() {
            let Some(above) = path.pop() else { return NIL };
            link = above;
        }
        link.node()
    }

    /// Goes down by the key's bits as long as nodes are shorter than the key. Returns the link to
    /// the first that isn't, or [`Link::NOWHERE`].
    ///
    /// # Safety
    ///
    /// As [`Nodes::longest`].
    #[inline]
    unsafe fn descend<const WORDS: usize>(
        self,
        mut link: Link,
        key: [u64; WORDS],
        length: u32,
        path: &mut Path,
    ) -> Link {
        for (at, word) in key.into_iter().enumerate() {
            let past = length.min(at as u32 * 64 + 64);
            while link.bits() < past {
                if !path.push(link) {
                    // Nodes that were reused under the walk may lead in circles.
                    return Link::NOWHERE;
                }
                let side = word.wrapping_shl(link.bits()) >> 63;
                // SAFETY: the caller's promise: a node, with a link on either side.
                link = unsafe { link_at(self.address(link) + CHILDREN[0] as u64 + side * 8) };
            }
        }
        link
    }

    #[inline(always)]
    fn address(self, link: Link) -> u64 {
        self.base + link.place() * 8
    }
}

impl Path {
    #[inline(always)]
    fn new() -> Self {
        Path { links: [const { MaybeUninit::uninit() }; WORDS_MAX * 64], len: 0 }
    }

    /// Adds a link; `false` if there is no room.
    #[inline(always)]
    fn push(&mut self, link: Link) -> bool {
        let Some(place) = self.links.get_mut(self.len) else { return false };
        place.write(link);
        self.len += 1;
        true
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<Link> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: `push` wrote all below `len`, and let it grow no further than there are places.
        Some(unsafe { self.links.get_unchecked(self.len).assume_init() })
    }
}

const _: () = assert!(CHILDREN[1] - CHILDREN[0] == 8, "as `descend` finds them");

/// Bits that a node's data and the key's first `length` have in common.
///
/// # Safety
///
/// A node with data of `length` bits or more is at the address.
#[inline]
unsafe fn shared<const WORDS: usize>(node: u64, key: [u64; WORDS], length: u32) -> u32 {
    for (at, word) in key.into_iter().enumerate() {
        let before = at as u32 * 64;
        if before >= length {
            break;
        }
        let address = node + (DATA + at * 8) as u64;
        // SAFETY: the caller's promise; data are whole words, and only accessed atomically.
        let own = unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Relaxed);
        let differ = word ^ u64::from_be(own);
        if differ != 0 {
            return before + differ.leading_zeros();
        }
    }
    length
}

/// # Safety
///
/// A child's link is at the address as long as the call takes.
#[inline]
unsafe fn link_at(address: u64) -> Link {
    // SAFETY: the caller's promise; links are only accessed atomically.
    Link(unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Acquire))
}
