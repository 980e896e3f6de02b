//! Bytes that another process may change at any time: raw access, never a reference.
//!
//! A Rust reference guarantees that no other code writes (`&`), or that no other code reads or
//! writes (`&mut`). An application that has its packet memory mapped, a guest, or the kernel
//! filling a buffer gives no such guarantee. So their bytes are only copied in and out here, and
//! decisions are made on a copy. A copy taken during a write is a mixture of old and new bytes,
//! which the writer could have written itself.

#![expect(unsafe_code, reason = "memory that others write cannot be a slice")]

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// A readable range of shared bytes, which stays mapped for `'a`.
#[derive(Debug, Clone, Copy)]
pub struct SharedBytes<'a> {
    base: NonNull<u8>,
    len: usize,
    of: PhantomData<&'a u8>,
}

/// A writable range of shared bytes: other processes may write there, but no other code of this
/// process.
#[derive(Debug)]
pub struct SharedBytesMut<'a> {
    base: NonNull<u8>,
    len: usize,
    of: PhantomData<&'a mut u8>,
}

impl<'a> SharedBytes<'a> {
    /// `len` bytes from `base` on.
    ///
    /// # Safety
    ///
    /// They are initialised and readable for `'a`, in one allocation or mapping, and no code of
    /// this process writes to them meanwhile.
    #[inline]
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> SharedBytes<'a> {
        SharedBytes { base, len, of: PhantomData }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether the range is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Address of the first byte, for system calls.
    #[inline]
    pub fn as_ptr(self) -> *const u8 {
        self.base.as_ptr()
    }

    /// A part of the range.
    ///
    /// # Panics
    ///
    /// If the part is not inside.
    #[inline]
    pub fn part(self, range: Range<usize>) -> SharedBytes<'a> {
        assert!(range.start <= range.end && range.end <= self.len, "a part is inside");
        // SAFETY: inside of one allocation, checked above.
        let base = unsafe { self.base.add(range.start) };
        SharedBytes { base, len: range.end - range.start, of: PhantomData }
    }

    /// Copies all bytes out.
    ///
    /// # Panics
    ///
    /// If `out` has another length.
    #[inline]
    pub fn read(self, out: &mut [u8]) {
        assert_eq!(self.len, out.len(), "as many bytes as there are");
        // SAFETY: both are that long, and `out` is ours alone, so they don't overlap.
        unsafe { self.base.as_ptr().copy_to_nonoverlapping(out.as_mut_ptr(), self.len) };
    }

    /// Appends a copy of all bytes.
    pub fn append_to(self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.len, 0);
        self.read(&mut out[start..]);
    }
}

impl<'a> SharedBytesMut<'a> {
    /// `len` bytes from `base` on.
    ///
    /// # Safety
    ///
    /// They are initialised, readable and writable for `'a`, in one allocation or mapping, and no
    /// other code of this process reads or writes them meanwhile.
    #[inline]
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> SharedBytesMut<'a> {
        SharedBytesMut { base, len, of: PhantomData }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte, for system calls and special copy functions.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Reborrows the range.
    #[inline]
    pub fn by_ref(&mut self) -> SharedBytesMut<'_> {
        SharedBytesMut { base: self.base, len: self.len, of: PhantomData }
    }

    /// The same range, readable.
    #[inline]
    pub fn as_shared(&self) -> SharedBytes<'_> {
        SharedBytes { base: self.base, len: self.len, of: PhantomData }
    }

    /// A part of the range.
    ///
    /// # Panics
    ///
    /// If the part is not inside.
    #[inline]
    pub fn part(self, range: Range<usize>) -> SharedBytesMut<'a> {
        assert!(range.start <= range.end && range.end <= self.len, "a part is inside");
        // SAFETY: inside of one allocation, checked above.
        let base = unsafe { self.base.add(range.start) };
        SharedBytesMut { base, len: range.end - range.start, of: PhantomData }
    }

    /// Overwrites all bytes.
    ///
    /// # Panics
    ///
    /// If `bytes` has another length.
    #[inline]
    pub fn write(self, bytes: &[u8]) {
        assert_eq!(self.len, bytes.len(), "as many bytes as there are");
        // SAFETY: both are that long, and only this refers to ours, so they don't overlap.
        unsafe { self.base.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), self.len) };
    }

    /// Overwrites all bytes by a copy of `from`.
    ///
    /// # Panics
    ///
    /// If `from` has another length.
    #[inline]
    pub fn copy_from(self, from: SharedBytes<'_>) {
        assert_eq!(self.len, from.len, "as many bytes as there are");
        // SAFETY: both are that long, and only this refers to ours, so they don't overlap.
        unsafe { self.base.as_ptr().copy_from_nonoverlapping(from.base.as_ptr(), self.len) };
    }

    /// Copies a part of the range to offset `to`; the two may overlap.
    ///
    /// # Panics
    ///
    /// If source or destination is not inside.
    #[inline]
    pub fn copy_within(self, from: Range<usize>, to: usize) {
        let len = from.end.checked_sub(from.start).expect("a range from front to back");
        assert!(from.end <= self.len && to <= self.len - len, "both are inside");
        // SAFETY: both are inside of one allocation, checked above.
        unsafe { self.base.as_ptr().add(from.start).copy_to(self.base.as_ptr().add(to), len) };
    }

    /// Sets all bytes to 0.
    #[inline]
    pub fn clear(self) {
        // SAFETY: they are that long and writable, by `new`.
        unsafe { self.base.as_ptr().write_bytes(0, self.len) };
    }
}

/// A slice of this process, where shared bytes are accepted as well.
impl<'a> From<&'a [u8]> for SharedBytes<'a> {
    fn from(bytes: &'a [u8]) -> SharedBytes<'a> {
        SharedBytes { base: NonNull::from(bytes).cast(), len: bytes.len(), of: PhantomData }
    }
}

/// A mutable slice of this process, where shared bytes are accepted as well.
impl<'a> From<&'a mut [u8]> for SharedBytesMut<'a> {
    fn from(bytes: &'a mut [u8]) -> SharedBytesMut<'a> {
        let len = bytes.len();
        SharedBytesMut { base: NonNull::from(bytes).cast(), len, of: PhantomData }
    }
}

/// `cargo +nightly miri test -p towpath-xdp memory::shared` runs these.
#[cfg(test)]
mod tests {
    use super::super::Block;

    fn numbered() -> Block {
        let mut block = Block::new(64);
        block.shared_mut().write(&(0..64).collect::<Vec<u8>>());
        block
    }

    fn bytes(block: &Block) -> Vec<u8> {
        let mut all = Vec::new();
        block.shared().append_to(&mut all);
        all
    }

    #[test]
    fn bytes_go_in_and_out() {
        let mut block = numbered();
        let (mut out, mut tail) = ([0; 4], vec![7]);
        block.shared().part(8..12).read(&mut out);
        assert_eq!(out, [8, 9, 10, 11]);
        block.shared().part(60..64).append_to(&mut tail);
        assert_eq!(tail, [7, 60, 61, 62, 63]);
        block.shared_mut().part(0..2).write(&[5, 6]);
        block.shared_mut().part(62..64).clear();
        block.shared_mut().part(64..64).write(&[]);
        let other = numbered();
        block.shared_mut().part(2..4).copy_from(other.shared().part(40..42));
        let all = bytes(&block);
        assert_eq!((&all[..5], &all[61..]), (&[5, 6, 40, 41, 4][..], &[61, 0, 0][..]));
        assert!(block.shared().part(64..64).is_empty() && block.shared().len() == 64);
    }

    #[test]
    fn they_move_over_themselves() {
        for (from, to) in [(0..32, 3), (3..35, 0), (5..9, 5), (0..64, 0)] {
            let mut expected: Vec<u8> = (0..64).collect();
            expected.copy_within(from.clone(), to);
            let mut block = numbered();
            block.shared_mut().copy_within(from, to);
            assert_eq!(bytes(&block), expected);
        }
    }

    #[test]
    fn nothing_is_outside() {
        let is_refused = |attempt: fn(&mut Block)| {
            let attempt = || attempt(&mut numbered());
            std::panic::catch_unwind(attempt).is_err()
        };
        assert!(is_refused(|block| block.shared_mut().part(60..65).clear()));
        assert!(is_refused(|block| block.shared_mut().part(0..usize::MAX).clear()));
        assert!(is_refused(|block| block.shared().part(65..65).read(&mut [])));
        assert!(is_refused(|block| block.shared().read(&mut [0; 63])));
        assert!(is_refused(|block| block.shared_mut().write(&[0; 65])));
        assert!(is_refused(|block| block.shared_mut().copy_within(0..32, 33)));
        assert!(is_refused(|block| block.shared_mut().copy_within(33..65, 0)));
        assert!(is_refused(|block| block.shared_mut().copy_within(0..8, usize::MAX)));
        assert!(!is_refused(|block| block.shared_mut().part(0..64).clear()));
    }
}
