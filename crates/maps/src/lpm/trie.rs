//! The trie itself: nodes in a pool, identified by their offsets in it, in words of 8 bytes.
//!
//! A link also tells the length of the prefix it leads to. The direction of a look-up at a node
//! then depends on the link alone, not on the node's own memory, which halves the memory accesses
//! to wait for.

use std::ptr::NonNull;
use std::sync::Arc;

use towpath_bpf::Errno;

use crate::access::{Access, Span};
use crate::hash::pool::Pool;
use crate::memory::REGION_BYTES_MAX;
use crate::qsbr::Domain;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

use super::jump::Jumps;
pub(crate) use crate::hash::pool::NIL;

/// Offsets of the links to the two children of a node; the pool uses the half word at 8.
pub(super) const CHILDREN: [usize; 2] = [16, 24];
/// Length of the prefix, and [`INTERMEDIATE`].
pub(super) const LENGTH: usize = 12;
/// The node has no value: it only holds two subtries together.
pub(super) const INTERMEDIATE: u32 = 1 << 31;
/// The prefix's data; the value follows.
pub(super) const DATA: usize = 32;

/// The way to a node: above, where it is, plus one; below, what its [`LENGTH`] says, as far as the
/// way is led by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(pub(super) u64);

impl Link {
    /// To no node; longer than any prefix.
    pub(super) const NOWHERE: Link = Link((!INTERMEDIATE) as u64);

    /// To a node, by its number, with the [`LENGTH`] that it has.
    fn to(node: u32, length: u32) -> Self {
        Link((u64::from(node) + 1) << 32 | u64::from(length))
    }

    /// Bits of the node's prefix.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0 as u32 & !INTERMEDIATE
    }

    /// Whether the node has no value.
    #[inline(always)]
    pub(super) fn is_intermediate(self) -> bool {
        self.0 as u32 & INTERMEDIATE != 0
    }

    /// The place of the node, plus one; 0 for nowhere.
    #[inline(always)]
    pub(super) fn place(self) -> u64 {
        self.0 >> 32
    }

    /// The node, or [`NIL`].
    #[inline(always)]
    pub(super) fn node(self) -> u32 {
        (self.place() as u32).wrapping_sub(1)
    }
}

/// A prefix: the first `length` bits of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix<'a> {
    pub(crate) length: u32,
    pub(crate) data: &'a [u8],
}

impl Prefix<'_> {
    fn bit(self, index: u32) -> usize {
        let byte = self.data.get(index as usize / 8).copied().unwrap_or(0);
        usize::from(byte >> (7 - index % 8) & 1)
    }

    /// Its first 64 bits in network order, filled up with zeroes.
    pub(super) fn first_word(self) -> u64 {
        word_at(self.data, 0)
    }
}

/// Nodes and the way in.
pub(crate) struct Trie {
    /// The [`Link`] to the topmost node.
    pub(super) root: AtomicU64,
    pub(super) jumps: Jumps,
    pub(super) pool: Pool,
    data_size: usize,
}

/// The place of a prefix, found by walking down as far as it agrees.
pub(crate) struct TriePosition<'a> {
    /// The link that leads to `node`.
    slot: &'a AtomicU64,
    /// The node there, or [`NIL`].
    node: u32,
    /// Bits that `node` and the prefix share.
    shared: u32,
    /// `node` has exactly this prefix, and a value.
    pub(crate) is_exact: bool,
}

impl Trie {
    pub(crate) fn new(
        entries: u32,
        data_size: usize,
        value_size: usize,
        domain: Arc<Domain>,
    ) -> Result<Self, Errno> {
        let stride = DATA + data_size.next_multiple_of(8) + value_size.next_multiple_of(8);
        // Each prefix may need an intermediate node, and replaced nodes wait for readers. A trie
        // declared far larger than memory gets what can be addressed, and ENOMEM beyond.
        let wanted = u64::from(entries) * 2 + u64::from(entries / 16).max(64);
        let addressable = REGION_BYTES_MAX.min(u64::from(NIL - 1) * 8) / stride as u64;
        let pool = Pool::new(wanted.min(addressable) as u32, 0, stride, domain)?;
        let jumps = Jumps::new(entries, data_size as u32 * 8)?;
        Ok(Trie { root: AtomicU64::new(Link::NOWHERE.0), jumps, pool, data_size })
    }

    /// Most bits a prefix may have.
    pub(crate) fn bits_max(&self) -> u32 {
        self.data_size as u32 * 8
    }

    /// The node of the longest prefix of `key`, or [`NIL`]. Lock-free.
    pub(crate) fn longest(&self, key: Prefix<'_>) -> u32 {
        let word = |at: usize| word_at(key.data, at * 8);
        match self.data_size {
            0..=8 => self.longest_of([word(0)], key.length),
            9..=16 => self.longest_of([0, 1].map(word), key.length),
            17..=24 => self.longest_of([0, 1, 2].map(word), key.length),
            25..=32 => self.longest_of([0, 1, 2, 3].map(word), key.length),
            _ => self.pool.unless_reused(|| self.walk(key)),
        }
    }

    /// As [`Trie::longest`], for data of at most `WORDS` words: in network order, filled up with
    /// zeroes.
    #[inline]
    pub(crate) fn longest_of<const WORDS: usize>(&self, data: [u64; WORDS], length: u32) -> u32 {
        self.pool.unless_reused(|| self.walk_words(data, length))
    }

    /// See [`Trie::walk_words`] for the usual keys.
    fn walk(&self, key: Prefix<'_>) -> u32 {
        let mut found = NIL;
        let mut node = follow(&self.root);
        while node != NIL {
            let length = self.length(node);
            let bits = length & !INTERMEDIATE;
            if self.shared(node, bits, key) < bits {
                break;
            }
            if length & INTERMEDIATE == 0 {
                found = node;
            }
            if bits >= key.length {
                break;
            }
            node = follow(self.child(node, key.bit(bits)));
        }
        found
    }

    // --- Writers hold the map's lock ---

    /// The place where a prefix is, or belongs.
    pub(crate) fn place_of(&self, key: Prefix<'_>) -> TriePosition<'_> {
        let mut slot = &self.root;
        loop {
            let node = follow(slot);
            if node == NIL {
                return TriePosition { slot, node, shared: 0, is_exact: false };
            }
            let length = self.length(node);
            let bits = length & !INTERMEDIATE;
            let shared = self.shared(node, bits, key);
            if shared < bits || bits == key.length {
                let is_exact = shared == bits && length == key.length;
                return TriePosition { slot, node, shared, is_exact };
            }
            slot = self.child(node, key.bit(bits));
        }
    }

    /// Puts a prefix at its place, over what is there with the same bits.
    pub(crate) fn insert(
        &self,
        worker: usize,
        key: Prefix<'_>,
        value: &[u8],
        place: &TriePosition<'_>,
    ) -> Result<(), Errno> {
        let new = self.new_node(worker, key.length, key.data)?;
        self.pool.region.write_padded(self.value_offset(new), value);
        let TriePosition { slot, node: old, shared, .. } = *place;
        let old_bits = if old == NIL { 0 } else { self.length(old) & !INTERMEDIATE };
        let mut replaced = NIL;
        if old == NIL {
            lead(slot, self.link_to(new));
        } else if shared == old_bits && shared == key.length {
            for side in [0, 1] {
                lead(self.child(new, side), link_at(self.child(old, side)));
            }
            lead(slot, self.link_to(new));
            replaced = old;
        } else if shared == key.length {
            // The new prefix is shorter: the old node goes below it.
            lead(self.child(new, self.bit_of(old, shared)), self.link_to(old));
            lead(slot, self.link_to(new));
        } else {
            let Ok(fork) = self.new_node(worker, shared | INTERMEDIATE, key.data) else {
                self.pool.give_back(worker, self.element(new));
                return Err(Errno::ENOMEM);
            };
            let side = key.bit(shared);
            lead(self.child(fork, side), self.link_to(new));
            lead(self.child(fork, 1 - side), self.link_to(old));
            lead(slot, self.link_to(fork));
        }
        self.lead_ways(key);
        self.retire(worker, replaced);
        Ok(())
    }

    /// Removes a prefix; `false` when it isn't there.
    pub(crate) fn remove(&self, worker: usize, key: Prefix<'_>) -> bool {
        let (mut slot, mut above) = (&self.root, None);
        loop {
            let node = follow(slot);
            if node == NIL {
                return false;
            }
            let length = self.length(node);
            let bits = length & !INTERMEDIATE;
            if self.shared(node, bits, key) < bits || bits > key.length {
                return false;
            }
            if bits == key.length {
                if length & INTERMEDIATE != 0 {
                    return false;
                }
                let gone = self.unlink(node, slot, above);
                self.lead_ways(key);
                gone.into_iter().for_each(|node| self.retire(worker, node));
                return true;
            }
            above = Some((node, slot));
            slot = self.child(node, key.bit(bits));
        }
    }

    /// Takes `node`, found at `slot` below `above`, out of the trie; returns the nodes that are
    /// gone, or [`NIL`].
    fn unlink(&self, node: u32, slot: &AtomicU64, above: Option<(u32, &AtomicU64)>) -> [u32; 2] {
        let children = [0, 1].map(|side| link_at(self.child(node, side)));
        match (children, above) {
            ([zero, one], _) if zero != Link::NOWHERE && one != Link::NOWHERE => {
                // It must still hold its children together.
                self.length_field(node).fetch_or(INTERMEDIATE, Ordering::Release);
                lead(slot, self.link_to(node));
                [NIL, NIL]
            }
            ([Link::NOWHERE, Link::NOWHERE], Some((parent, parent_slot)))
                if self.length(parent) & INTERMEDIATE != 0 =>
            {
                // A parent without a value has no purpose with one child: that takes its place.
                let side = usize::from(follow(self.child(parent, 0)) == node);
                lead(parent_slot, link_at(self.child(parent, side)));
                [parent, node]
            }
            ([zero, one], _) => {
                lead(slot, if zero == Link::NOWHERE { one } else { zero });
                [node, NIL]
            }
        }
    }

    /// Gives back a node to which no link leads any more, if there is one.
    fn retire(&self, worker: usize, node: u32) {
        if node != NIL {
            self.pool.retire(worker, self.element(node));
        }
    }

    /// The way to the topmost node that has the key's bits, and maybe more behind them.
    pub(super) fn first_below_bits(&self, key: Prefix<'_>) -> Link {
        let mut link = link_at(&self.root);
        while link != Link::NOWHERE {
            let (node, bits) = (link.node(), link.bits().min(key.length));
            if self.shared(node, bits, key) < bits {
                break;
            }
            if bits == key.length {
                return link;
            }
            link = link_at(self.child(node, key.bit(bits)));
        }
        Link::NOWHERE
    }

    /// The way to the node of the key's longest prefix.
    pub(super) fn longest_link(&self, key: Prefix<'_>) -> Link {
        match self.walk(key) {
            NIL => Link::NOWHERE,
            node => self.link_to(node),
        }
    }

    /// The node after a prefix when children come before their parent, the 0 side first; the first
    /// of all when there is no such prefix (`trie_get_next_key`).
    pub(crate) fn after(&self, key: Option<Prefix<'_>>) -> u32 {
        let Some(mut path) = key.and_then(|key| self.path_to(key)) else {
            return self.first_below(follow(&self.root));
        };
        let mut node = path.pop().unwrap_or(NIL);
        while let Some(parent) = path.pop() {
            let one = follow(self.child(parent, 1));
            if follow(self.child(parent, 0)) == node && one != NIL {
                return self.first_below(one);
            }
            if self.length(parent) & INTERMEDIATE == 0 {
                return parent;
            }
            node = parent;
        }
        NIL
    }

    /// The nodes from the root to exactly this prefix.
    fn path_to(&self, key: Prefix<'_>) -> Option<Vec<u32>> {
        let mut path = Vec::new();
        let mut node = follow(&self.root);
        while node != NIL {
            let length = self.length(node);
            let bits = length & !INTERMEDIATE;
            path.push(node);
            if bits > key.length || self.shared(node, bits, key) < bits {
                return None;
            }
            if bits == key.length {
                return (length & INTERMEDIATE == 0).then_some(path);
            }
            node = follow(self.child(node, key.bit(bits)));
        }
        None
    }

    fn first_below(&self, mut node: u32) -> u32 {
        while node != NIL {
            let children = [0, 1].map(|side| follow(self.child(node, side)));
            match children {
                [NIL, NIL] => break,
                [NIL, one] => node = one,
                [zero, _] => node = zero,
            }
        }
        node
    }

    /// The key of a node: the length, then the data.
    pub(crate) fn key_of(&self, node: u32) -> Vec<u8> {
        let mut key = vec![0; 4 + self.data_size];
        let (length, data) = key.split_at_mut(4);
        length.copy_from_slice(&(self.length(node) & !INTERMEDIATE).to_ne_bytes());
        self.pool.region.read(self.data_offset(node), data);
        key
    }

    pub(crate) fn value_address(&self, node: u32) -> NonNull<u8> {
        self.pool.region.at(self.value_offset(node))
    }

    /// Copies the value of the longest prefix of `key`; `false` when there is none.
    pub(crate) fn read_longest(&self, key: Prefix<'_>, out: &mut [u8]) -> bool {
        self.pool.unless_reused(|| {
            let node = self.walk(key);
            if node != NIL {
                self.pool.region.read(self.value_offset(node), out);
            }
            node != NIL
        })
    }

    pub(crate) fn span(&self, value_size: usize, access: Access) -> Span {
        Span {
            base: self.pool.region.base(),
            bytes: u64::from(self.pool.elements) * self.pool.stride as u64,
            stride: self.pool.stride as u64,
            key: (0, 0),
            value: (self.value_offset(0) as u64, value_size as u64),
            access,
        }
    }

    fn new_node(&self, worker: usize, length: u32, data: &[u8]) -> Result<u32, Errno> {
        let element = self.pool.take(worker).ok_or(Errno::ENOMEM)?;
        let node = (self.pool.offset(element) / 8) as u32;
        for side in [0, 1] {
            lead(self.child(node, side), Link::NOWHERE);
        }
        self.length_field(node).store(length, Ordering::Relaxed);
        self.pool.region.write_padded(self.data_offset(node), data);
        Ok(node)
    }

    /// Bits that the first `bits` of a node and the key have in common.
    fn shared(&self, node: u32, bits: u32, key: Prefix<'_>) -> u32 {
        let limit = bits.min(key.length);
        let at = self.data_offset(node);
        for (step, part) in key.data.chunks(8).enumerate() {
            let before = step as u32 * 64;
            if before >= limit {
                break;
            }
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            let own = self.pool.region.word(at + step * 8).load(Ordering::Relaxed).to_ne_bytes();
            let differ = u64::from_be_bytes(word) ^ u64::from_be_bytes(own);
            if differ != 0 {
                return limit.min(before + differ.leading_zeros());
            }
        }
        limit
    }

    fn bit_of(&self, node: u32, index: u32) -> usize {
        let key = self.key_of(node);
        Prefix { length: self.bits_max(), data: &key[4..] }.bit(index)
    }

    fn length(&self, node: u32) -> u32 {
        self.length_field(node).load(Ordering::Acquire)
    }

    fn length_field(&self, node: u32) -> &AtomicU32 {
        self.pool.region.half(offset(node) + LENGTH)
    }

    fn child(&self, node: u32, side: usize) -> &AtomicU64 {
        self.pool.region.word(offset(node) + CHILDREN[side])
    }

    fn link_to(&self, node: u32) -> Link {
        Link::to(node, self.length(node))
    }

    /// The pool's number of a node.
    fn element(&self, node: u32) -> u32 {
        (offset(node) / self.pool.stride) as u32
    }

    fn data_offset(&self, node: u32) -> usize {
        offset(node) + DATA
    }

    fn value_offset(&self, node: u32) -> usize {
        self.data_offset(node) + self.data_size.next_multiple_of(8)
    }
}

/// Offset of a node in the pool's region, in bytes.
fn offset(node: u32) -> usize {
    node as usize * 8
}

fn link_at(slot: &AtomicU64) -> Link {
    Link(slot.load(Ordering::Acquire))
}

/// The node a link leads to.
fn follow(slot: &AtomicU64) -> u32 {
    link_at(slot).node()
}

fn lead(slot: &AtomicU64, link: Link) {
    slot.store(link.0, Ordering::Release);
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
