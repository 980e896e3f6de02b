//! Objects that programs allocate: reference-counted memory.
//!
//! Kernel counterparts: `bpf_obj_new`, `bpf_refcount_acquire`, `bpf_obj_drop` and the function that
//! frees special fields of map values (`bpf_obj_free_fields`). A reference stored in memory (a
//! kptr, a place in a list or tree) belongs to that field, and is released with the map value or
//! object that contains it. An object's memory outlives its last reference until every worker has
//! been quiescent; then it is reused for other objects of its kind, and is freed with the programs.

mod class;
mod held;
mod slot_unsafe;
mod store;

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use towpath_bpf::btf::Btf;
use towpath_bpf::verifier::{FieldKind as Special, special_fields_of};
use towpath_maps::Domain;
use towpath_maps::fields::{Field, FieldKind, ReleaseField};

pub(crate) use class::{Class, Shape};
pub(crate) use held::{list, tree};
pub(crate) use slot_unsafe::{Hidden, Link, Object};

use crate::program::stored_field;
use crate::timers::Timers;
pub(crate) use store::Chunk;
use store::Store;

/// All objects of the programs of one object file.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    store: Store,
    /// Structures of which programs made objects.
    known: Mutex<Vec<Known>>,
}

/// A structure of a program, and the class of its objects.
#[derive(Debug)]
struct Known {
    types: Weak<Btf>,
    type_id: u32,
    is_percpu: bool,
    class: Arc<Class>,
}

impl Objects {
    /// The class of a program's structure; `None` if it does not exist, or is too large.
    pub(crate) fn class_of(
        &self,
        types: &Arc<Btf>,
        kernel: &Btf,
        type_id: u32,
        is_percpu: bool,
        domain: &Domain,
    ) -> Option<Arc<Class>> {
        let mut known = self.known.lock();
        // A weak reference keeps the address, so that equal ones are the same types.
        let is_it = |entry: &&Known| {
            let same = std::ptr::eq(entry.types.as_ptr(), Arc::as_ptr(types));
            same && (entry.type_id, entry.is_percpu) == (type_id, is_percpu)
        };
        if let Some(entry) = known.iter().find(is_it) {
            return Some(Arc::clone(&entry.class));
        }
        let shape = shape(types, kernel, type_id, is_percpu.then(|| domain.workers()))?;
        let class = self.store.class(shape, domain);
        known.retain(|entry| entry.types.strong_count() > 0);
        let types = Arc::downgrade(types);
        known.push(Known { types, type_id, is_percpu, class: Arc::clone(&class) });
        Some(class)
    }

    /// The class of objects of a shape.
    pub(crate) fn class(&self, shape: Shape, domain: &Domain) -> Arc<Class> {
        self.store.class(shape, domain)
    }

    /// A new, zeroed object with one reference; `None` if there is no room for more. `worker` is
    /// the number of the calling worker.
    #[inline]
    pub(crate) fn allocate(
        &self,
        class: &Arc<Class>,
        worker: usize,
        domain: &Domain,
    ) -> Option<Object<'_>> {
        class.take(worker, domain, || self.store.grow(class)).map(Object::of)
    }

    /// The object that contains an address.
    pub(crate) fn find(&self, addr: u64) -> Option<Object<'_>> {
        self.store.find(addr)
    }

    /// The chunk of memory that an object at this address would be in.
    pub(crate) fn chunk(&self, addr: u64) -> Option<Arc<Chunk>> {
        self.store.chunk(addr)
    }

    /// The copy of a per-CPU object.
    pub(crate) fn percpu(&self, addr: u64, cpu: u64) -> Option<u64> {
        let object = self.find(addr).filter(|object| object.addr() == addr)?;
        let shape = &object.class().shape;
        let offset = cpu.checked_mul(shape.cpu_stride as u64)?;
        (shape.cpu_stride > 0 && offset < shape.bytes as u64).then_some(addr + offset)
    }

    /// Releases a reference to an object; with the last one the object is freed, with the objects
    /// it owns. `worker` is the number of the calling worker.
    #[inline]
    pub(crate) fn release(&self, object: Object<'_>, worker: usize) {
        if !object.give_up() {
            return;
        }
        let class = object.class();
        if class.shape.fields.is_empty() {
            class.retire(worker, object.slot());
        } else {
            self.bury(object, worker);
        }
    }
}

/// The shape of a structure's objects, once or for each CPU.
fn shape(types: &Btf, kernel: &Btf, type_id: u32, cpus: Option<usize>) -> Option<Shape> {
    let bytes = types.size_of(type_id).and_then(|size| usize::try_from(size).ok())?;
    if bytes > OBJECT_BYTES_MAX {
        return None;
    }
    let special = special_fields_of(types, kernel, type_id);
    let is_counted = special.iter().any(|field| field.kind == Special::Refcount);
    let owns = |field: &Field| {
        use FieldKind::*;
        matches!(field.kind, Kptr | KptrPercpu | ListHead | RbRoot)
    };
    let stride = bytes.next_multiple_of(8);
    Some(Shape {
        bytes: cpus.map_or(bytes, |cpus| cpus * stride),
        cpu_stride: cpus.map_or(0, |_| stride),
        hidden_bytes: 0,
        is_counted,
        fields: special.into_iter().filter_map(stored_field).filter(owns).collect(),
        has_cipher: false,
    })
}

/// Releases objects owned by map values that are deleted.
pub(crate) struct Releaser {
    pub(crate) objects: Arc<Objects>,
    pub(crate) timers: Arc<Timers>,
}

impl ReleaseField for Releaser {
    fn release(&self, field: &Field, address: NonNull<u8>, content: u64) {
        let place = address.as_ptr() as u64;
        match field.kind {
            FieldKind::Timer | FieldKind::Workqueue | FieldKind::TaskWork => {
                self.timers.forget(place);
            }
            kind => self.objects.release_content(kind, place, content),
        }
    }
}

impl fmt::Debug for Releaser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Releaser")
    }
}

/// Worker number of a thread that is not a worker.
const USER: usize = usize::MAX;
/// Largest object (`bpf_mem_alloc` serves up to a page).
const OBJECT_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests;
