//! HASH, PERCPU_HASH, LRU_HASH and LRU_PERCPU_HASH.
//!
//! Kernel counterpart: `kernel/bpf/hashtab.c`. Updating a key puts a new element in the place of
//! the old one, so that a reader sees either value whole; per-CPU values are written in place.
//! Elements come from a [`pool`] that is somewhat larger than `max_entries`, because replaced ones
//! wait for readers. An insertion, a deletion or an eviction usually writes no memory that all
//! workers write.

mod chain;
mod depot;
mod hasher;
mod lru;
pub(crate) mod pool;
mod shard;
mod table;
#[cfg(not(loom))]
pub(crate) mod view_unsafe;

use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;

use towpath_bpf::{Errno, MapDef};

use crate::access::{Access, Span};
use crate::fields::Fields;
use crate::flags::{BPF_EXIST, BPF_F_LOCK, BPF_F_NO_PREALLOC, BPF_F_ZERO_SEED, BPF_NOEXIST};
use crate::layout::Layout;
use crate::memory::{LINE_BYTES, PAGE_BYTES, POPULATED_BYTES_MAX, Region};
use crate::qsbr::Domain;
use crate::store::{Element, Store, USER, Visit};
use crate::sync::Ordering;
use crate::user::Value;

pub(crate) use hasher::{Hasher, jhash};
use pool::{HEADER_BYTES, NIL, Pool, header};
use table::{Bucket, Table};
#[cfg(not(loom))]
use view_unsafe::HashView;

/// A hash table of any of the four kinds.
#[doc(alias = "BPF_MAP_TYPE_HASH")]
#[doc(alias = "BPF_MAP_TYPE_PERCPU_HASH")]
#[doc(alias = "BPF_MAP_TYPE_LRU_HASH")]
#[doc(alias = "BPF_MAP_TYPE_LRU_PERCPU_HASH")]
pub(crate) struct HashTable {
    table: Table,
    max_entries: u32,
    value_size: usize,
    /// A full table evicts elements.
    lru: Option<lru::Clock>,
    /// Values of per-CPU kinds; otherwise they follow the key.
    percpu: Option<PerCpu>,
    fields: Fields,
    /// Without `BPF_F_NO_PREALLOC`.
    is_preallocated: bool,
    access: Access,
    #[cfg(not(loom))]
    view: Option<HashView>,
}

/// A row of values for each CPU, by element index.
struct PerCpu {
    region: Region,
    cpus: usize,
    cpu_stride: usize,
    stride: usize,
}

impl HashTable {
    pub(crate) fn new(def: &MapDef, domain: &Arc<Domain>, fields: Fields) -> Result<Self, Errno> {
        let hasher = Hasher::new(def.flags & BPF_F_ZERO_SEED != 0);
        Self::with_hasher(def, domain, fields, hasher)
    }

    pub(crate) fn with_hasher(
        def: &MapDef,
        domain: &Arc<Domain>,
        fields: Fields,
        hasher: Hasher,
    ) -> Result<Self, Errno> {
        let is_percpu = def.kind.is_percpu();
        let is_lru = def.kind.spec().lru;
        let (key_size, value_size) = (def.key_size as usize, def.value_size as usize);
        let value_bytes = if is_percpu { 0 } else { value_size.next_multiple_of(8) };
        let element_bytes = HEADER_BYTES + key_size.next_multiple_of(8) + value_bytes;
        let reserve = reserve_elements(def.max_entries, element_bytes, domain.workers());
        let workers = domain.workers();
        let domain = domain.clone();
        let table = Table::new(def.max_entries, reserve, key_size, value_bytes, hasher, domain)?;
        let percpu = is_percpu.then(|| PerCpu::new(table.pool.elements, value_size, workers));
        let percpu = percpu.transpose()?;
        if def.flags & BPF_F_NO_PREALLOC == 0 {
            table.buckets.populate(0, POPULATED_BYTES_MAX);
            table.pool.region.populate(0, POPULATED_BYTES_MAX);
            percpu.iter().for_each(PerCpu::populate);
        }
        Ok(HashTable {
            #[cfg(not(loom))]
            view: view(&table, percpu.as_ref()),
            lru: is_lru.then(|| lru::Clock::new(&table.pool)),
            table,
            max_entries: def.max_entries,
            value_size,
            percpu,
            fields,
            is_preallocated: def.flags & BPF_F_NO_PREALLOC == 0,
            access: Access::of_programs(def.flags),
        })
    }

    pub(crate) fn layout(&self) -> Layout {
        let pool = &self.table.pool;
        let percpu = self.percpu.as_ref();
        Layout::Hash {
            buckets: self.table.buckets.base(),
            mask: self.table.mask,
            elements: pool.region.base(),
            stride: pool.stride as u64,
            value_offset: self.table.value_offset(0) as u64,
            percpu: percpu
                .map(|rows| (rows.region.base(), rows.stride as u64, rows.cpu_stride as u64)),
            seed: self.table.hasher.seed(),
            reuses: pool.reuses_address(),
        }
    }

    /// The view for look-ups by words; `None` if the hash is the kernel's.
    #[cfg(not(loom))]
    pub(crate) fn view(&self) -> Option<&HashView> {
        self.view.as_ref()
    }

    /// Number of buckets.
    pub(crate) fn buckets(&self) -> u32 {
        self.table.mask + 1
    }

    /// The keys in a bucket, the newest first; none past the last bucket.
    pub(crate) fn bucket_keys(&self, bucket: u32) -> Vec<Vec<u8>> {
        if bucket > self.table.mask {
            return Vec::new();
        }
        self.table.pool.unless_reused(|| {
            let mut keys = Vec::new();
            let mut element = self.table.first(bucket);
            // The bound matters only when elements are reused under the walk.
            while element != NIL && keys.len() < self.table.pool.elements as usize {
                let mut key = vec![0; self.table.key_size];
                self.table.read_key(element, &mut key);
                keys.push(key);
                element = self.table.next(element);
            }
            keys
        })
    }

    /// As [`Store::next_key`], into the caller's buffer; `false` if there is no further key.
    pub(crate) fn next_key_into(&self, key: Option<&[u8]>, next: &mut [u8]) -> bool {
        self.table.next_key(key, next)
    }

    fn hash(&self, key: &[u8]) -> u32 {
        self.table.hasher.hash(key)
    }

    /// Region and offset of an element's value.
    #[inline]
    fn place(&self, element: u32, cpu: usize) -> (&Region, usize) {
        match &self.percpu {
            None => (&self.table.pool.region, self.table.value_offset(element)),
            Some(rows) => (&rows.region, rows.offset(element, cpu)),
        }
    }

    /// Regions and offsets of all values of an element.
    fn places(&self, element: u32) -> impl Iterator<Item = (&Region, usize)> {
        let cpus = self.percpu.as_ref().map_or(1, |rows| rows.cpus);
        (0..cpus).map(move |cpu| self.place(element, cpu))
    }

    fn mark_used(&self, element: u32) {
        let state = self.table.pool.header(element, header::STATE);
        // Only the first use of a round writes, so that hot elements stay shared between cores.
        if state.load(Ordering::Relaxed) == header::LINKED {
            let _ = state.compare_exchange(
                header::LINKED,
                header::LINKED | header::REFERENCED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    fn lookup_on(&self, cpu: usize, key: &[u8]) -> Option<NonNull<u8>> {
        let element = self.table.find(self.hash(key), key);
        if element == NIL {
            return None;
        }
        if self.lru.is_some() {
            self.mark_used(element);
        }
        let (region, offset) = self.place(element, cpu);
        Some(region.at(offset))
    }

    /// The first word of a key's value, whole; not for per-CPU kinds.
    pub(crate) fn word(&self, key: &[u8]) -> Option<u64> {
        let hash = self.hash(key);
        self.table.pool.unless_reused(|| self.first_word(self.table.find(hash, key)))
    }

    /// The same for a key that is a number ([`Hasher::Number`]).
    #[inline]
    pub(crate) fn word_of_number(&self, key: u32) -> Option<u64> {
        self.table.pool.unless_reused(|| self.first_word(self.table.walk_to_number(key)))
    }

    #[inline]
    fn first_word(&self, element: u32) -> Option<u64> {
        let offset = self.table.value_offset(element);
        (element != NIL).then(|| self.table.pool.region.word(offset).load(Ordering::Acquire))
    }

    /// `htab_map_update_elem` and its siblings, for one value or (from user space) all CPUs'.
    fn insert(&self, worker: usize, key: &[u8], new: New<'_>, flags: u64) -> Result<(), Errno> {
        // Per-CPU and LRU kinds know no BPF_F_LOCK.
        let may_lock = self.percpu.is_none() && self.lru.is_none() && self.fields.has_lock();
        let known = if may_lock { flags & !BPF_F_LOCK } else { flags };
        if known > BPF_EXIST {
            return Err(Errno::EINVAL);
        }
        let hash = self.hash(key);
        let mut place = Place { pool: &self.table.pool, worker, evicted: None };
        if self.lru.is_some() && flags != BPF_EXIST {
            place.evicted = self.place_ahead(hash, key, worker);
        }
        loop {
            let bucket = self.table.lock(hash);
            let old = bucket.find(hash, key);
            check_flags(old, flags)?;
            if old != NIL && (self.percpu.is_some() || flags & BPF_F_LOCK != 0) {
                self.overwrite(old, new, flags);
                return Ok(());
            }
            if old != NIL {
                return self.replace(bucket, old, (hash, key), new, worker);
            }
            if let Some((element, state)) = place.take() {
                self.fill(element, new);
                bucket.link(element, hash, key, state);
                return Ok(());
            }
            drop(bucket);
            let clock = self.lru.as_ref().ok_or(Errno::E2BIG)?;
            place.evicted = clock.evict(self, worker);
        }
    }

    /// Takes a place for a new key before its bucket is locked, as the kernel does
    /// (`prealloc_lru_pop`). Meanwhile the bucket comes from the core that wrote it last.
    fn place_ahead(&self, hash: u32, key: &[u8], worker: usize) -> Option<(u32, u32)> {
        self.table.prefetch(hash);
        if self.table.find(hash, key) != NIL {
            return None;
        }
        let clock = self.lru.as_ref()?;
        let near = self.table.pool.take_place_near(worker);
        near.map(|near| (near, 0)).or_else(|| clock.evict(self, worker))
    }

    /// Replaces an element of a locked bucket by a new one.
    fn replace(
        &self,
        bucket: Bucket<'_>,
        old: u32,
        (hash, key): (u32, &[u8]),
        new: New<'_>,
        worker: usize,
    ) -> Result<(), Errno> {
        let put = |element| {
            self.fill(element, new);
            // A replaced element of an LRU map was used just now (`bpf_lru_node_set_ref`).
            bucket.link(element, hash, key, header::REFERENCED);
        };
        let replace = |element| {
            put(element);
            let unlinked = bucket.unlink(old);
            debug_assert!(unlinked);
        };
        // Special fields are given up between the two, which may take long.
        let is_simple = self.fields.list().is_empty();
        if is_simple && self.table.pool.exchange(worker, old, replace) {
            return Ok(());
        }
        put(self.table.pool.take(worker).ok_or(Errno::ENOMEM)?);
        self.discard(bucket, old, worker);
        Ok(())
    }

    /// Writes a value over one that is in the table.
    fn overwrite(&self, element: u32, new: New<'_>, flags: u64) {
        if self.lru.is_some() {
            self.mark_used(element);
        }
        new.each(self, element, |region, offset, value| {
            if flags & BPF_F_LOCK != 0 {
                self.fields.copy_in_locked(region, offset, value);
            } else {
                self.fields.copy_in(region, offset, value);
                self.fields.release(region, offset);
            }
        });
    }

    /// Writes the value of an element that is not visible yet; CPUs without a value get zeroes
    /// (`pcpu_init_value`).
    fn fill(&self, element: u32, new: New<'_>) {
        for (region, offset) in self.places(element) {
            self.fields.release(region, offset);
            self.fields.clear(region, offset);
            if self.percpu.is_some() {
                region.clear(offset, self.value_size);
            }
        }
        new.each(self, element, |region, offset, value| {
            self.fields.copy_in(region, offset, value);
        });
    }

    /// Unlinks an element of a locked bucket, unlocks it, and gives the element back.
    fn discard(&self, bucket: Bucket<'_>, element: u32, worker: usize) {
        let unlinked = self.unlink(bucket, element);
        debug_assert!(unlinked);
        self.table.pool.retire(worker, element);
    }

    /// Unlinks an element of a locked bucket, if it is in it, and unlocks it.
    fn unlink(&self, bucket: Bucket<'_>, element: u32) -> bool {
        let unlinked = bucket.unlink(element);
        drop(bucket);
        if unlinked {
            for (region, offset) in self.places(element) {
                self.fields.release(region, offset);
            }
        }
        unlinked
    }

    /// Removes an element; returns the result of `look` on it before.
    fn remove<T>(
        &self,
        worker: usize,
        key: &[u8],
        look: impl FnOnce(u32) -> T,
    ) -> Result<T, Errno> {
        let hash = self.hash(key);
        let bucket = self.table.lock(hash);
        let element = bucket.find(hash, key);
        if element == NIL {
            return Err(Errno::ENOENT);
        }
        let seen = look(element);
        self.discard(bucket, element, worker);
        Ok(seen)
    }

    fn copy_out(&self, element: u32, locked: bool) -> Value {
        let one = |(region, offset)| self.fields.copy_out(region, offset, self.value_size, locked);
        if self.percpu.is_some() {
            Value::PerCpu(self.places(element).map(one).collect())
        } else {
            Value::One(one(self.place(element, 0)))
        }
    }
}

impl Store for HashTable {
    fn spans(&self) -> Vec<Span> {
        let pool = &self.table.pool;
        let key = (HEADER_BYTES as u64, self.table.key_size as u64);
        let value_size = self.value_size as u64;
        let in_element = if self.percpu.is_some() { 0 } else { value_size };
        let elements = Span {
            base: pool.region.base(),
            bytes: u64::from(pool.elements) * pool.stride as u64,
            stride: pool.stride as u64,
            key,
            value: (self.table.value_offset(0) as u64, in_element),
            access: self.access,
        };
        let rows = self.percpu.iter().map(|rows| {
            let bytes = (rows.cpu_stride * rows.cpus) as u64;
            let (base, stride) = (rows.region.base(), rows.stride as u64);
            Span::values(base, bytes, stride, value_size, self.access)
        });
        std::iter::once(elements).chain(rows).collect()
    }

    fn lookup(&self, worker: usize, key: &[u8]) -> Option<NonNull<u8>> {
        self.lookup_on(worker, key)
    }

    fn lookup_percpu(&self, key: &[u8], cpu: u32) -> Option<NonNull<u8>> {
        let rows = self.percpu.as_ref()?;
        if cpu as usize >= rows.cpus {
            return None;
        }
        self.lookup_on(cpu as usize, key)
    }

    fn update(&self, worker: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        self.insert(worker, key, New::Of(worker, value), flags)
    }

    fn delete(&self, worker: usize, key: &[u8]) -> Result<(), Errno> {
        self.remove(worker, key, |_element| ())
    }

    fn for_each(&self, worker: usize, visit: &mut Visit<'_>) -> Result<u64, Errno> {
        let mut key = vec![0; self.table.key_size];
        let mut visited = 0;
        for bucket in 0..=self.table.mask {
            let mut element = self.table.first(bucket);
            let mut steps = 0;
            // The bound matters only when elements are reused under the walk.
            while element != NIL && steps < self.table.pool.elements {
                // As in the kernel, the next element is determined before the callback, which may
                // delete.
                let next = self.table.next(element);
                self.table.read_key(element, &mut key);
                let key_address = self.table.pool.region.at(self.table.key_offset(element));
                let (region, offset) = self.place(element, worker);
                visited += 1;
                let value = region.at(offset);
                let shown = Element { key: &key, key_address: Some(key_address), value };
                if let ControlFlow::Break(()) = visit(shown) {
                    return Ok(visited);
                }
                (element, steps) = (next, steps + 1);
            }
        }
        Ok(visited)
    }

    fn element_at(&self, address: u64, visit: &mut dyn FnMut(Element<'_>)) {
        let pool = &self.table.pool;
        let offset = address.wrapping_sub(pool.region.base());
        let (index, within) = (offset / pool.stride as u64, offset % pool.stride as u64);
        let is_key = within < self.table.value_offset(0) as u64;
        if self.percpu.is_some() || is_key || index >= u64::from(pool.elements) {
            return;
        }
        let element = index as u32;
        if pool.header(element, header::STATE).load(Ordering::Acquire) & header::LINKED == 0 {
            return;
        }
        let mut key = vec![0; self.table.key_size];
        self.table.read_key(element, &mut key);
        let key_address = Some(pool.region.at(self.table.key_offset(element)));
        let value = pool.region.at(self.table.value_offset(element));
        visit(Element { key: &key, key_address, value });
    }

    fn read(&self, key: &[u8], locked: bool) -> Result<Value, Errno> {
        let hash = self.hash(key);
        // Reuse under the copy would bring another key's value.
        self.table.pool.unless_reused(|| {
            let element = self.table.find(hash, key);
            if element == NIL { Err(Errno::ENOENT) } else { Ok(self.copy_out(element, locked)) }
        })
    }

    fn write(&self, key: &[u8], value: &Value, flags: u64) -> Result<(), Errno> {
        match value {
            Value::One(bytes) => self.insert(USER, key, New::Of(0, bytes), flags),
            Value::PerCpu(all) => self.insert(USER, key, New::All(all), flags),
        }
    }

    fn take(&self, key: &[u8], locked: bool) -> Result<Value, Errno> {
        self.remove(USER, key, |element| self.copy_out(element, locked))
    }

    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        let mut next = vec![0; self.table.key_size];
        if self.table.next_key(key, &mut next) { Ok(next) } else { Err(Errno::ENOENT) }
    }

    fn preallocated(&self) -> Vec<&Region> {
        if !self.is_preallocated {
            return Vec::new();
        }
        let values = self.percpu.iter().map(|percpu| &percpu.region);
        [&self.table.buckets, &self.table.pool.region].into_iter().chain(values).collect()
    }

    fn count(&self) -> Option<u64> {
        // A replacement may hold both for a moment.
        Some(self.table.pool.taken().min(self.max_entries).into())
    }
}

impl PerCpu {
    fn new(elements: u32, value_size: usize, cpus: usize) -> Result<Self, Errno> {
        let stride = value_size.next_multiple_of(8);
        let row = elements as usize * stride;
        // A row is whole elements and whole pages, or at least whole cache lines, so that one span
        // covers all rows, and no CPU writes another one's.
        let unit = stride * PAGE_BYTES;
        let lines = stride * LINE_BYTES / 8;
        let cpu_stride = row.next_multiple_of(if row < unit { lines } else { unit });
        let bytes = (cpu_stride as u64).checked_mul(cpus as u64).ok_or(Errno::ENOMEM)?;
        Ok(PerCpu { region: Region::new(bytes)?.in_huge_pages(), cpus, cpu_stride, stride })
    }

    fn populate(&self) {
        let len = self.cpu_stride.min(POPULATED_BYTES_MAX / self.cpus);
        (0..self.cpus).for_each(|cpu| self.region.populate(cpu * self.cpu_stride, len));
    }

    fn offset(&self, element: u32, cpu: usize) -> usize {
        cpu * self.cpu_stride + element as usize * self.stride
    }
}

#[cfg(not(loom))]
fn view(table: &Table, percpu: Option<&PerCpu>) -> Option<HashView> {
    let elements = table.pool.region.base();
    let stride = u32::try_from(table.pool.stride).ok()?;
    let (values, value_stride) = match percpu {
        Some(rows) => (rows.region.base(), u32::try_from(rows.stride).ok()?),
        None => (elements + table.value_offset(0) as u64, stride),
    };
    Some(HashView {
        buckets: table.buckets.base(),
        elements,
        values,
        reuses: table.pool.reuses_address(),
        seed: table.hasher.seed()?,
        mask: table.mask,
        stride,
        value_stride,
        key_size: table.key_size as u32,
    })
}

/// The new value of an update.
#[derive(Clone, Copy)]
enum New<'a> {
    /// The value of one CPU (of the only one, if values aren't per CPU).
    Of(usize, &'a [u8]),
    /// A value for each CPU.
    All(&'a [Vec<u8>]),
}

impl New<'_> {
    fn each(self, map: &HashTable, element: u32, mut store: impl FnMut(&Region, usize, &[u8])) {
        match self {
            New::Of(cpu, value) => {
                let (region, offset) = map.place(element, cpu);
                store(region, offset, value);
            }
            New::All(values) => {
                for ((region, offset), value) in map.places(element).zip(values) {
                    store(region, offset, value);
                }
            }
        }
    }
}

/// `check_flags` of the kernel's hash table.
fn check_flags(old: u32, flags: u64) -> Result<(), Errno> {
    match flags & !BPF_F_LOCK {
        BPF_NOEXIST if old != NIL => Err(Errno::EEXIST),
        BPF_EXIST if old == NIL => Err(Errno::ENOENT),
        _ => Ok(()),
    }
}

/// A place for a new key, before it is the key's; given back if it isn't needed.
struct Place<'a> {
    pool: &'a Pool,
    worker: usize,
    /// The place of an evicted element, and the state for its new entry.
    evicted: Option<(u32, u32)>,
}

impl Place<'_> {
    /// With the state; `None` when the table is full.
    fn take(&mut self) -> Option<(u32, u32)> {
        let free = || self.pool.take_place(self.worker).map(|element| (element, 0));
        self.evicted.take().or_else(free)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some((element, _state)) = self.evicted.take() {
            self.pool.give_back(self.worker, element);
        }
    }
}

/// Reserve of each worker beyond `max_entries`, for elements that wait for readers: as many as some
/// bursts replace, but not more than the table has, and not much memory for big values; always
/// enough for every user thread to hold one.
fn reserve_elements(max_entries: u32, element_bytes: usize, workers: usize) -> u32 {
    const BURSTS: usize = 192;
    const BYTES_MAX: usize = 8 << 20;
    const LEAST: usize = 8;
    let shards = workers + 1;
    let wanted = (max_entries as usize).min(BURSTS * shards);
    let reserve = wanted.min(BYTES_MAX / element_bytes) / shards;
    reserve.max(LEAST) as u32
}

#[cfg(all(test, not(loom)))]
mod many;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
