//! Objects that programs allocate: memory with a count of references, until the last one is given
//! up.
//!
//! Kernel counterparts: `bpf_obj_new`, `bpf_refcount_acquire`, `bpf_obj_drop` and what frees the
//! special fields of map values (`bpf_obj_free_fields`). References that live in memory (a kptr, a
//! place in a list or tree) are noted here as (place, object), so that giving up a map value or an
//! object gives up all it holds, without following links that a program's bug could have bent. An
//! object's memory outlives its last reference until every worker has been quiescent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towpath_maps::Domain;
use towpath_maps::fields::{Field, FieldKind, ReleaseField};

use crate::memory::Block;
use crate::timers::Timers;

/// All objects of the programs of one object file.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    store: Mutex<Store>,
}

#[derive(Debug, Default)]
struct Store {
    by_addr: BTreeMap<u64, Object>,
    /// References in memory: the field that holds one, and the object.
    held: BTreeSet<(u64, u64)>,
    /// Memory of objects that went, for new ones.
    spare: Vec<Block>,
    /// Where the object begins that was asked for last, and its size; nothing if that is 0.
    last: (u64, u64),
    /// Objects without references, and the readers they wait for.
    dead: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct Object {
    block: Block,
    /// 0 once the last reference is gone: the memory is still there, and soon not.
    references: u32,
    /// Bytes from one CPU's copy to the next; 0 for an ordinary object.
    cpu_stride: u64,
}

impl Objects {
    /// A new, zeroed object with one reference, once or for each CPU; `None` when there is no room
    /// for more.
    pub(crate) fn allocate(&self, bytes: usize, cpus: Option<usize>) -> Option<u64> {
        let stride = bytes.next_multiple_of(8);
        let mut store = self.lock();
        if bytes > OBJECT_BYTES_MAX || store.by_addr.len() >= OBJECTS_MAX {
            return None;
        }
        let block = store.block(stride.checked_mul(cpus.unwrap_or(1))?);
        let cpu_stride = if cpus.is_some() { stride as u64 } else { 0 };
        let addr = block.addr();
        store.by_addr.insert(addr, Object { block, references: 1, cpu_stride });
        Some(addr)
    }

    /// One more reference to the object at `addr`; false when it has none left.
    pub(crate) fn acquire(&self, addr: u64) -> bool {
        match self.lock().by_addr.get_mut(&addr) {
            Some(object) if object.references > 0 => {
                object.references += 1;
                true
            }
            _ => false,
        }
    }

    /// Whether `len` bytes at `addr` lie in one object.
    pub(crate) fn owns(&self, addr: u64, len: u64) -> bool {
        let store = self.lock();
        let before = store.by_addr.range(..=addr).next_back();
        before.is_some_and(|(start, object)| addr + len <= start + object.block.len() as u64)
    }

    /// The copy of a per-CPU object.
    pub(crate) fn percpu(&self, addr: u64, cpu: u64) -> Option<u64> {
        let store = self.lock();
        let object = store.by_addr.get(&addr).filter(|object| object.cpu_stride > 0)?;
        let offset = cpu * object.cpu_stride;
        (offset < object.block.len() as u64).then_some(addr + offset)
    }

    /// A reference moves into memory: `addr` (an object, or a node inside one) now hangs at
    /// `place`.
    pub(crate) fn hang(&self, place: u64, addr: u64) {
        let mut store = self.lock();
        if let Some(object) = store.containing(addr) {
            store.held.insert((place, object));
        }
    }

    /// The reference at `place` moves back to the program.
    pub(crate) fn take_down(&self, place: u64, addr: u64) {
        let mut store = self.lock();
        if let Some(object) = store.containing(addr) {
            store.held.remove(&(place, object));
        }
    }

    /// Gives up a reference to the object at, or around, `addr`; with the last one the object goes,
    /// and what it holds.
    pub(crate) fn release(&self, addr: u64, domain: &Domain) {
        let mut store = self.lock();
        if let Some(object) = store.containing(addr) {
            store.release(object, domain);
        }
    }

    /// Gives up everything that hangs in `len` bytes of memory at `place`.
    pub(crate) fn release_held(&self, place: u64, len: u64, domain: &Domain) {
        let mut store = self.lock();
        for object in store.take_held(place, len) {
            store.release(object, domain);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Zeroed memory; most programs allocate objects of one size.
    fn block(&mut self, len: usize) -> Block {
        match self.spare.pop() {
            Some(mut block) if block.len() == len => {
                block.bytes_mut().fill(0);
                block
            }
            _ => Block::new(len),
        }
    }

    /// The object that an address lies in: a node names its object so.
    fn containing(&mut self, addr: u64) -> Option<u64> {
        // Often the one of the last question.
        let (start, len) = self.last;
        if addr.wrapping_sub(start) < len {
            return Some(start);
        }
        if let Some(object) = self.by_addr.get(&addr) {
            self.last = (addr, object.block.len() as u64);
            return Some(addr);
        }
        let (start, object) = self.by_addr.range(..=addr).next_back()?;
        let len = object.block.len() as u64;
        if addr - start >= len {
            return None;
        }
        self.last = (*start, len);
        Some(*start)
    }

    /// Gives up a reference to an object. Objects can hold others to any depth: a work list, no
    /// recursion.
    fn release(&mut self, object: u64, domain: &Domain) {
        let (mut next, mut work) = (Some(object), Vec::new());
        self.free_dead(domain);
        while let Some(addr) = next {
            if let Some(object) = self.by_addr.get_mut(&addr) {
                let len = object.block.len() as u64;
                object.references = object.references.saturating_sub(1);
                if object.references == 0 {
                    work.extend(self.take_held(addr, len));
                    self.dead.push_back((domain.tag(), addr));
                }
            }
            next = work.pop();
        }
    }

    /// Now and then frees objects that no reader can still see.
    fn free_dead(&mut self, domain: &Domain) {
        if !self.dead.len().is_multiple_of(DEAD_BATCH) {
            return;
        }
        domain.advance();
        // Tags only grow: behind one that readers have not passed there is none they have.
        let mut passed = None;
        while let Some(&(tag, addr)) = self.dead.front()
            && (passed == Some(tag) || domain.passed(tag))
        {
            passed = Some(tag);
            self.dead.pop_front();
            self.last = (0, 0);
            if let Some(object) = self.by_addr.remove(&addr)
                && self.spare.len() < SPARE_MAX
            {
                self.spare.push(object.block);
            }
        }
    }

    fn take_held(&mut self, place: u64, len: u64) -> Vec<u64> {
        let range = (place, 0)..(place.saturating_add(len), 0);
        if self.held.is_empty() || self.held.range(range.clone()).next().is_none() {
            return Vec::new();
        }
        let held: Vec<(u64, u64)> = self.held.range(range).copied().collect();
        held.iter().for_each(|entry| {
            self.held.remove(entry);
        });
        held.into_iter().map(|(_, object)| object).collect()
    }
}

/// Takes over what map values hold when they go.
pub(crate) struct Releaser {
    pub(crate) objects: Arc<Objects>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) domain: Arc<Domain>,
}

impl ReleaseField for Releaser {
    fn release(&self, field: &Field, address: NonNull<u8>, _content: u64) {
        let place = address.as_ptr() as u64;
        match field.kind {
            FieldKind::Timer | FieldKind::Workqueue | FieldKind::TaskWork => {
                self.timers.forget(place);
            }
            _ => self.objects.release_held(place, u64::from(field.size), &self.domain),
        }
    }
}

impl fmt::Debug for Releaser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Releaser")
    }
}

/// Live objects of one object file's programs.
const OBJECTS_MAX: usize = 1 << 20;
/// Objects that go before readers are asked about.
const DEAD_BATCH: usize = 32;
/// Blocks kept for new objects.
const SPARE_MAX: usize = 1024;
/// Largest object (`bpf_mem_alloc` serves up to a page).
const OBJECT_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_object_holds_goes_with_it() {
        let objects = Arc::new(Objects::default());
        let domain = Domain::new(1);
        let [outer, inner] = [64, 64].map(|bytes| objects.allocate(bytes, None).expect("room"));
        objects.hang(outer + 8, inner);
        assert!(objects.acquire(inner), "a second reference, the program's");
        objects.release(outer, &domain);
        domain.quiesce(0);
        domain.quiesce(0);
        assert!(objects.owns(inner, 64), "the program still has one");
        objects.release(inner + 16, &domain);
        assert!(!objects.acquire(inner));
    }
}
