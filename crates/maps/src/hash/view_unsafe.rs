//! A view of a hash table for look-ups by compiled code: keys are words in registers.
//!
//! The same walk as [`Table::find`](super::table::Table::find) over the same memory, with
//! everything constant in one cache line and no offset checked: all indices in a chain were written
//! by the table itself.

#![expect(unsafe_code, reason = "follows links without checking them")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::hasher::seeded_words;
use super::pool::{HEADER_BYTES, header};
use super::table::BUCKET_BYTES;
use crate::memory::prefetch;

/// Most 64-bit words of a key that a look-up takes in registers.
pub const KEY_WORDS_MAX: usize = 6;

/// Data of one table for look-ups. It lies inside the table, so that a reference to it is one to
/// the memory it names.
#[repr(C, align(64))]
pub struct HashView {
    /// Address of the first bucket.
    pub(super) buckets: u64,
    /// Address of element 0.
    pub(super) elements: u64,
    /// Address of element 0's value, CPU 0's for per-CPU kinds.
    pub(super) values: u64,
    /// Address of [`Pool::reuses`](super::pool::Pool::reuses).
    pub(super) reuses: u64,
    /// Secrets of the hash.
    pub(super) seed: [u64; 2],
    /// Number of buckets minus one.
    pub(super) mask: u32,
    /// Bytes from element to element.
    pub(super) stride: u32,
    /// Bytes from value to value.
    pub(super) value_stride: u32,
    /// Bytes of a key.
    pub(super) key_size: u32,
}

impl HashView {
    /// `map_lookup_elem` for a key of `WORDS` words, the last one filled up with zeroes: address of
    /// the value (of CPU 0, for per-CPU kinds), or 0. `MARKS`: the table is an LRU one, and the
    /// element counts as used.
    #[inline(always)]
    pub fn lookup<const WORDS: usize, const MARKS: bool>(&self, key: [u64; WORDS]) -> u64 {
        let index = self.find(key);
        if index == NONE {
            return 0;
        }
        if MARKS {
            self.mark_used(index);
        }
        self.values + u64::from(index) * u64::from(self.value_stride)
    }

    /// Prefetches the bucket of a key, or (`ELEMENT`) the first element in it: the memory that
    /// [`HashView::lookup`] will access first. Returns 0.
    #[inline(always)]
    pub fn look_ahead<const WORDS: usize, const ELEMENT: bool>(&self, key: [u64; WORDS]) -> u64 {
        let hash = seeded_words(self.seed, self.key_size, key);
        let bucket = self.buckets + u64::from(hash & self.mask) * BUCKET_BYTES as u64;
        if !ELEMENT {
            prefetch(bucket);
            return 0;
        }
        // SAFETY: the mask keeps the bucket inside the buckets.
        let link = unsafe { word(bucket) }.load(Ordering::Relaxed);
        if link != 0 {
            let element = self.element(link - 1);
            prefetch(element);
            // Elements do not start at cache lines: the value may lie on the next.
            prefetch(element + u64::from(self.stride) - 1);
        }
        0
    }

    #[inline(always)]
    fn find<const WORDS: usize>(&self, key: [u64; WORDS]) -> u32 {
        let hash = seeded_words(self.seed, self.key_size, key);
        // SAFETY: the address of a word of the pool, which lives as long as `self`.
        let reuses = unsafe { AtomicU64::from_ptr(self.reuses as *mut u64) };
        loop {
            let before = reuses.load(Ordering::Acquire);
            let found = self.walk(hash, key);
            fence(Ordering::Acquire);
            if reuses.load(Ordering::Relaxed) == before {
                return found;
            }
        }
    }

    #[inline(always)]
    fn walk<const WORDS: usize>(&self, hash: u32, key: [u64; WORDS]) -> u32 {
        let bucket = self.buckets + u64::from(hash & self.mask) * BUCKET_BYTES as u64;
        // SAFETY: the mask keeps the bucket inside the buckets.
        let mut link = unsafe { word(bucket) }.load(Ordering::Acquire);
        while link != 0 {
            let element = self.element(link - 1);
            // SAFETY: links lead to elements of the pool, whose header and key are in its memory.
            let (here, next) =
                unsafe { (self.has_key(element, hash, key), word(element + header::NEXT as u64)) };
            if here {
                return link - 1;
            }
            link = next.load(Ordering::Acquire);
        }
        NONE
    }

    /// # Safety
    ///
    /// An element of the pool is at the address.
    #[inline(always)]
    unsafe fn has_key<const WORDS: usize>(
        &self,
        element: u64,
        hash: u32,
        key: [u64; WORDS],
    ) -> bool {
        // A long key is compared only if the hash agrees; two words are compared as fast as it.
        if WORDS > 2
            // SAFETY: the caller's promise.
            && unsafe { word(element + header::HASH as u64) }.load(Ordering::Relaxed) != hash
        {
            return false;
        }
        // Word by word: all of them at once would take registers that have to be saved first.
        key.into_iter().enumerate().all(|(at, wanted)| {
            let address = element + (HEADER_BYTES + at * 8) as u64;
            // SAFETY: the caller's promise; a key is whole words, filled up with zeroes.
            let stored = unsafe { AtomicU64::from_ptr(address as *mut u64) };
            stored.load(Ordering::Relaxed) == wanted
        })
    }

    #[inline(always)]
    fn element(&self, index: u32) -> u64 {
        self.elements + u64::from(index) * u64::from(self.stride)
    }

    #[inline(always)]
    fn mark_used(&self, index: u32) {
        // SAFETY: the index of an element of the pool.
        let state = unsafe { word(self.element(index) + header::STATE as u64) };
        // Only the first use of a round writes, so that hot elements stay shared between cores.
        if state.load(Ordering::Relaxed) == header::LINKED {
            let used = header::LINKED | header::REFERENCED;
            let (was, order) = (header::LINKED, Ordering::Relaxed);
            let _lost = state.compare_exchange(was, used, order, order);
        }
    }
}

/// The index of no element.
const NONE: u32 = u32::MAX;

/// # Safety
///
/// A 32-bit word at a multiple of 4, of memory that is only accessed atomically, is there as long
/// as the result is used.
#[inline(always)]
unsafe fn word<'a>(address: u64) -> &'a AtomicU32 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use towpath_bpf::MapDef;
    use towpath_bpf::program::MapType;

    use crate::map::{CreateOptions, Map};
    use crate::qsbr::Domain;
    use crate::testing::def;

    use super::KEY_WORDS_MAX;

    fn map(kind: MapType, key_size: u32) -> Arc<Map> {
        let def: MapDef = def(kind, key_size, 12, 64, 0);
        Map::create(&def, &CreateOptions::new(Domain::new(2))).unwrap()
    }

    fn agrees<const WORDS: usize>(map: &Map, key_size: usize) {
        let view = map.hash_view().unwrap();
        for number in 0..80u64 {
            let mut bytes = [0u8; KEY_WORDS_MAX * 8];
            for (at, byte) in bytes[..key_size].iter_mut().enumerate() {
                *byte = (number as u8).wrapping_mul(3).wrapping_add(at as u8 * (number as u8 & 1));
            }
            let key = &bytes[..key_size];
            let words: [u64; WORDS] = std::array::from_fn(|at| {
                u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap())
            });
            let known = map.lookup(0, key).map_or(0, |value| value.as_ptr() as u64);
            assert_eq!(view.lookup::<WORDS, false>(words), known);
            assert_eq!(view.lookup::<WORDS, true>(words), known);
            let _full = map.update(0, key, &[number as u8; 12], 0);
            let known = map.lookup(0, key).map_or(0, |value| value.as_ptr() as u64);
            assert_eq!(view.lookup::<WORDS, false>(words), known);
        }
    }

    #[test]
    fn words_find_what_bytes_find() {
        for kind in [MapType::Hash, MapType::LruHash, MapType::PercpuHash, MapType::LruPercpuHash] {
            for key_size in 1..=KEY_WORDS_MAX * 8 {
                let map = map(kind, key_size as u32);
                match key_size.div_ceil(8) {
                    1 => agrees::<1>(&map, key_size),
                    2 => agrees::<2>(&map, key_size),
                    3 => agrees::<3>(&map, key_size),
                    4 => agrees::<4>(&map, key_size),
                    5 => agrees::<5>(&map, key_size),
                    _ => agrees::<6>(&map, key_size),
                }
            }
        }
    }
}
