//! An owned, zeroed piece of memory at an address that never changes.

#![expect(unsafe_code, reason = "memory whose address programs hold cannot be a plain Vec")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Mapping, SharedBytes, SharedBytesMut};

/// Memory for frames, stacks and objects. Aligned to a cache line, zero when new.
///
/// The safe accessors borrow the block; programs reach it by address between such borrows
/// ([`super::Grant`]).
#[repr(C)]
pub(crate) struct Block {
    base: NonNull<u8>,
    /// The mapping that it is a part of; `None` if it was allocated.
    whole: Option<Arc<Mapping>>,
    len: u32,
}

// SAFETY: a block owns its memory, and nothing in it depends on the thread.
unsafe impl Send for Block {}
// SAFETY: `&Block` only reads; programs write through addresses only during a run, which holds the
// owner of the block exclusively.
unsafe impl Sync for Block {}

impl Block {
    /// Offset of the address field in a block, for compiled code.
    pub(crate) const BASE_OFFSET: usize = std::mem::offset_of!(Block, base);

    /// `len` zero bytes (at least one cache line).
    pub(crate) fn new(len: usize) -> Block {
        let layout = layout(len);
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        // Addresses made from integers later on refer to this allocation.
        let _exposed = base.as_ptr().expose_provenance();
        let len = u32::try_from(len).expect("blocks are small");
        Block { base, whole: None, len }
    }

    /// `len` bytes of a mapping.
    ///
    /// # Safety
    ///
    /// The bytes are inside the mapping, and no other block has them until this one is dropped.
    pub(super) unsafe fn within(base: NonNull<u8>, len: usize, whole: Arc<Mapping>) -> Block {
        let len = u32::try_from(len).expect("blocks are small");
        Block { base, whole: Some(whole), len }
    }

    /// Address of the first byte.
    #[inline]
    pub(crate) fn addr(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Prefetches the cache line at an offset; changes nothing.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = self.base.as_ptr().wrapping_add(offset);
            // SAFETY: a prefetch of any address is harmless, and this one is ours or next to it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _no_stable_prefetch = offset;
    }

    /// Prefetches the cache line at an offset for writing, even from another core; changes nothing.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, offset: usize) {
        prefetch_to_write(self.base.as_ptr().wrapping_add(offset));
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// The contents.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory has `len` initialised bytes (zeroed when made) and lives as long
        // as `self`; no program runs during the borrow, since a run borrows the owner mutably.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len()) }
    }

    /// The contents, if another process may write to them as well.
    #[inline]
    pub(crate) fn shared(&self) -> SharedBytes<'_> {
        // SAFETY: as in `bytes`.
        unsafe { SharedBytes::new(self.base, self.len()) }
    }

    /// As [`Block::shared`], mutable.
    #[inline]
    pub(crate) fn shared_mut(&mut self) -> SharedBytesMut<'_> {
        // SAFETY: as in `bytes`, and the borrow is exclusive.
        unsafe { SharedBytesMut::new(self.base, self.len()) }
    }

    /// The contents, mutable.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match &self.whole {
            Some(whole) => whole.reclaim(self.base, self.len()),
            // SAFETY: allocated in `new` with the same layout.
            None => unsafe { dealloc(self.base.as_ptr(), layout(self.len())) },
        }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({:#x}, {} bytes)", self.addr(), self.len)
    }
}

fn layout(len: usize) -> Layout {
    let size = len.max(LINE_BYTES).min(isize::MAX as usize - LINE_BYTES);
    Layout::from_size_align(size, LINE_BYTES)
        .expect("the size is capped and the alignment a power of two")
}

const LINE_BYTES: usize = 64;
/// Prefetches a cache line for writing; changes nothing.
#[inline]
pub(crate) fn prefetch_to_write<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _no_stable_prefetch = address;
}
