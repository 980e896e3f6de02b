//! The store of objects: chunks of memory by address, and classes.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use towpath_maps::Domain;

use super::class::{Class, Shape};
use super::slot_unsafe::{HEADER_BYTES, Object, Slot};
use crate::memory::Block;

/// The memory of objects. No part of it is freed before the store.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// Chunks in order of addresses.
    chunks: RwLock<Vec<Arc<Chunk>>>,
    classes: Mutex<Vec<Arc<Class>>>,
}

/// A block of memory divided into slots.
#[derive(Debug)]
pub(crate) struct Chunk {
    block: Block,
    slots: usize,
    pub(super) class: Arc<Class>,
}

impl Store {
    /// The class of objects of this shape.
    pub(super) fn class(&self, shape: Shape, domain: &Domain) -> Arc<Class> {
        let mut classes = self.classes.lock();
        if let Some(class) = classes.iter().find(|class| class.shape == shape) {
            return Arc::clone(class);
        }
        let class = Arc::new(Class::new(shape, domain.workers()));
        classes.push(Arc::clone(&class));
        class
    }

    /// Makes slots for more objects of a class; none if there are too many objects.
    pub(super) fn grow(&self, class: &Arc<Class>) -> Vec<Slot> {
        let mut chunks = self.chunks.write();
        let of_class = |chunk: &&Arc<Chunk>| Arc::ptr_eq(&chunk.class, class);
        let known: usize = chunks.iter().filter(of_class).map(|chunk| chunk.slots).sum();
        let all: usize = chunks.iter().map(|chunk| chunk.slots).sum();
        // Doubles the memory each time, so that there are few chunks.
        let slots = (known * class.stride()).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let slots = (slots / class.stride()).max(1).min(OBJECTS_MAX.saturating_sub(all));
        if slots == 0 {
            return Vec::new();
        }
        let block = Block::new(slots * class.stride());
        let chunk = Arc::new(Chunk { block, slots, class: Arc::clone(class) });
        let made = Slot::of_chunk(&chunk).collect();
        let place = chunks.partition_point(|other| other.block.addr() < chunk.block.addr());
        chunks.insert(place, chunk);
        made
    }

    /// The object whose visible part contains an address.
    pub(super) fn find(&self, addr: u64) -> Option<Object<'_>> {
        self.at_chunk(addr, |chunk| Object::in_chunk(self, chunk, chunk.slot_around(addr)?))?
    }

    /// The chunk that may contain an address: the last one that starts at or before it.
    pub(super) fn chunk(&self, addr: u64) -> Option<Arc<Chunk>> {
        self.at_chunk(addr, Arc::clone)
    }

    fn at_chunk<T>(&self, addr: u64, look: impl FnOnce(&Arc<Chunk>) -> T) -> Option<T> {
        let chunks = self.chunks.read();
        let behind = chunks.partition_point(|chunk| chunk.block.addr() <= addr);
        chunks.get(behind.checked_sub(1)?).map(look)
    }
}

impl Drop for Chunk {
    /// Frees the ciphers of objects that are still there.
    fn drop(&mut self) {
        if self.class.shape.has_cipher {
            Slot::of_chunk(self).for_each(|slot| slot.forget(&self.class));
        }
    }
}

impl Chunk {
    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Address of the object in a slot.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub(super) fn object_addr(&self, slot: usize) -> u64 {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.block.addr() + (slot * self.class.stride() + HEADER_BYTES) as u64
    }

    /// Whether `len` bytes at `addr` lie in one object of this chunk.
    pub(crate) fn has_object(&self, addr: u64, len: u64) -> bool {
        let Some(slot) = self.slot_around(addr) else { return false };
        let end = self.object_addr(slot) + self.class.shape.bytes as u64;
        len <= end - addr && Object::is_in_chunk(self, slot)
    }

    /// The slot whose visible part contains an address.
    fn slot_around(&self, addr: u64) -> Option<usize> {
        let offset = addr.checked_sub(self.block.addr())? as usize;
        let (slot, inside) = (offset / self.class.stride(), offset % self.class.stride());
        let visible = HEADER_BYTES..HEADER_BYTES + self.class.shape.bytes;
        (slot < self.slots && visible.contains(&inside)).then_some(slot)
    }
}

/// Most objects, alive or not, of the programs of one object file.
const OBJECTS_MAX: usize = 1 << 20;
const CHUNK_BYTES_MIN: usize = 64 << 10;
const CHUNK_BYTES_MAX: usize = 2 << 20;
