//! ARRAY_OF_MAPS and HASH_OF_MAPS: maps that programs find by key.
//!
//! Kernel counterpart: `kernel/bpf/map_in_map.c`. A slot holds the handle of a map, which a look-up
//! returns to the program. A map that was removed stays alive until no program can hold its handle;
//! handles that a program brings back are resolved through the same table, so a stale or made-up
//! one resolves to nothing.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};

use crate::array::next_index;
use crate::fields::Fields;
use crate::flags::BPF_ANY;
use crate::hash::HashTable;
use crate::layout::Layout;
use crate::map::Map;
use crate::memory::Region;
use crate::prog_array::number;
use crate::qsbr::Domain;
use crate::store::{Store, USER};
use crate::sync::{AtomicU64, Ordering};
use crate::user::Value;

/// A map of maps.
#[doc(alias = "BPF_MAP_TYPE_ARRAY_OF_MAPS")]
#[doc(alias = "BPF_MAP_TYPE_HASH_OF_MAPS")]
pub(crate) struct MapOfMaps {
    slots: Slots,
    template: MapDef,
    held: RwLock<HashMap<u64, Held>>,
    /// One change at a time.
    writer: Mutex<()>,
    domain: Arc<Domain>,
}

/// Handles by key; 0 is an empty slot.
enum Slots {
    Array { words: Region, entries: u32 },
    Hash(Box<HashTable>),
}

/// A map in at least one slot, or one that left.
struct Held {
    map: Arc<Map>,
    slots: usize,
    /// Tag of the moment when it left its last slot.
    left: u64,
}

impl MapOfMaps {
    pub(crate) fn new(def: &MapDef, domain: &Arc<Domain>) -> Result<Self, Errno> {
        let template = def.inner.as_deref().ok_or(Errno::EBADF)?.clone();
        let slots = if def.kind == MapType::ArrayOfMaps {
            let words = Region::new(u64::from(def.max_entries) * 8)?;
            Slots::Array { words, entries: def.max_entries }
        } else {
            let def = MapDef { value_size: 8, kind: MapType::Hash, ..def.clone() };
            Slots::Hash(Box::new(HashTable::new(&def, domain, Fields::default())?))
        };
        Ok(MapOfMaps {
            slots,
            template,
            held: RwLock::default(),
            writer: Mutex::default(),
            domain: domain.clone(),
        })
    }

    pub(crate) fn layout(&self) -> Option<Layout> {
        match &self.slots {
            Slots::Array { words, entries } => {
                Some(Layout::Handles { base: words.base(), entries: *entries })
            }
            Slots::Hash(_) => None,
        }
    }

    /// The table of a HASH_OF_MAPS.
    pub(crate) fn table(&self) -> Option<&HashTable> {
        match &self.slots {
            Slots::Array { .. } => None,
            Slots::Hash(table) => Some(table),
        }
    }

    /// Puts a map into a slot. `EINVAL` when it isn't shaped like the template.
    pub(crate) fn insert(&self, key: &[u8], map: &Arc<Map>, flags: u64) -> Result<(), Errno> {
        if !map.def().has_shape_of(&self.template) {
            return Err(Errno::EINVAL);
        }
        let _alone = self.writer.lock();
        let old = self.slots.handle(key);
        // A program that finds the handle brings it back: it has to be known by then.
        self.enter(map);
        let stored = self.slots.store(key, map.handle(), flags);
        self.leave(if stored.is_ok() { old } else { map.handle() });
        stored
    }

    /// The map in a slot.
    pub(crate) fn inner(&self, key: &[u8]) -> Option<Arc<Map>> {
        self.by_handle(self.slots.handle(key))
    }

    /// The map of a handle that is, or recently was, in a slot.
    pub(crate) fn by_handle(&self, handle: u64) -> Option<Arc<Map>> {
        let held = self.held.read();
        held.get(&handle).map(|held| held.map.clone())
    }

    /// The held map whose memory has an address.
    pub(crate) fn at(&self, addr: u64) -> Option<Arc<Map>> {
        let held = self.held.read();
        let inside = |(first, last)| (first..=last).contains(&addr);
        let owns = |held: &&Held| held.map.places().any(inside);
        held.values().find(owns).map(|held| held.map.clone())
    }

    fn enter(&self, map: &Arc<Map>) {
        let mut held = self.held.write();
        let entry = held.entry(map.handle());
        entry.or_insert_with(|| Held { map: map.clone(), slots: 0, left: 0 }).slots += 1;
    }

    /// Notes that a slot no longer holds a handle, and drops maps that were removed long enough
    /// ago.
    fn leave(&self, handle: u64) {
        let mut held = self.held.write();
        if let Some(leaving) = held.get_mut(&handle) {
            debug_assert!(leaving.slots > 0, "a handle leaves a slot that it was in");
            leaving.slots -= 1;
            leaving.left = self.domain.tag();
        }
        held.retain(|_handle, held| held.slots > 0 || !self.domain.passed(held.left));
        self.domain.advance();
    }
}

impl Slots {
    fn slot(&self, key: &[u8]) -> Option<&AtomicU64> {
        match self {
            Slots::Array { words, entries } => {
                let index = number(key);
                (index < *entries).then(|| words.word(index as usize * 8))
            }
            Slots::Hash(_) => None,
        }
    }

    /// The handle at a key; 0 when there is none.
    fn handle(&self, key: &[u8]) -> u64 {
        match self {
            Slots::Array { .. } => self.slot(key).map_or(0, |slot| slot.load(Ordering::Acquire)),
            Slots::Hash(table) => table.word(key).unwrap_or(0),
        }
    }

    fn store(&self, key: &[u8], handle: u64, flags: u64) -> Result<(), Errno> {
        match self {
            Slots::Array { .. } if flags != BPF_ANY => Err(Errno::EINVAL),
            Slots::Array { .. } => {
                self.slot(key).ok_or(Errno::E2BIG)?.store(handle, Ordering::Release);
                Ok(())
            }
            Slots::Hash(table) => table.update(USER, key, &handle.to_ne_bytes(), flags),
        }
    }

    fn clear(&self, key: &[u8]) -> Result<u64, Errno> {
        match self {
            Slots::Array { .. } => {
                let slot = self.slot(key).ok_or(Errno::E2BIG)?;
                let old = slot.swap(0, Ordering::AcqRel);
                if old == 0 { Err(Errno::ENOENT) } else { Ok(old) }
            }
            Slots::Hash(table) => {
                let old = self.handle(key);
                table.delete(USER, key)?;
                Ok(old)
            }
        }
    }
}

impl Store for MapOfMaps {
    /// The inner map's handle, as a program sees it.
    fn lookup(&self, _worker: usize, key: &[u8]) -> Option<NonNull<u8>> {
        // The map in a slot now is held at least until this worker is quiescent.
        let handle = self.slots.handle(key);
        NonNull::new(std::ptr::with_exposed_provenance_mut(handle as usize))
    }

    fn update(&self, _worker: usize, key: &[u8], _value: &[u8], flags: u64) -> Result<(), Errno> {
        // The value would be a descriptor, which this crate does not have: see `Map::insert_inner`.
        match &self.slots {
            Slots::Array { .. } if flags != BPF_ANY => Err(Errno::EINVAL),
            Slots::Array { .. } => {
                self.slots.slot(key).map_or(Err(Errno::E2BIG), |_| Err(Errno::EBADF))
            }
            Slots::Hash(_) => Err(Errno::EBADF),
        }
    }

    fn delete(&self, _worker: usize, key: &[u8]) -> Result<(), Errno> {
        let _alone = self.writer.lock();
        let old = self.slots.clear(key)?;
        self.leave(old);
        Ok(())
    }

    /// The inner map's id.
    fn read(&self, key: &[u8], _locked: bool) -> Result<Value, Errno> {
        let map = self.inner(key).ok_or(Errno::ENOENT)?;
        Ok(Value::One(map.id().to_ne_bytes().to_vec()))
    }

    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        match &self.slots {
            Slots::Array { entries, .. } => next_index(key, *entries),
            Slots::Hash(table) => table.next_key(key),
        }
    }

    fn count(&self) -> Option<u64> {
        match &self.slots {
            Slots::Array { entries, .. } => Some(u64::from(*entries)),
            Slots::Hash(table) => table.count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::map::CreateOptions;
    use crate::testing::def;

    use super::*;

    fn outer(kind: MapType) -> (Arc<Map>, CreateOptions) {
        let options = CreateOptions::new(Domain::new(1));
        let mut outer = def(kind, 4, 4, 2, 0);
        outer.inner = Some(Box::new(def(MapType::Array, 4, 8, 3, 0)));
        (Map::create(&outer, &options).unwrap(), options)
    }

    #[test]
    fn programs_find_inner_maps_by_handle() {
        for kind in [MapType::ArrayOfMaps, MapType::HashOfMaps] {
            let (outer, options) = outer(kind);
            let inner = Map::create(&def(MapType::Array, 4, 8, 3, 0), &options).unwrap();
            let key = 1u32.to_ne_bytes();
            assert_eq!(outer.lookup(0, &key), None);
            outer.insert_inner(&key, &inner, BPF_ANY).unwrap();
            let handle = outer.lookup(0, &key).unwrap().as_ptr() as u64;
            assert_eq!(handle, inner.handle());
            assert_eq!(outer.inner_by_handle(handle).unwrap().id(), inner.id());
            let id = outer.user().lookup(&key, 0).unwrap();
            assert_eq!(id.bytes(), inner.id().to_ne_bytes());
        }
    }

    #[test]
    fn shapes_must_match() {
        let (outer, options) = outer(MapType::ArrayOfMaps);
        let key = 0u32.to_ne_bytes();
        for other in [def(MapType::Array, 4, 4, 3, 0), def(MapType::Array, 4, 8, 4, 0)] {
            let other = Map::create(&other, &options).unwrap();
            assert_eq!(outer.insert_inner(&key, &other, BPF_ANY), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn a_removed_map_lives_until_workers_moved_on() {
        let (outer, options) = outer(MapType::HashOfMaps);
        let inner = Map::create(&def(MapType::Array, 4, 8, 3, 0), &options).unwrap();
        let (handle, weak) = (inner.handle(), Arc::downgrade(&inner));
        let key = 0u32.to_ne_bytes();
        outer.insert_inner(&key, &inner, BPF_ANY).unwrap();
        drop(inner);
        outer.user().delete(&key).unwrap();
        assert_eq!(outer.lookup(0, &key), None);
        assert!(outer.inner_by_handle(handle).is_some(), "a program may still use it");
        options.domain.quiesce(0);
        let next = Map::create(&def(MapType::Array, 4, 8, 3, 0), &options).unwrap();
        outer.insert_inner(&key, &next, BPF_ANY).unwrap();
        assert!(weak.upgrade().is_none());
    }
}
