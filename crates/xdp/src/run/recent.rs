//! A cache of recent grants, for programs whose accesses are checked: most accesses lie where an
//! earlier one did.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use towpath_maps::{Access, Part};

use crate::objects::{Chunk, Objects};

/// Keys and values that were found lately, which stay valid as long as the program's maps, and the
/// place of the last object.
#[derive(Debug)]
pub(super) struct Recent {
    parts: [Cell<Option<Part>>; PARTS],
    /// Index for the next part.
    next: Cell<usize>,
    /// The chunk of the last object.
    chunk: RefCell<Option<Arc<Chunk>>>,
}

impl Recent {
    pub(super) fn new() -> Self {
        Recent {
            parts: [const { Cell::new(None) }; PARTS],
            next: Cell::new(0),
            chunk: RefCell::new(None),
        }
    }

    /// Access to the bytes from `addr` to `end`, if they lie in a part noted here.
    #[inline]
    pub(super) fn access(&self, addr: u64, end: u64) -> Option<Access> {
        self.part(addr, end).map(|part| part.access)
    }

    /// The part noted here that the bytes from `addr` to `end` lie in.
    #[inline]
    pub(super) fn part(&self, addr: u64, end: u64) -> Option<Part> {
        let mut parts = self.parts.iter().map_while(Cell::get);
        parts.find(|part| part.first <= addr && end <= part.past)
    }

    /// Notes a part, in the place of the one that was noted longest ago.
    pub(super) fn note(&self, part: Part) {
        let place = self.next.get() % PARTS;
        self.parts[place].set(Some(part));
        self.next.set(place + 1);
    }

    /// Whether `len` bytes at `addr` lie in one object, in the chunk that had the last one.
    #[inline]
    pub(super) fn has_object(&self, addr: u64, len: u64) -> bool {
        let chunk = self.chunk.borrow();
        chunk.as_ref().is_some_and(|chunk| chunk.has_object(addr, len))
    }

    /// Whether `len` bytes at `addr` lie in one object; remembers its chunk.
    pub(super) fn find_object(&self, objects: &Objects, addr: u64, len: u64) -> bool {
        let Some(chunk) = objects.chunk(addr) else { return false };
        let found = chunk.has_object(addr, len);
        *self.chunk.borrow_mut() = Some(chunk);
        found
    }
}

const PARTS: usize = 4;
