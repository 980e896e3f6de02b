//! Slices of a frame in memory that only this process writes.
//!
//! A [`Body`] gives no slices, because its buffers may be lent ([`super::external`]) and their
//! owner may write to them at any time. [`Body::own`] checks once, and returns the only type with
//! slices; if it returns `None`, bytes must be copied.

use super::rx_metadata::flag;
use super::{BUFFER_BYTES, Body, HEADROOM_BYTES, TAILROOM_BYTES};

/// A frame whose buffers are all memory that only this process writes to.
///
/// ```
/// use towpath_xdp::Frame;
///
/// let frame = Frame::new(&[7; 64])?;
/// let own = frame.own().expect("its memory is not lent");
/// assert_eq!(own.linear(), &[7; 64]);
/// # Ok::<(), towpath_xdp::FrameError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct OwnFrame<'f>(&'f Body);

/// As [`OwnFrame`], with write access to its first buffer.
#[derive(Debug)]
pub struct OwnFrameMut<'f>(&'f mut Body);

impl<'f> OwnFrame<'f> {
    /// The part of the packet between `data` and `data_end`.
    #[inline]
    pub fn linear(self) -> &'f [u8] {
        self.0.head_slice(self.0.data, self.0.data_end)
    }

    /// The metadata in front of the packet.
    #[inline]
    pub fn metadata(self) -> &'f [u8] {
        self.0.head_slice(self.0.data_meta, self.0.data)
    }

    /// The packet's pieces in order: the linear part, then the frags.
    #[inline]
    pub fn pieces(self) -> impl Iterator<Item = &'f [u8]> {
        let frags = self.0.frags().map(|frag| OwnFrame(frag).linear());
        std::iter::once(self.linear()).chain(frags)
    }
}

impl<'f> OwnFrameMut<'f> {
    /// The part of the packet between `data` and `data_end`.
    #[inline]
    pub fn linear(self) -> &'f mut [u8] {
        &mut self.0.head.bytes_mut()[self.0.data as usize..self.0.data_end as usize]
    }

    /// [`Body::room`] as a slice.
    #[inline]
    pub fn room(self) -> &'f mut [u8] {
        &mut self.0.head.bytes_mut()[HEADROOM_BYTES..BUFFER_BYTES - TAILROOM_BYTES]
    }

    /// [`Body::buffer`] as a slice.
    #[inline]
    pub fn buffer(self) -> &'f mut [u8] {
        self.0.head.bytes_mut()
    }
}

impl Body {
    /// The frame as slices, if none of its buffers is lent.
    #[inline]
    pub fn own(&self) -> Option<OwnFrame<'_>> {
        let is_lent = self.is_external() || self.frags().any(|frag| frag.is_external());
        (!is_lent).then_some(OwnFrame(self))
    }

    /// The first buffer as a mutable slice, if it is not lent.
    #[inline]
    pub fn own_mut(&mut self) -> Option<OwnFrameMut<'_>> {
        (!self.is_external()).then_some(OwnFrameMut(self))
    }

    /// The packet, if it is plain and not lent: no frags and no work left to do.
    #[inline]
    pub fn plain_linear(&self) -> Option<&[u8]> {
        let is_plain = self.flags & (flag::WORK | flag::EXTERNAL) == 0;
        (is_plain && self.data_meta == self.data).then(|| OwnFrame(self).linear())
    }

    /// The result of `look` for the linear part of the packet, or for a copy of it if the memory is
    /// lent.
    #[inline]
    pub fn with_linear<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        let copy;
        let bytes = if self.is_external() {
            copy = self.copied_linear();
            &copy
        } else {
            OwnFrame(self).linear()
        };
        look(bytes)
    }

    #[inline]
    fn head_slice(&self, from: u32, to: u32) -> &[u8] {
        &self.head.bytes()[from as usize..to as usize]
    }

    /// A separate function, so that the fast path stays small.
    #[cold]
    #[inline(never)]
    fn copied_linear(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.linear_len());
        self.shared_linear().append_to(&mut bytes);
        bytes
    }
}
