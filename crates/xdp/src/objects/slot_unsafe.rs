//! Memory of objects: slots of one size, each a header and the object behind it.
//!
//! A program refers to an object by its address, from which the header is found without a lookup.
//! Slots are not freed before their store, so a header may be read whatever became of its object.

#![expect(unsafe_code, reason = "finds headers by the addresses of objects")]

use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::Objects;
use super::class::Class;
use super::store::{Chunk, Store};
use crate::crypto::Cipher;

/// The header of an object.
#[repr(C)]
struct Header {
    /// Number of references; 0 once the last one is gone, until the slot is reused.
    references: AtomicU32,
    /// Whether the slot has an object: from its allocation until no reader can see it any more.
    is_object: AtomicU32,
    /// The next slot in a list of slots without references, or 0.
    next: AtomicU64,
    /// Address of the slot's class.
    class: AtomicU64,
    unused: u64,
}

/// Bytes of a header. Objects are aligned to it.
pub(super) const HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(HEADER_BYTES == 32);

/// A slot, by the address of its object. Its store is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(NonZeroU64);

impl Slot {
    /// The slot whose object would be at an address; `None` for address 0.
    ///
    /// # Safety
    ///
    /// There is a slot at the address, and the result is not used after its store is freed.
    #[inline(always)]
    unsafe fn at(addr: u64) -> Option<Slot> {
        NonZeroU64::new(addr).map(Slot)
    }

    /// The slots of a chunk.
    pub(super) fn of_chunk(chunk: &Chunk) -> impl Iterator<Item = Slot> {
        (0..chunk.slots()).filter_map(|slot| {
            // SAFETY: a chunk consists of slots, and its store keeps it.
            let slot = unsafe { Slot::at(chunk.object_addr(slot)) }?;
            let class = Arc::as_ptr(&chunk.class).expose_provenance() as u64;
            slot.header().class.store(class, Relaxed);
            Some(slot)
        })
    }

    #[inline(always)]
    fn header<'o>(self) -> &'o Header {
        let header = with_exposed_provenance_mut::<Header>(self.0.get() as usize - HEADER_BYTES);
        // SAFETY: a slot has a header in front of its object, which is only accessed atomically.
        // The reference does not leave this module.
        unsafe { &*header }
    }

    /// The next slot of the list it is in.
    pub(super) fn next(self) -> Option<Slot> {
        // SAFETY: only `set_next` writes it, and lists are those of one store.
        unsafe { Slot::at(self.header().next.load(Relaxed)) }
    }

    pub(super) fn set_next(self, next: Option<Slot>) {
        self.header().next.store(next.map_or(0, |slot| slot.0.get()), Relaxed);
    }

    /// Marks the slot as having no object, and frees its cipher: no reader can see it any more.
    pub(super) fn forget(self, class: &Class) {
        self.header().is_object.store(0, Relaxed);
        if class.shape.has_cipher {
            drop(Object::of(self).take_cipher());
        }
    }

    /// Makes an object of zeros with one reference. No other code knows the slot's address.
    #[inline]
    pub(super) fn begin(self, class: &Class, is_fresh: bool) {
        if !is_fresh {
            let first = with_exposed_provenance_mut::<u8>(self.0.get() as usize);
            // SAFETY: the object's part of the slot, which is free.
            unsafe { first.write_bytes(0, class.object_bytes()) };
        }
        let header = self.header();
        header.references.store(1, Relaxed);
        header.is_object.store(1, Release);
    }
}

/// An object, alive or about to be freed, of a live store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Object<'o> {
    slot: Slot,
    store: PhantomData<&'o ()>,
}

impl<'o> Object<'o> {
    /// The object at an address.
    ///
    /// # Safety
    ///
    /// An object was allocated there, by a store that outlives the result.
    #[inline(always)]
    pub(crate) unsafe fn at(addr: u64) -> Object<'o> {
        // SAFETY: the caller's promise; no object is at address 0.
        let slot = unsafe { Slot(NonZeroU64::new_unchecked(addr)) };
        Object { slot, store: PhantomData }
    }

    /// The object in a slot of a store's chunk, if there is one.
    pub(super) fn in_chunk(_store: &'o Store, chunk: &Chunk, slot: usize) -> Option<Object<'o>> {
        // SAFETY: a slot of the chunk, which the store keeps.
        let object = unsafe { Object::at(chunk.object_addr(slot)) };
        object.is_there().then_some(object)
    }

    /// Whether there is an object in a slot of a chunk.
    pub(super) fn is_in_chunk(chunk: &Chunk, slot: usize) -> bool {
        // SAFETY: a slot of the chunk, which is borrowed as long as this takes.
        unsafe { Object::at(chunk.object_addr(slot)) }.is_there()
    }

    fn is_there(self) -> bool {
        self.slot.header().is_object.load(Acquire) != 0
    }

    /// The object that was made in a slot.
    pub(super) fn of(slot: Slot) -> Object<'o> {
        Object { slot, store: PhantomData }
    }

    /// Address of its first byte.
    #[inline(always)]
    pub(crate) fn addr(self) -> u64 {
        self.slot.0.get()
    }

    pub(super) fn slot(self) -> Slot {
        self.slot
    }

    /// The class of the object.
    #[inline(always)]
    pub(super) fn class(self) -> &'o Class {
        let class = self.slot.header().class.load(Relaxed);
        // SAFETY: `of_chunk` wrote it, and the chunk in the store keeps the class.
        unsafe { &*with_exposed_provenance_mut::<Class>(class as usize) }
    }

    /// The 8-byte word at an offset, a multiple of 8; `None` outside of the object.
    #[inline(always)]
    pub(crate) fn word(self, offset: usize) -> Option<&'o AtomicU64> {
        let inside = offset.is_multiple_of(8) && offset + 8 <= self.class().object_bytes();
        let word = with_exposed_provenance_mut::<u64>(self.addr() as usize + offset);
        // SAFETY: inside the object, aligned as it is; words of objects are accessed atomically.
        inside.then(|| unsafe { AtomicU64::from_ptr(word) })
    }

    /// Its part hidden from programs, if it has one.
    #[inline(always)]
    pub(crate) fn hidden(self) -> Option<&'o Hidden> {
        let shape = &self.class().shape;
        let at = self.addr() as usize + shape.bytes.next_multiple_of(8);
        let hidden = with_exposed_provenance_mut::<Hidden>(at);
        // SAFETY: behind the visible part, aligned as it is, zeros when the object was made, and
        // only accessed atomically.
        (shape.hidden_bytes == size_of::<Hidden>()).then(|| unsafe { &*hidden })
    }

    /// Gives a new object its cipher, which is freed with it.
    ///
    /// # Panics
    ///
    /// If objects of its class have none.
    pub(crate) fn set_cipher(self, cipher: Box<Cipher>) {
        assert!(self.class().shape.has_cipher, "a class without ciphers");
        if let Some(hidden) = self.hidden() {
            let cipher = Box::into_raw(cipher).expose_provenance();
            hidden.words[0].store(cipher as u64, Release);
        }
    }

    /// Its cipher.
    ///
    /// # Safety
    ///
    /// The caller has a reference, or is a worker that found the object since it was last
    /// quiescent; and uses the result no longer than that.
    pub(crate) unsafe fn cipher(self) -> Option<&'o Cipher> {
        let hidden = self.hidden().filter(|_| self.class().shape.has_cipher)?;
        let cipher = hidden.words[0].load(Acquire) as usize;
        // SAFETY: `set_cipher` stored it, or it is null; it is freed when no worker can see the
        // object any more.
        unsafe { with_exposed_provenance_mut::<Cipher>(cipher).as_ref() }
    }

    /// Takes the cipher out of an object that nobody can see.
    fn take_cipher(self) -> Option<Box<Cipher>> {
        let cipher = self.hidden()?.words[0].swap(0, AcqRel) as usize;
        // SAFETY: `set_cipher` stored it, and nobody else takes it, as it was exchanged for null.
        (cipher != 0).then(|| unsafe { Box::from_raw(with_exposed_provenance_mut(cipher)) })
    }

    /// Takes another reference; `false` if there is none left.
    #[inline]
    pub(crate) fn acquire(self) -> bool {
        let references = &self.slot.header().references;
        let more = |count: u32| if count == 0 { None } else { count.checked_add(1) };
        references.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Releases a reference; returns whether it was the last one.
    #[inline]
    pub(super) fn give_up(self) -> bool {
        let references = &self.slot.header().references;
        if !self.class().is_counted() {
            // There is one reference, and only its holder can release it.
            let count = references.load(Relaxed);
            references.store(0, Relaxed);
            return count != 0;
        }
        let fewer = |count: u32| count.checked_sub(1);
        references.fetch_update(AcqRel, Relaxed, fewer) == Ok(1)
    }
}

/// The part of an object hidden from programs; zeros in a new object.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Hidden {
    pub(crate) words: [AtomicU64; 8],
    pub(crate) links: [Link; 2],
}

/// A link to an object of the same store, or none, with an extra bit.
#[repr(transparent)]
#[derive(Debug, Default)]
pub(crate) struct Link(AtomicU64);

impl Link {
    /// The linked object. `objects` is the store of the objects that the link was set to.
    #[inline(always)]
    pub(crate) fn get<'o>(&self, _objects: &'o Objects) -> Option<(Object<'o>, bool)> {
        let link = self.0.load(Relaxed);
        // SAFETY: only `set` writes it, and a slot stays one as long as its store.
        let slot = unsafe { Slot::at(link & !1) }?;
        Some((Object::of(slot), link & 1 != 0))
    }

    #[inline(always)]
    pub(crate) fn set(&self, to: Option<(Object<'_>, bool)>) {
        self.0.store(to.map_or(0, |(object, bit)| object.addr() | u64::from(bit)), Relaxed);
    }
}
