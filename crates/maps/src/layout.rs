//! Addresses of a map's memory, as constants that a compiler can build into code.
//!
//! Maps never move, so an array access becomes an addition and a hash look-up a loop over known
//! addresses. A user of these numbers must hold the map and keep the rules of [`crate::qsbr`].

/// The place of the values of an array that is unknown when code is compiled: an inner map. It lies
/// in the [`Map`](crate::Map), [`ArrayView::OFFSET`] bytes from what a program holds for it.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ArrayView {
    /// Address of the first value.
    pub base: u64,
    /// Bytes from CPU to CPU; 0 when all share the values.
    pub cpu_stride: u64,
    /// Number of values of a CPU; 0 for other kinds of maps.
    pub entries: u32,
}

impl ArrayView {
    /// The view of a map with this layout.
    pub(crate) fn of(layout: Option<Layout>) -> ArrayView {
        match layout {
            Some(Layout::Array { base, entries, stride: _, cpu_stride }) => {
                ArrayView { base, cpu_stride, entries }
            }
            _ => ArrayView::default(),
        }
    }
}

/// The layout of one map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// ARRAY and PERCPU_ARRAY: value `i` of CPU `c` is at `base + c * cpu_stride + i * stride`.
    Array {
        /// Address of the first value.
        base: u64,
        /// Number of values of a CPU.
        entries: u32,
        /// Bytes from value to value.
        stride: u64,
        /// Bytes from CPU to CPU; 0 when all share the values.
        cpu_stride: u64,
    },
    /// ARRAY_OF_MAPS: slot `i` is the 64-bit handle of a map at `base + 8 * i`, 0 when empty. A
    /// handle that was read with acquire order stays valid until the worker is quiescent.
    Handles {
        /// Address of the first slot.
        base: u64,
        /// Number of slots.
        entries: u32,
    },
    /// DEVMAP, CPUMAP and XSKMAP: entry `i` is the 64-bit word at `base + 8 * i`, 0 when empty; its
    /// low half is [`TargetEntry::number`](crate::TargetEntry), its high half the id.
    Targets {
        /// Address of the first entry.
        base: u64,
        /// Number of entries.
        entries: u32,
    },
    /// HASH, LRU_HASH and their per-CPU forms. A link (a bucket's head, an element's first word)
    /// is a 32-bit index of an element plus one, 0 at the end of the chain.
    Hash {
        /// Address of the first bucket: 8 bytes each, the head first.
        buckets: u64,
        /// Number of buckets minus one.
        mask: u32,
        /// Address of the first element: link, hash, two private words, then the key at 16.
        elements: u64,
        /// Bytes from element to element.
        stride: u64,
        /// Bytes from an element's start to its value; not for per-CPU kinds.
        value_offset: u64,
        /// Per-CPU kinds: address of CPU 0's first value, bytes from element to element, and from
        /// CPU to CPU.
        percpu: Option<(u64, u64, u64)>,
        /// The two secrets of the hash, unless the kernel's hash is used (`BPF_F_ZERO_SEED`).
        seed: Option<[u64; 2]>,
        /// Address of the 64-bit count that changes when a walk must start again.
        reuses: u64,
    },
}
