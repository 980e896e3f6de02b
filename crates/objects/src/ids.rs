//! Ids of one kind of object, as the kernel's IDR allots them, and the way from an id to its
//! object. Those of programs come with them (`towpath_xdp::program::Programs`).
//!
//! Kernel counterpart: `idr_alloc_cyclic` and `idr_get_next`. An id is given up when the object
//! goes, and not used again before all others were.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use towpath_bpf::Errno;

/// All objects of a kind that are alive.
pub(crate) struct Ids<T> {
    table: Mutex<Table<T>>,
}

struct Table<T> {
    by_id: BTreeMap<u32, Weak<T>>,
    /// The id at which the search for a free one begins.
    next: u32,
}

/// An object's own id; given up when it is dropped.
pub(crate) struct Lease<T> {
    ids: Arc<Ids<T>>,
    id: u32,
}

impl<T> Ids<T> {
    pub(crate) fn new() -> Arc<Ids<T>> {
        Arc::new(Ids { table: Mutex::new(Table { by_id: BTreeMap::new(), next: ID_FIRST }) })
    }

    /// Makes an object with the next id.
    pub(crate) fn create(
        self: &Arc<Self>,
        make: impl FnOnce(Lease<T>) -> T,
    ) -> Result<Arc<T>, Errno> {
        let id = self.table.lock().reserve()?;
        Ok(self.make(id, make))
    }

    /// Makes an object with an id that it has already.
    ///
    /// # Errors
    ///
    /// Fails with `EEXIST` if another object has it.
    pub(crate) fn create_with(
        self: &Arc<Self>,
        id: u32,
        make: impl FnOnce(Lease<T>) -> T,
    ) -> Result<Arc<T>, Errno> {
        match self.table.lock().by_id.entry(id) {
            Entry::Occupied(_) => return Err(Errno::EEXIST),
            Entry::Vacant(free) => free.insert(Weak::new()),
        };
        Ok(self.make(id, make))
    }

    fn make(self: &Arc<Self>, id: u32, make: impl FnOnce(Lease<T>) -> T) -> Arc<T> {
        let object = Arc::new(make(Lease { ids: Arc::clone(self), id }));
        let reserved = self.table.lock().by_id.insert(id, Arc::downgrade(&object));
        debug_assert!(reserved.is_some_and(|it| it.strong_count() == 0), "no two own id {id}");
        object
    }

    /// The object with an id.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<T>> {
        self.table.lock().by_id.get(&id)?.upgrade()
    }

    /// The lowest id above `id` that an object has.
    pub(crate) fn next_after(&self, id: u32) -> Option<u32> {
        let table = self.table.lock();
        let mut after = table.by_id.range(id.checked_add(1)?..);
        after.find(|(_, object)| object.strong_count() > 0).map(|(&id, _)| id)
    }

    /// All objects, by id.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.table.lock().by_id.values().filter_map(Weak::upgrade).collect()
    }
}

impl<T> Table<T> {
    fn reserve(&mut self) -> Result<u32, Errno> {
        let free =
            |ids: std::ops::Range<u32>| ids.into_iter().find(|id| !self.by_id.contains_key(id));
        let id = free(self.next..ID_END).or_else(|| free(ID_FIRST..self.next));
        let id = id.ok_or(Errno::ENOSPC)?;
        self.by_id.insert(id, Weak::new());
        self.next = if id + 1 == ID_END { ID_FIRST } else { id + 1 };
        Ok(id)
    }
}

impl<T> Lease<T> {
    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

impl<T> Drop for Lease<T> {
    fn drop(&mut self) {
        let removed = self.ids.table.lock().by_id.remove(&self.id);
        debug_assert!(removed.is_some(), "an id goes with its only owner");
    }
}

impl<T> fmt::Debug for Lease<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl<T> fmt::Debug for Ids<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.table.lock().by_id.keys()).finish()
    }
}

const ID_FIRST: u32 = 1;
/// The first number that is no id (`INT_MAX`).
const ID_END: u32 = i32::MAX as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_round() {
        struct Thing(Lease<Thing>);
        let ids: Arc<Ids<Thing>> = Ids::new();
        let [one, two] = [(), ()].map(|()| ids.create(Thing).unwrap());
        assert_eq!((one.0.id(), two.0.id()), (1, 2));
        drop(one);
        assert!(ids.get(1).is_none());
        assert_eq!((ids.next_after(0), ids.next_after(2)), (Some(2), None));
        assert_eq!(ids.create(Thing).unwrap().0.id(), 3, "1 is free, but not its turn");
        ids.table.lock().next = ID_END - 1;
        let last = ids.create(Thing).unwrap();
        assert_eq!(last.0.id(), ID_END - 1);
        let again = ids.create(Thing).unwrap();
        assert_eq!(again.0.id(), 1);
        assert_eq!(ids.create(Thing).unwrap().0.id(), 3, "2 is taken");
        assert_eq!(ids.next_after(u32::MAX), None);
    }
}
