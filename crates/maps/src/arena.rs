//! ARENA: up to 4 GiB of sparse memory that a program and user space share.
//!
//! Kernel counterpart: `kernel/bpf/arena.c`. A program's arena pointer is the address that user
//! space has; its low 32 bits are also the offset from [`Arena::base`], which is how a compiler
//! addresses the memory. Pages that aren't allocated read as zero and swallow writes, as with the
//! kernel's fault handler.
//!
//! No access faults here: a byte for each page says whether it is there, also for the pages around
//! the arena that an instruction's offset reaches, and an access to an absent one is led to a word
//! that stays 0, or to one that is never read. A page may be freed between the check of its byte
//! and the access, which then counts as an earlier one. So a page that was freed is cleared again
//! when it is allocated.

use std::ops::Range;

use parking_lot::Mutex;
use towpath_bpf::{Errno, MapDef};

use crate::access::Access;
use crate::flags::BPF_F_NO_USER_CONV;
use crate::memory::{PAGE_BYTES, Region};
use crate::store::Store;
use crate::sync::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

/// Bytes that 32-bit offsets reach.
const REACH: u64 = 1 << 32;
/// Bytes beyond them, on either side, that an instruction's offset of 16 bits reaches (`GUARD_SZ`).
const GUARD_BYTES: u64 = 1 << 15;
const PAGE_SHIFT: u32 = PAGE_BYTES.trailing_zeros();

/// The layout of an arena's memory for compiled code: distances from [`Arena::memory`], the place
/// of an access by pointer 0 with the lowest offset.
#[derive(Debug)]
pub struct ArenaLayout;

impl ArenaLayout {
    /// The place of pointer 0.
    pub const START: u64 = GUARD_BYTES;
    /// A word that is 0: loads of absent pages read it.
    pub const ZERO: u64 = REACH + 2 * GUARD_BYTES;
    /// A word that is never read, the target of stores to absent pages.
    pub const SINK: u64 = Self::ZERO + PAGE_BYTES as u64;
    /// A distance shifted right by this is the index of its page in [`Arena::page_table`].
    pub const PAGE_SHIFT: u32 = PAGE_SHIFT;
    const BYTES: u64 = Self::SINK + PAGE_BYTES as u64;
}

/// An arena and which of its pages are allocated.
#[derive(Debug)]
#[doc(alias = "BPF_MAP_TYPE_ARENA")]
pub struct Arena {
    region: Region,
    /// Multiple of 4 GiB inside the region.
    base: u64,
    /// The first page's address in user space.
    user_start: u64,
    /// Programs do without user space's addresses (`BPF_F_NO_USER_CONV`).
    keeps_low_half: bool,
    pages: u32,
    /// A byte for each page from [`Arena::memory`] on: 1 when it is allocated. Changed under the
    /// lock, read without.
    present: Region,
    taken: Mutex<Taken>,
}

/// Further properties of each page, one bit a page.
#[derive(Debug)]
struct Taken {
    /// The page may be allocated only by its address.
    reserved: Vec<u64>,
    /// The page was allocated before, and may hold data from late writes.
    freed: Vec<u64>,
}

impl Arena {
    pub(crate) fn new(def: &MapDef) -> Result<Self, Errno> {
        // Twice the reach contains an aligned part of that size, wherever the region lies.
        let region = Region::new(REACH + ArenaLayout::BYTES)?;
        let base = (region.base() + GUARD_BYTES).next_multiple_of(REACH);
        let words = def.max_entries.div_ceil(64) as usize;
        let taken = Taken { reserved: vec![0; words], freed: vec![0; words] };
        Ok(Arena {
            region,
            base,
            user_start: if def.map_extra == 0 { base } else { def.map_extra },
            keeps_low_half: def.flags & BPF_F_NO_USER_CONV != 0,
            pages: def.max_entries,
            // One more for the last bytes of an access that begins at the very end.
            present: Region::new((ArenaLayout::ZERO >> PAGE_SHIFT) + 1)?,
            taken: Mutex::new(taken),
        })
    }

    /// Address of offset 0: an arena pointer's low 32 bits are added to this.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The first arena pointer (`map_extra` when the definition gives one).
    pub fn user_start(&self) -> u64 {
        self.user_start
    }

    /// The upper half of addresses for user space: 0 if programs don't use them.
    pub fn user_half(&self) -> u64 {
        if self.keeps_low_half { 0 } else { self.user_start & !(REACH - 1) }
    }

    /// Start address of the memory of [`ArenaLayout`].
    pub fn memory(&self) -> u64 {
        self.base - GUARD_BYTES
    }

    /// Address of the bytes that tell which pages are allocated, from the one of [`Arena::memory`]
    /// on: 1 or 0, and they may change at any time.
    pub fn page_table(&self) -> u64 {
        self.present.base()
    }

    /// Address of the memory of an arena pointer.
    pub fn resolve(&self, pointer: u64) -> u64 {
        self.base + (pointer & (REACH - 1))
    }

    /// `bpf_arena_alloc_pages`: the arena pointer of `count` pages, at `pointer` if that isn't 0;
    /// `None` when there are not enough.
    pub fn alloc_pages(&self, pointer: u64, count: u32) -> Option<u64> {
        if count == 0 || count > self.pages {
            return None;
        }
        let mut taken = self.taken.lock();
        let first = if pointer == 0 {
            self.find_free(&taken, count)?
        } else {
            let first = self.page_of(pointer)?;
            let free = self.run(first, count)?.all(|page| !self.is_allocated(page));
            free.then_some(first)?
        };
        for page in self.run(first, count)? {
            self.allocate(&mut taken, page);
        }
        Some(self.pointer_to(first))
    }

    /// `bpf_arena_free_pages`: gives pages back; those that aren't allocated are skipped.
    pub fn free_pages(&self, pointer: u64, count: u32) {
        let Some(first) = self.page_of(pointer) else { return };
        let mut taken = self.taken.lock();
        let end = first.saturating_add(count).min(self.pages);
        for page in first..end {
            if self.is_allocated(page) {
                self.set_present(page, false);
                self.region.clear(self.offset(page), PAGE_BYTES);
                set(&mut taken.freed, page, true);
            }
        }
    }

    /// `bpf_arena_reserve_pages`: keeps pages from being allocated by search. `EINVAL` outside the
    /// arena, `EBUSY` when one is taken.
    pub fn reserve_pages(&self, pointer: u64, count: u32) -> Result<(), Errno> {
        if count == 0 {
            return Ok(());
        }
        let run = self.page_of(pointer).and_then(|first| self.run(first, count));
        let run = run.ok_or(Errno::EINVAL)?;
        let mut taken = self.taken.lock();
        let busy = |page| self.is_allocated(page) || get(&taken.reserved, page);
        if run.clone().any(busy) {
            return Err(Errno::EBUSY);
        }
        for page in run {
            set(&mut taken.reserved, page, true);
        }
        Ok(())
    }

    /// A program's access to bytes at a real address; `None` when they aren't the arena's.
    pub(crate) fn owns(&self, addr: u64, len: u64) -> Option<Access> {
        let offset = addr.checked_sub(self.memory())?;
        let end = offset.checked_add(len).filter(|&end| end <= ArenaLayout::ZERO)?;
        let pages = offset >> PAGE_SHIFT..end.div_ceil(PAGE_BYTES as u64);
        let whole = pages.into_iter().all(|index| self.is_present(index));
        Some(if whole { Access::ReadWrite } else { Access::Absent })
    }

    /// First and last real address that an arena pointer can lead to, with an offset.
    pub(crate) fn reach(&self) -> (u64, u64) {
        (self.memory(), self.memory() + (ArenaLayout::ZERO - 1))
    }

    /// Copies bytes out, for user space; pages without memory read as zero.
    pub fn read(&self, pointer: u64, out: &mut [u8]) -> Result<(), Errno> {
        let offset = self.checked(pointer, out.len())?;
        self.region.read(offset, out);
        Ok(())
    }

    /// Copies bytes in, for user space, allocating pages as its first touch of one does.
    pub fn write(&self, pointer: u64, bytes: &[u8]) -> Result<(), Errno> {
        let offset = self.checked(pointer, bytes.len())?;
        let first = self.page_of(pointer & !(PAGE_BYTES as u64 - 1)).ok_or(Errno::EINVAL)?;
        let in_page = pointer as usize % PAGE_BYTES;
        let count = (in_page + bytes.len()).div_ceil(PAGE_BYTES) as u32;
        let mut taken = self.taken.lock();
        for page in first..first + count {
            self.allocate(&mut taken, page);
        }
        self.region.write(offset, bytes);
        Ok(())
    }

    /// Allocates memory for a page that has none.
    fn allocate(&self, taken: &mut Taken, page: u32) {
        if self.is_allocated(page) {
            return;
        }
        if get(&taken.freed, page) {
            self.region.clear(self.offset(page), PAGE_BYTES);
            set(&mut taken.freed, page, false);
        }
        self.set_present(page, true);
    }

    fn is_allocated(&self, page: u32) -> bool {
        self.is_present(self.table_index(page))
    }

    fn is_present(&self, index: u64) -> bool {
        let (word, shift) = self.table_byte(index);
        word.load(Acquire) >> shift & 1 == 1
    }

    /// Under the lock.
    fn set_present(&self, page: u32, on: bool) {
        let (word, shift) = self.table_byte(self.table_index(page));
        let others = word.load(Acquire) & !(1 << shift);
        word.store(others | u64::from(on) << shift, Release);
    }

    fn table_index(&self, page: u32) -> u64 {
        (self.resolve(self.pointer_to(page)) - self.memory()) >> PAGE_SHIFT
    }

    /// The word that a byte of the page table is in, and where in it: machines are little-endian.
    fn table_byte(&self, index: u64) -> (&AtomicU64, u32) {
        (self.present.word(index as usize & !7), 8 * (index as u32 % 8))
    }

    fn checked(&self, pointer: u64, len: usize) -> Result<usize, Errno> {
        let start = pointer.checked_sub(self.user_start).ok_or(Errno::EINVAL)?;
        let end = start.checked_add(len as u64).ok_or(Errno::EINVAL)?;
        if end > u64::from(self.pages) * PAGE_BYTES as u64 {
            return Err(Errno::EINVAL);
        }
        Ok((self.resolve(pointer) - self.region.base()) as usize)
    }

    /// The page an arena pointer names, by its low 32 bits (`compute_pgoff`); `None` outside the
    /// arena or inside a page.
    fn page_of(&self, pointer: u64) -> Option<u32> {
        let bytes = (pointer as u32).wrapping_sub(self.user_start as u32);
        let page = bytes >> PAGE_SHIFT;
        (bytes.is_multiple_of(PAGE_BYTES as u32) && page < self.pages).then_some(page)
    }

    fn run(&self, first: u32, count: u32) -> Option<Range<u32>> {
        first.checked_add(count).filter(|&end| end <= self.pages).map(|end| first..end)
    }

    fn find_free(&self, taken: &Taken, count: u32) -> Option<u32> {
        let mut first = 0;
        for page in 0..self.pages {
            if self.is_allocated(page) || get(&taken.reserved, page) {
                first = page + 1;
            } else if page + 1 - first == count {
                return Some(first);
            }
        }
        None
    }

    fn pointer_to(&self, page: u32) -> u64 {
        self.user_start + u64::from(page) * PAGE_BYTES as u64
    }

    fn offset(&self, page: u32) -> usize {
        (self.resolve(self.pointer_to(page)) - self.region.base()) as usize
    }
}

impl Store for Arena {}

fn get(bits: &[u64], page: u32) -> bool {
    bits.get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
}

fn set(bits: &mut [u64], page: u32, on: bool) {
    if let Some(word) = bits.get_mut(page as usize / 64) {
        *word = *word & !(1 << (page % 64)) | u64::from(on) << (page % 64);
    }
}

#[cfg(test)]
mod tests {
    use towpath_bpf::program::MapType;

    use crate::flags::BPF_F_MMAPABLE;
    use crate::testing::def;

    use super::*;

    fn arena(map_extra: u64) -> Arena {
        let def = MapDef { map_extra, ..def(MapType::Arena, 0, 0, 10, BPF_F_MMAPABLE) };
        Arena::new(&def).unwrap()
    }

    #[test]
    fn pages_are_found_freed_and_found_again() {
        let arena = arena(0);
        let page = |index: u64| arena.user_start() + index * PAGE_BYTES as u64;
        arena.reserve_pages(page(1), 1).unwrap();
        assert_eq!(arena.alloc_pages(0, 1), Some(page(0)));
        assert_eq!(arena.alloc_pages(0, 2), Some(page(2)), "page 1 is reserved");
        assert_eq!(arena.alloc_pages(page(1), 1), Some(page(1)), "but can be asked for");
        assert_eq!(arena.alloc_pages(page(1), 1), None);
        assert_eq!(arena.alloc_pages(0, 7), None);
        assert_eq!(arena.alloc_pages(page(9), 2), None);
        assert_eq!(arena.alloc_pages(page(0) + 8, 1), None, "not the start of a page");
        arena.free_pages(page(0), 3);
        assert_eq!(arena.alloc_pages(0, 1), Some(page(0)));
        assert_eq!(arena.reserve_pages(page(0), 1), Err(Errno::EBUSY));
        assert_eq!(arena.reserve_pages(page(10), 1), Err(Errno::EINVAL));
    }

    #[test]
    fn pages_without_memory_are_absent() {
        let arena = arena(0x10_0000_2000);
        let pointer = arena.alloc_pages(0, 1).unwrap();
        assert_eq!(pointer, 0x10_0000_2000);
        let address = arena.resolve(pointer);
        assert_eq!(address, arena.base() + 0x2000);
        assert_eq!(arena.owns(address, 8), Some(Access::ReadWrite));
        assert_eq!(arena.owns(address - 4, 8), Some(Access::Absent));
        assert_eq!(arena.owns(arena.base() + REACH + 8, 8), Some(Access::Absent), "a guard");
        assert_eq!(arena.owns(arena.base() - GUARD_BYTES, 8), Some(Access::Absent), "a guard");
        assert_eq!(arena.owns(arena.base() + REACH + GUARD_BYTES, 1), None);
        assert_eq!(arena.owns(arena.base() - GUARD_BYTES - 1, 1), None);
        arena.write(pointer + 4094, &[1; 4]).unwrap();
        assert_eq!(arena.owns(address + 4096, 8), Some(Access::ReadWrite), "touched by a user");
        let mut back = [0; 4];
        arena.read(pointer + 4094, &mut back).unwrap();
        assert_eq!(back, [1; 4]);
        arena.free_pages(pointer, 1);
        arena.read(pointer + 4094, &mut back).unwrap();
        assert_eq!(back, [0, 0, 1, 1]);
    }

    #[test]
    fn what_was_written_late_is_gone_when_a_page_comes_back() {
        let arena = arena(0);
        let pointer = arena.alloc_pages(0, 1).unwrap();
        arena.free_pages(pointer, 1);
        let offset = arena.checked(pointer, 8).unwrap();
        arena.region.write(offset, &[7; 8]);
        assert_eq!(arena.alloc_pages(pointer, 1), Some(pointer));
        let mut back = [1; 8];
        arena.read(pointer, &mut back).unwrap();
        assert_eq!(back, [0; 8]);
    }

    #[test]
    fn pages_are_named_by_the_low_half_of_a_pointer() {
        let arena = arena(0x10_0000_2000);
        assert_eq!(arena.alloc_pages(0x2000, 1), Some(0x10_0000_2000));
        arena.free_pages(0x2000, 1);
        assert_eq!(arena.alloc_pages(0, 10), Some(0x10_0000_2000));
        assert_eq!(arena.user_half(), 0x10_0000_0000);
    }
}
