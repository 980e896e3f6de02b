//! The walk of a lookup, for keys of one or two words (IPv4 and IPv6 addresses, a few bytes more).
//!
//! The same as [`Trie::walk`](super::trie::Trie) without checks of offsets: all links were written
//! by the trie itself, and lead to nodes of its pool.

#![expect(unsafe_code, reason = "follows links without checking them")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::trie::{CHILDREN, INTERMEDIATE, LENGTH, NIL, Prefix, Trie};
use crate::hash::pool::HEADER_BYTES;

/// Where the nodes are.
#[derive(Clone, Copy)]
struct Nodes {
    /// Address of node 0.
    base: u64,
    /// Bytes from node to node.
    stride: u64,
}

impl Trie {
    /// The node of the longest prefix of a key whose data are `WORDS` words, or [`NIL`].
    #[inline]
    pub(super) fn walk_words<const WORDS: usize>(&self, key: Prefix<'_>) -> u32 {
        let words = std::array::from_fn(|at| word_at(key.data, at * 8));
        let nodes = Nodes { base: self.pool.region.base(), stride: self.pool.stride as u64 };
        let link = self.root.load(Ordering::Acquire);
        // SAFETY: our own links and our own pool; the caller chose `WORDS` by the size of its data.
        unsafe { nodes.longest::<WORDS>(link, words, key.length) }
    }
}

/// Eight bytes in network order, filled up with zeroes: read as wide as programs write them, since
/// what is read wider, or copied first, waits for the writes.
#[inline(always)]
fn word_at(data: &[u8], at: usize) -> u64 {
    let rest = &data[at.min(data.len())..];
    if let Some(word) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*word);
    }
    let (high, rest) = match rest.split_first_chunk::<4>() {
        Some((high, rest)) => (u64::from(u32::from_be_bytes(*high)) << 32, rest),
        None => return bytes_at(rest, 56),
    };
    high | bytes_at(rest, 24)
}

/// Up to seven bytes, the first one shifted by `shift`.
#[inline]
fn bytes_at(bytes: &[u8], shift: u32) -> u64 {
    let shifts = (0..=shift).rev().step_by(8);
    bytes.iter().zip(shifts).fold(0, |word, (&byte, shift)| word | u64::from(byte) << shift)
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
        mut link: u32,
        key: [u64; WORDS],
        key_length: u32,
    ) -> u32 {
        let mut found = NIL;
        while link != 0 {
            let node = self.base + u64::from(link - 1) * self.stride;
            // SAFETY: the caller's promise, here and below.
            let length = unsafe { half(node + LENGTH as u64) }.load(Ordering::Acquire);
            let bits = length & !INTERMEDIATE;
            // SAFETY: as above.
            if bits > key_length || unsafe { shared(node, key) } < bits {
                break;
            }
            if length & INTERMEDIATE == 0 {
                found = link - 1;
            }
            if bits == key_length {
                break;
            }
            // The way on is what all else waits for: no table, and no key in memory.
            let word = if bits & 64 == 0 { key[0] } else { key[WORDS - 1] };
            let side = (word << (bits % 64)) >> 63;
            // SAFETY: as above.
            link = unsafe { half(node + side * CHILD_BYTES) }.load(Ordering::Acquire);
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
        let address = node + (HEADER_BYTES + at * 8) as u64;
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
/// An aligned 32-bit word that is only accessed atomically is at the address as long as the result
/// is used.
#[inline]
unsafe fn half<'a>(address: u64) -> &'a AtomicU32 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
}
