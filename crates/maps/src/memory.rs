//! Memory of a map, reached by offset: the real one, or one that loom can watch.

#[cfg(not(loom))]
pub(crate) use crate::memory_unsafe::Region;

#[cfg(loom)]
pub(crate) use crate::memory_loom::Region;

/// Most bytes one map may reserve. Reserved is not used: pages come when they are touched.
pub(crate) const REGION_BYTES_MAX: u64 = 1 << 40;

/// Size of a page, the unit of ring buffers and arenas.
pub(crate) const PAGE_BYTES: usize = 4096;
