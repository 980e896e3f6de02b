//! Facts that verification proved about each instruction, for compilers.
//!
//! A fact holds on every path that reaches the instruction. Differences between paths widen it (a
//! constant becomes a range, a pointer kind becomes `Mixed`).

use crate::insn::STACK_BYTES;

/// Facts about one instruction slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InsnFacts {
    /// Whether some path reaches it; an unreached instruction can be left out.
    pub reachable: bool,
    /// For loads, stores and atomics: the accessed memory.
    pub access: Option<AccessFact>,
    /// For conditional jumps: the outcomes that occur.
    pub branch: BranchFact,
    /// For ALU operations and jumps, with [`super::Options::every_number`]: values of the
    /// destination operand before the instruction.
    pub dst: Option<Range>,
    /// As `dst`, for the source register operand.
    pub src: Option<Range>,
    /// For calls with a map argument: the map, if all paths agree.
    pub map: Option<MapFact>,
    /// For calls with a key argument on the stack (or a tail call): its value if all paths agree.
    pub constant_key: ConstantKey,
    /// For calls: bytes of the running function's own stack that the callee reads or writes.
    /// Further bytes are in [`super::SubprogramFacts::reached`].
    pub stack_args: Vec<StackArg>,
    /// For loads and stores: own stack bytes accessed at a constant offset on some path.
    pub(crate) own_stack: Option<(i16, u16)>,
}

/// Bytes of a function's own stack that a call can access through one of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackArg {
    /// Number of the register that holds the address, 1 to 5.
    pub register: u8,
    /// Offset from the frame pointer, in bytes.
    pub offset: i16,
    /// Number of bytes.
    pub len: u16,
}

/// A set of bytes of one function's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackBytes([u64; STACK_BYTES / 64]);

impl StackBytes {
    /// Adds the bytes `start..end`, by distance from the frame pointer.
    pub fn add(&mut self, start: i64, end: i64) {
        let depth = STACK_BYTES as i64;
        for byte in start.max(-depth)..end.min(0) {
            let byte = (byte + depth) as usize;
            self.0[byte / 64] |= 1 << (byte % 64);
        }
    }

    /// Adds all bytes of another set.
    pub fn add_all(&mut self, other: &StackBytes) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }

    /// Whether one of the bytes `start..end`, by distance from the frame pointer, is in the set.
    pub fn overlaps(&self, start: i64, end: i64) -> bool {
        (start..end).any(|byte| self.contains(byte))
    }

    /// Whether the byte at this distance from the frame pointer is in the set.
    pub fn contains(&self, offset: i64) -> bool {
        let byte = offset + STACK_BYTES as i64;
        usize::try_from(byte)
            .ok()
            .and_then(|byte| self.0.get(byte / 64).map(|word| word >> (byte % 64) & 1 != 0))
            .unwrap_or(false)
    }
}

/// Largest number of ranges for one call; with more, the bytes count as reached from anywhere.
const STACK_ARGS_MAX: usize = 16;

/// The memory that an access touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessFact {
    /// `struct xdp_md`.
    Ctx {
        /// Offset from its start, in bytes.
        offset: i32,
    },
    /// `struct xdp_md` of a packet out of a queue: the address stands for that packet.
    Frame {
        /// Offset from its start, in bytes.
        offset: i32,
    },
    /// Memory between `data` (or `data_meta`) and `data_end`, of the context's packet or of one out
    /// of a queue.
    Packet,
    /// The stack of the function's own frame (`up` = 0) or of a caller.
    Stack {
        /// Number of frames up from the running one, if all paths agree.
        up: u32,
        /// Offset from that frame's frame pointer in bytes, if constant.
        offset: Option<i32>,
    },
    /// The value of an object's map (of its inner map template, with `inner`).
    MapValue {
        /// Index into [`crate::Linked::maps`].
        map: u32,
        /// Whether it is a value of an inner map.
        inner: bool,
        /// Offset from the start of the value in bytes, if constant.
        offset: Option<i32>,
    },
    /// Memory of proved size: ring buffer records, dynptr slices, allocated objects, map keys.
    Mem,
    /// A typed kernel pointer that can be stale: a faulting load gives 0 (probe semantics).
    ProbeRead,
    /// A typed kernel pointer that is valid.
    Btf,
    /// An arena pointer: 32 bits within the arena, faults give 0.
    Arena,
    /// Different kinds on different paths.
    Mixed,
}

/// Outcomes of a conditional jump.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BranchFact {
    /// Whether some path jumps.
    pub taken: bool,
    /// Whether some path falls through.
    pub fallthrough: bool,
}

/// Bounds of an operand, over all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Range {
    /// Smallest value, unsigned.
    pub umin: u64,
    /// Largest value, unsigned.
    pub umax: u64,
    /// Smallest value, signed.
    pub smin: i64,
    /// Largest value, signed.
    pub smax: i64,
    /// Bits that may be 1.
    pub maybe_ones: u64,
    /// Bits that are always 1.
    pub ones: u64,
    /// Smallest and largest value of the lower half, unsigned.
    pub low_unsigned: (u32, u32),
    /// Smallest and largest value of the lower half, signed.
    pub low_signed: (i32, i32),
}

impl Range {
    /// Any number or pointer.
    pub const UNKNOWN: Range = Range {
        umin: 0,
        umax: u64::MAX,
        smin: i64::MIN,
        smax: i64::MAX,
        maybe_ones: u64::MAX,
        ones: 0,
        low_unsigned: (0, u32::MAX),
        low_signed: (i32::MIN, i32::MAX),
    };

    /// Whether the value is within the bounds.
    pub fn contains(&self, value: u64) -> bool {
        let (signed, low) = (value.cast_signed(), value as u32);
        let low_signed = low.cast_signed();
        (self.umin..=self.umax).contains(&value)
            && (self.smin..=self.smax).contains(&signed)
            && value & !self.maybe_ones == 0
            && value & self.ones == self.ones
            && (self.low_unsigned.0..=self.low_unsigned.1).contains(&low)
            && (self.low_signed.0..=self.low_signed.1).contains(&low_signed)
    }

    /// The only possible value, if there is only one.
    pub fn constant(&self) -> Option<u64> {
        (self.umin == self.umax).then_some(self.umin)
    }

    /// The smallest bounds that include both.
    pub(crate) fn widen(self, other: Range) -> Range {
        Range {
            umin: self.umin.min(other.umin),
            umax: self.umax.max(other.umax),
            smin: self.smin.min(other.smin),
            smax: self.smax.max(other.smax),
            maybe_ones: self.maybe_ones | other.maybe_ones,
            ones: self.ones & other.ones,
            low_unsigned: hull(self.low_unsigned, other.low_unsigned),
            low_signed: hull(self.low_signed, other.low_signed),
        }
    }
}

/// The smallest range that includes both.
fn hull<T: Ord>(a: (T, T), b: (T, T)) -> (T, T) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// The map of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapFact {
    /// One map on all paths.
    One {
        /// Index into [`crate::Linked::maps`].
        map: u32,
        /// Whether it is the inner map of `map`.
        inner: bool,
    },
    /// Several maps that differ from this one only in capacity and contents
    /// ([`is_like`](crate::MapDef::is_like)).
    Alike {
        /// Index into [`crate::Linked::maps`].
        map: u32,
        /// Whether it is the inner map of `map`.
        inner: bool,
    },
    /// Several maps.
    Several,
}

impl MapFact {
    /// The map, or one that is like all of them: its index, and whether it is the inner map.
    pub fn example(self) -> Option<(u32, bool)> {
        match self {
            MapFact::One { map, inner } | MapFact::Alike { map, inner } => Some((map, inner)),
            MapFact::Several => None,
        }
    }
}

/// The key of a lookup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConstantKey {
    /// Unknown, or there is no key.
    #[default]
    None,
    /// The same constant on all paths.
    Is(u64),
    /// Not constant.
    Varies,
}

impl InsnFacts {
    /// Adds the access of one path.
    pub(crate) fn add_access(&mut self, access: AccessFact) {
        self.access = Some(match self.access {
            None => access,
            Some(before) => merge_access(before, access),
        });
    }

    /// Adds a range that a call can access on one path; false if there are too many.
    pub(crate) fn add_stack_arg(&mut self, arg: StackArg) -> bool {
        if self.stack_args.contains(&arg) {
            return true;
        }
        let fits = self.stack_args.len() < STACK_ARGS_MAX;
        if fits {
            self.stack_args.push(arg);
        }
        fits
    }

    /// Whether the instruction accesses its function's own stack at one offset, on all paths.
    pub(crate) fn is_own_stack(&self) -> bool {
        matches!(self.access, Some(AccessFact::Stack { up: 0, offset: Some(_) }))
    }

    /// Adds the map of one path; `is_like` tells whether it is like the example so far, if there is
    /// one.
    pub(crate) fn add_map(&mut self, map: u32, inner: bool, is_like: bool) {
        let now = MapFact::One { map, inner };
        self.map = Some(match self.map {
            None => now,
            Some(before) if before == now => now,
            Some(MapFact::Several) => MapFact::Several,
            Some(_) if is_like => MapFact::Alike { map, inner },
            Some(_) => MapFact::Several,
        });
    }

    /// Adds the key of one path; `None` if it isn't a known constant.
    pub(crate) fn add_key(&mut self, key: Option<u64>) {
        self.constant_key = match (self.constant_key, key) {
            (ConstantKey::None, Some(key)) => ConstantKey::Is(key),
            (ConstantKey::Is(before), Some(key)) if before == key => ConstantKey::Is(key),
            _ => ConstantKey::Varies,
        };
    }
}

fn merge_access(before: AccessFact, now: AccessFact) -> AccessFact {
    use AccessFact::{MapValue, Mixed, ProbeRead, Stack};
    match (before, now) {
        (a, b) if a == b => a,
        (Stack { up: a, .. }, Stack { up: b, .. }) if a == b => Stack { up: a, offset: None },
        (MapValue { map, inner, .. }, MapValue { map: other, inner: other_inner, .. })
            if map == other && inner == other_inner =>
        {
            MapValue { map, inner, offset: None }
        }
        // If one path is uncertain, the access must be checked on all of them.
        (ProbeRead, _) | (_, ProbeRead) => ProbeRead,
        _ => Mixed,
    }
}
