//! The trie itself: nodes in a pool, linked by index.

use std::ptr::NonNull;
use std::sync::Arc;

use towpath_bpf::Errno;

use crate::access::{Access, Span};
use crate::hash::pool::{HEADER_BYTES, Pool};
use crate::memory::REGION_BYTES_MAX;
use crate::qsbr::Domain;
use crate::sync::{AtomicU32, Ordering};

pub(crate) use crate::hash::pool::NIL;

/// Where things are in a node; the pool uses the word at 8, the prefix's data follow at 16.
pub(super) const CHILDREN: [usize; 2] = [0, 4];
/// Length of the prefix, and [`INTERMEDIATE`].
pub(super) const LENGTH: usize = 12;
/// The node has no value: it only holds two subtries together.
pub(super) const INTERMEDIATE: u32 = 1 << 31;

/// A prefix: so many bits of the data.
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
}

/// Nodes and the way in.
pub(crate) struct Trie {
    /// Index of the topmost node, plus one; 0 when empty.
    pub(super) root: AtomicU32,
    pub(super) pool: Pool,
    data_size: usize,
}

/// Where a prefix belongs: what is found by walking down as far as it agrees.
pub(crate) struct Place<'a> {
    /// The link that leads to `node`.
    slot: &'a AtomicU32,
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
        let stride = HEADER_BYTES + data_size.next_multiple_of(8) + value_size.next_multiple_of(8);
        // Each prefix may need an intermediate node, and replaced nodes wait for readers. A trie
        // declared far larger than memory gets what can be addressed, and ENOMEM beyond.
        let wanted = u64::from(entries) * 2 + u64::from(entries / 16).max(64);
        let addressable = (REGION_BYTES_MAX / stride as u64).min(u64::from(NIL - 1));
        let pool = Pool::new(wanted.min(addressable) as u32, stride, domain)?;
        Ok(Trie { root: AtomicU32::new(0), pool, data_size })
    }

    /// Most bits a prefix may have.
    pub(crate) fn bits_max(&self) -> u32 {
        self.data_size as u32 * 8
    }

    /// The node of the longest prefix of `key`, or [`NIL`]. Lock-free.
    pub(crate) fn longest(&self, key: Prefix<'_>) -> u32 {
        match self.data_size.div_ceil(8) {
            1 => self.pool.unless_reused(|| self.walk_words::<1>(key)),
            2 => self.pool.unless_reused(|| self.walk_words::<2>(key)),
            _ => self.pool.unless_reused(|| self.walk(key)),
        }
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

    /// Where a prefix is, or belongs.
    pub(crate) fn place_of(&self, key: Prefix<'_>) -> Place<'_> {
        let mut slot = &self.root;
        loop {
            let node = follow(slot);
            if node == NIL {
                return Place { slot, node, shared: 0, is_exact: false };
            }
            let length = self.length(node);
            let bits = length & !INTERMEDIATE;
            let shared = self.shared(node, bits, key);
            if shared < bits || bits == key.length {
                let is_exact = shared == bits && length == key.length;
                return Place { slot, node, shared, is_exact };
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
        place: &Place<'_>,
    ) -> Result<(), Errno> {
        let new = self.new_node(worker, key.length, key.data)?;
        self.pool.region.write_padded(self.value_offset(new), value);
        let Place { slot, node: old, shared, .. } = *place;
        if old == NIL {
            lead(slot, new);
            return Ok(());
        }
        let old_bits = self.length(old) & !INTERMEDIATE;
        if shared == old_bits && shared == key.length {
            for side in [0, 1] {
                lead(self.child(new, side), follow(self.child(old, side)));
            }
            lead(slot, new);
            self.pool.retire(worker, old);
        } else if shared == key.length {
            // The new prefix is shorter: the old node goes below it.
            lead(self.child(new, self.bit_of(old, shared)), old);
            lead(slot, new);
        } else {
            let Ok(fork) = self.new_node(worker, shared | INTERMEDIATE, key.data) else {
                self.pool.give_back(worker, new);
                return Err(Errno::ENOMEM);
            };
            let side = key.bit(shared);
            lead(self.child(fork, side), new);
            lead(self.child(fork, 1 - side), old);
            lead(slot, fork);
        }
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
                self.unlink(worker, node, slot, above);
                return true;
            }
            above = Some((node, slot));
            slot = self.child(node, key.bit(bits));
        }
    }

    /// Takes `node`, found at `slot` below `above`, out of the trie.
    fn unlink(&self, worker: usize, node: u32, slot: &AtomicU32, above: Option<(u32, &AtomicU32)>) {
        let children = [0, 1].map(|side| follow(self.child(node, side)));
        match (children, above) {
            ([zero, one], _) if zero != NIL && one != NIL => {
                // It must still hold its children together.
                let length = self.pool.header(node, LENGTH);
                length.fetch_or(INTERMEDIATE, Ordering::Release);
                return;
            }
            ([NIL, NIL], Some((parent, parent_slot)))
                if self.length(parent) & INTERMEDIATE != 0 =>
            {
                // A parent without a value has no purpose with one child: that takes its place.
                let side = usize::from(follow(self.child(parent, 0)) == node);
                lead(parent_slot, follow(self.child(parent, side)));
                self.pool.retire(worker, parent);
            }
            ([zero, one], _) => lead(slot, if zero == NIL { one } else { zero }),
        }
        self.pool.retire(worker, node);
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
        let node = self.pool.take(worker).ok_or(Errno::ENOMEM)?;
        for side in [0, 1] {
            lead(self.child(node, side), NIL);
        }
        self.pool.header(node, LENGTH).store(length, Ordering::Relaxed);
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
        self.pool.header(node, LENGTH).load(Ordering::Acquire)
    }

    fn child(&self, node: u32, side: usize) -> &AtomicU32 {
        self.pool.header(node, CHILDREN[side])
    }

    fn data_offset(&self, node: u32) -> usize {
        self.pool.offset(node) + HEADER_BYTES
    }

    fn value_offset(&self, node: u32) -> usize {
        self.data_offset(node) + self.data_size.next_multiple_of(8)
    }
}

/// The node a link leads to; links hold the index plus one.
fn follow(link: &AtomicU32) -> u32 {
    link.load(Ordering::Acquire).wrapping_sub(1)
}

fn lead(link: &AtomicU32, node: u32) {
    link.store(node.wrapping_add(1), Ordering::Release);
}
