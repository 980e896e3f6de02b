//! Unset bits of the stack, and of other memory that a program gets without contents.

use std::ops::Range;

use rustc_hash::FxHashMap;
use towpath_bpf::insn::STACK_BYTES;
use towpath_bpf::interp::MAX_CHAIN_FRAMES;

/// An instruction of one of the programs that ran; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub(super) struct Place(u32);

impl Place {
    pub(super) fn new(program: usize, slot: usize) -> Place {
        Place(((program as u32) << SLOT_BITS) | (slot as u32 + 1))
    }

    /// The program's number, and the instruction's slot.
    pub(super) fn get(self) -> Option<(usize, usize)> {
        let slot = (self.0 & ((1 << SLOT_BITS) - 1)).checked_sub(1)?;
        Some(((self.0 >> SLOT_BITS) as usize, slot as usize))
    }
}

/// A byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ByteShadow {
    /// Bits that are undefined.
    pub(super) bits: u8,
    /// The instruction that wrote it last, or gave it to the program without contents.
    pub(super) by: Place,
}

/// Everything that is not in here is defined.
#[derive(Debug)]
pub(super) struct Shadow {
    /// Address of the first byte of the stack.
    base: u64,
    bits: Vec<u8>,
    writers: Vec<Place>,
    /// Undefined bytes beside the stack, by address / 64.
    elsewhere: FxHashMap<u64, Box<Block>>,
    /// Where undefined contents came from, by the address of a stack word / 8.
    sources: FxHashMap<u64, Place>,
}

type Block = [ByteShadow; BLOCK_BYTES];

impl Shadow {
    pub(super) fn new() -> Shadow {
        let len = MAX_CHAIN_FRAMES * STACK_BYTES;
        Shadow {
            base: 0,
            bits: vec![0; len],
            writers: vec![Place::default(); len],
            elsewhere: FxHashMap::default(),
            sources: FxHashMap::default(),
        }
    }

    /// Starts another run, whose stack ends at `stack_top`.
    pub(super) fn restart(&mut self, stack_top: u64) {
        self.base = stack_top.wrapping_sub(self.bits.len() as u64);
        self.elsewhere.clear();
        self.sources.clear();
    }

    /// Enters a function: its stack below `top` has no contents.
    pub(super) fn enter(&mut self, top: u64) {
        let end = top.wrapping_sub(self.base) as usize;
        if let Some(start) = end.checked_sub(STACK_BYTES)
            && end <= self.bits.len()
        {
            self.bits[start..end].fill(0xff);
            self.writers[start..end].fill(Place::default());
        }
    }

    /// Whether only the stack may have undefined bits.
    pub(super) fn is_stack_only(&self) -> bool {
        self.elsewhere.is_empty()
    }

    /// Whether `addr` is an address of the stack.
    pub(super) fn is_of_stack(&self, addr: u64) -> bool {
        self.in_stack(addr, 1).is_some()
    }

    /// Undefined bits of the `len` (at most 8) bytes at an address, in the order of a load.
    #[inline]
    pub(super) fn load(&self, addr: u64, len: usize) -> u64 {
        if let Some(start) = self.in_stack(addr, len) {
            let mut bytes = [0; 8];
            bytes[..len].copy_from_slice(&self.bits[start..start + len]);
            return u64::from_le_bytes(bytes);
        }
        if self.elsewhere.is_empty() {
            return 0;
        }
        let byte = |index: usize| u64::from(self.byte(addr + index as u64).bits) << (index * 8);
        (0..len).map(byte).fold(0, |all, byte| all | byte)
    }

    /// Notes a store of `len` (at most 8) bytes.
    #[inline]
    pub(super) fn store(&mut self, addr: u64, len: usize, undefined: u64, by: Place) {
        let bytes = undefined.to_le_bytes();
        if let Some(start) = self.in_stack(addr, len) {
            self.bits[start..start + len].copy_from_slice(&bytes[..len]);
            self.writers[start..start + len].fill(by);
        } else if undefined & cut(len) != 0 || !self.elsewhere.is_empty() {
            for (index, &bits) in bytes[..len].iter().enumerate() {
                let (block, at) = place_of(addr + index as u64);
                self.set_elsewhere((block, at..at + 1), ByteShadow { bits, by });
            }
        }
    }

    /// Makes bytes defined (`bits` 0) or undefined (0xff).
    pub(super) fn fill(&mut self, addr: u64, len: u64, bits: u8, by: Place) {
        if let Some(start) = self.in_stack(addr, len as usize) {
            self.bits[start..start + len as usize].fill(bits);
            self.writers[start..start + len as usize].fill(by);
        } else if bits != 0 || !self.elsewhere.is_empty() {
            for part in blocks(addr, len) {
                self.set_elsewhere(part, ByteShadow { bits, by });
            }
        }
    }

    /// Whether all of these bytes are defined.
    #[inline]
    pub(super) fn is_defined(&self, addr: u64, len: u64) -> bool {
        if let Some(start) = self.in_stack(addr, len as usize) {
            return self.bits[start..start + len as usize].iter().all(|&bits| bits == 0);
        }
        self.elsewhere.is_empty()
            || blocks(addr, len).all(|(block, part)| {
                let known = self.elsewhere.get(&block);
                known.is_none_or(|block| block[part].iter().all(|byte| byte.bits == 0))
            })
    }

    /// A byte.
    pub(super) fn byte(&self, addr: u64) -> ByteShadow {
        if let Some(at) = self.in_stack(addr, 1) {
            return ByteShadow { bits: self.bits[at], by: self.writers[at] };
        }
        let (block, at) = place_of(addr);
        self.elsewhere.get(&block).map_or_else(ByteShadow::default, |block| block[at])
    }

    /// Notes where undefined contents of the word at an address came from.
    pub(super) fn note_source(&mut self, addr: u64, source: Place) {
        self.sources.insert(addr / 8, source);
    }

    /// Where undefined contents of the word at an address came from.
    pub(super) fn source(&self, addr: u64) -> Option<Place> {
        self.sources.get(&(addr / 8)).copied()
    }

    #[inline]
    fn in_stack(&self, addr: u64, len: usize) -> Option<usize> {
        let start = addr.wrapping_sub(self.base);
        let is_inside = start < self.bits.len() as u64 && len <= self.bits.len() - start as usize;
        is_inside.then_some(start as usize)
    }

    /// Sets a part of a block.
    fn set_elsewhere(&mut self, (block, part): (u64, Range<usize>), byte: ByteShadow) {
        if byte.bits != 0 {
            let bytes = self.elsewhere.entry(block).or_insert_with(|| Box::new(DEFINED));
            bytes[part].fill(byte);
        } else if let Some(bytes) = self.elsewhere.get_mut(&block) {
            bytes[part].fill(byte);
        }
    }
}

/// The block that has a byte, and the byte's index in it.
fn place_of(addr: u64) -> (u64, usize) {
    (addr / BLOCK_BYTES as u64, addr as usize % BLOCK_BYTES)
}

/// The blocks with the `len` bytes from an address on, with the part of each.
fn blocks(addr: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let (mut block, mut at) = place_of(addr);
    let mut left = len;
    std::iter::from_fn(move || {
        let part = at..BLOCK_BYTES.min(at.saturating_add(left as usize));
        let next = (left > 0).then(|| (block, part.clone()));
        left -= part.len() as u64;
        (block, at) = (block + 1, 0);
        next
    })
}

/// A mask of the bits of `len` bytes.
fn cut(len: usize) -> u64 {
    if len >= 8 { u64::MAX } else { (1 << (len * 8)) - 1 }
}

const DEFINED: Block = [ByteShadow { bits: 0, by: Place(0) }; BLOCK_BYTES];
const BLOCK_BYTES: usize = 64;
/// Programs have a million instructions at most.
const SLOT_BITS: u32 = 21;
