//! Bytes of the heap in place of `towpath_xdp`'s blocks, which may be mappings.

#![expect(unsafe_code, reason = "memory that is reached by address, as a mapping is")]

use std::ptr::NonNull;

use crate::shared_unsafe::{SharedBytes, SharedBytesMut};

/// Bytes that are freed with it.
pub struct Block(NonNull<[u8]>);

impl Block {
    /// So many zero bytes.
    pub fn new(len: usize) -> Block {
        let bytes = Box::into_raw(vec![0; len].into_boxed_slice());
        Block(NonNull::new(bytes).expect("a box is somewhere"))
    }

    /// To read.
    pub fn shared(&self) -> SharedBytes<'_> {
        // SAFETY: bytes of our own, which stay as long as `self`, and nobody writes meanwhile.
        unsafe { SharedBytes::new(self.0.cast(), self.0.len()) }
    }

    /// To write.
    pub fn shared_mut(&mut self) -> SharedBytesMut<'_> {
        // SAFETY: as above; nobody else has them.
        unsafe { SharedBytesMut::new(self.0.cast(), self.0.len()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: they came out of a box, and nothing borrows them any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
