//! Buckets and chains: readers walk without a lock, writers lock one bucket.
//!
//! A chain is a list of element indices. A new element is complete before its index is published
//! with release order; an unlinked one keeps its `NEXT`, so a reader on it still reaches the end of
//! the chain. It is written again only when no reader can be on it, or after `Pool::reuses`
//! changed.

use std::sync::Arc;

use towpath_bpf::Errno;

use crate::fields::take;
use crate::hash::hasher::Hasher;
use crate::hash::pool::{HEADER_BYTES, NIL, Pool, header};
use crate::memory::Region;
use crate::qsbr::Domain;
use crate::sync::{AtomicU32, Ordering};

/// Bytes of a bucket: the index of the first element, then the lock word.
pub(crate) const BUCKET_BYTES: usize = 8;

/// Keys of one size, found by hash.
pub(crate) struct Table {
    /// `(head, lock)` pairs.
    pub(crate) buckets: Region,
    /// Number of buckets, a power of two, minus one.
    pub(crate) mask: u32,
    pub(crate) hasher: Hasher,
    pub(crate) pool: Pool,
    /// Bytes of a key.
    pub(crate) key_size: usize,
}

/// A locked bucket. Unlocks when dropped.
pub(crate) struct Bucket<'a> {
    table: &'a Table,
    head: &'a AtomicU32,
    lock: &'a AtomicU32,
}

impl Table {
    /// A table for `entries` keys, with `value_bytes` bytes after each, and `reserve` further
    /// elements for each worker.
    pub(crate) fn new(
        entries: u32,
        reserve: u32,
        key_size: usize,
        value_bytes: usize,
        hasher: Hasher,
        domain: Arc<Domain>,
    ) -> Result<Self, Errno> {
        let buckets = entries.checked_next_power_of_two().ok_or(Errno::E2BIG)?;
        let stride = HEADER_BYTES + key_size.next_multiple_of(8) + value_bytes;
        let region = Region::new(u64::from(buckets) * BUCKET_BYTES as u64)?.in_huge_pages();
        let pool = Pool::new(entries, reserve, stride, domain)?;
        Ok(Table { buckets: region, mask: buckets - 1, hasher, pool, key_size })
    }

    /// The element of a key, or [`NIL`]. Lock-free.
    #[inline]
    pub(crate) fn find(&self, hash: u32, key: &[u8]) -> u32 {
        self.pool.unless_reused(|| self.walk(self.head(hash & self.mask), hash, key))
    }

    /// Locks the bucket of a hash.
    pub(crate) fn lock(&self, hash: u32) -> Bucket<'_> {
        let at = (hash & self.mask) as usize * BUCKET_BYTES;
        let (head, lock) = (self.buckets.half(at), self.buckets.half(at + 4));
        take(lock);
        Bucket { table: self, head, lock }
    }

    /// Prefetches the bucket of a hash, which is about to be locked.
    pub(crate) fn prefetch(&self, hash: u32) {
        self.buckets.prefetch_to_write((hash & self.mask) as usize * BUCKET_BYTES);
    }

    /// Prefetches the first element of the bucket of a hash.
    pub(crate) fn prefetch_first(&self, hash: u32) {
        let first = self.first(hash & self.mask);
        if first != NIL {
            self.pool.region.prefetch(self.pool.offset(first));
        }
    }

    /// The first element of a bucket.
    pub(crate) fn first(&self, bucket: u32) -> u32 {
        decode(self.head(bucket).load(Ordering::Acquire))
    }

    /// The element after `element` in its bucket.
    pub(crate) fn next(&self, element: u32) -> u32 {
        decode(self.pool.header(element, header::NEXT).load(Ordering::Acquire))
    }

    /// Copies the key of an element.
    pub(crate) fn read_key(&self, element: u32, out: &mut [u8]) {
        self.pool.region.read(self.pool.offset(element) + HEADER_BYTES, out);
    }

    /// Offset of an element's key in the pool's region.
    #[inline]
    pub(crate) fn key_offset(&self, element: u32) -> usize {
        self.pool.offset(element) + HEADER_BYTES
    }

    /// Offset of the bytes that follow an element's key.
    #[inline]
    pub(crate) fn value_offset(&self, element: u32) -> usize {
        self.key_offset(element) + self.key_size.next_multiple_of(8)
    }

    /// The element after `key` in the order of buckets, or the first one when `key` is `None` or
    /// not there; its key goes to `out`. `false` when there is none (`htab_map_get_next_key`).
    pub(crate) fn next_key(&self, key: Option<&[u8]>, out: &mut [u8]) -> bool {
        self.pool.unless_reused(|| {
            let found = self.element_after(key);
            if found != NIL {
                self.read_key(found, out);
            }
            found != NIL
        })
    }

    fn element_after(&self, key: Option<&[u8]>) -> u32 {
        let hash_of = |key| (self.hasher.hash(key), key);
        let mut bucket = 0;
        if let Some((hash, key)) = key.map(hash_of) {
            let element = self.walk(self.head(hash & self.mask), hash, key);
            if element != NIL {
                let next = self.next(element);
                if next != NIL {
                    return next;
                }
                bucket = u64::from(hash & self.mask) + 1;
            }
        }
        let buckets = bucket..=u64::from(self.mask);
        buckets.map(|at| self.first(at as u32)).find(|&first| first != NIL).unwrap_or(NIL)
    }

    /// The element of a key that is a number ([`Hasher::Number`]), or [`NIL`]: no other key has its
    /// hash. The walk may have gone astray where elements were reused meanwhile.
    #[inline]
    pub(crate) fn walk_to_number(&self, key: u32) -> u32 {
        debug_assert_eq!(self.hasher, Hasher::Number, "the hash is the key");
        let mut element = decode(self.head(key & self.mask).load(Ordering::Acquire));
        while element != NIL {
            if self.pool.header(element, header::HASH).load(Ordering::Relaxed) == key {
                break;
            }
            element = self.next(element);
        }
        element
    }

    #[inline]
    fn head(&self, bucket: u32) -> &AtomicU32 {
        self.buckets.half(bucket as usize * BUCKET_BYTES)
    }

    #[inline]
    fn walk(&self, head: &AtomicU32, hash: u32, key: &[u8]) -> u32 {
        let mut element = decode(head.load(Ordering::Acquire));
        while element != NIL {
            let at = self.pool.offset(element);
            let same = self.pool.region.half(at + header::HASH).load(Ordering::Relaxed) == hash
                && self.pool.region.equals(at + HEADER_BYTES, key);
            if same {
                break;
            }
            element = decode(self.pool.region.half(at + header::NEXT).load(Ordering::Acquire));
        }
        element
    }
}

impl Bucket<'_> {
    /// The element of a key, or [`NIL`].
    pub(crate) fn find(&self, hash: u32, key: &[u8]) -> u32 {
        self.table.walk(self.head, hash, key)
    }

    /// Publishes a complete element as the first of the chain.
    pub(crate) fn link(&self, element: u32, hash: u32, key: &[u8], state: u32) {
        let pool = &self.table.pool;
        let at = pool.offset(element);
        pool.region.half(at + header::HASH).store(hash, Ordering::Relaxed);
        pool.region.write_padded(at + HEADER_BYTES, key);
        let first = self.head.load(Ordering::Relaxed);
        pool.region.half(at + header::NEXT).store(first, Ordering::Relaxed);
        pool.header(element, header::STATE).store(header::LINKED | state, Ordering::Release);
        self.head.store(encode(element), Ordering::Release);
    }

    /// Takes an element out of the chain; `false` when it isn't in it.
    pub(crate) fn unlink(&self, element: u32) -> bool {
        let pool = &self.table.pool;
        let mut place = self.head;
        loop {
            let here = decode(place.load(Ordering::Relaxed));
            if here == NIL {
                return false;
            }
            let next = pool.header(here, header::NEXT);
            if here == element {
                place.store(next.load(Ordering::Relaxed), Ordering::Release);
                pool.header(element, header::STATE).store(0, Ordering::Release);
                return true;
            }
            place = next;
        }
    }
}

impl Drop for Bucket<'_> {
    fn drop(&mut self) {
        self.lock.store(0, Ordering::Release);
    }
}

/// In memory an index is stored plus one, so that zeroed memory is an empty table.
fn encode(element: u32) -> u32 {
    element.wrapping_add(1)
}

fn decode(stored: u32) -> u32 {
    stored.wrapping_sub(1)
}
