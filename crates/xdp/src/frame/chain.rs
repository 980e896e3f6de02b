//! A frame's further buffers, the frags (`skb_frag_t`): a chain of frames.
//!
//! Each frag is the part of its buffer between `data` and `data_end`. So a packet of many buffers
//! takes no memory besides theirs, as with DPDK's mbufs.

use super::rx_metadata::flag;
use super::{Body, FRAGS_MAX, Frame};
use crate::memory::SharedBytes;

impl Body {
    /// Number of frags.
    pub fn frag_count(&self) -> usize {
        self.frag_count as usize
    }

    /// Whether the frame is plain: a linear buffer without frags, offload work or TX metadata. RX
    /// metadata does not matter.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.has(flag::WORK)
    }

    /// Whether the packet has frags.
    #[inline]
    pub fn has_frags(&self) -> bool {
        self.has(flag::FRAGS)
    }

    /// The packet's pieces in order: the linear part, then the frags.
    pub fn shared_pieces(&self) -> impl Iterator<Item = SharedBytes<'_>> {
        let frags = self.frags().map(|frag| frag.shared_linear());
        std::iter::once(self.shared_linear()).chain(frags)
    }

    /// Appends the linear part of `piece` as the last frag. Returns the piece if there are
    /// [`FRAGS_MAX`] already.
    pub fn append(&mut self, piece: Frame) -> Result<(), Frame> {
        if self.frag_count() >= FRAGS_MAX {
            return Err(piece);
        }
        let (start, len) = (piece.data as usize, piece.linear_len());
        self.push_frag(piece, start, len);
        Ok(())
    }

    /// Appends the first `len` bytes of the whole buffer of `piece` ([`Body::buffer`]) as the last
    /// frag: a frag needs neither headroom nor tailroom. Returns the piece if there are
    /// [`FRAGS_MAX`] already.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter.
    pub fn append_buffer(&mut self, piece: Frame, len: usize) -> Result<(), Frame> {
        assert!(len <= piece.head.len(), "{len} bytes in a buffer of {}", piece.head.len());
        if self.frag_count() >= FRAGS_MAX {
            return Err(piece);
        }
        self.push_frag(piece, 0, len);
        Ok(())
    }

    pub(crate) fn frags(&self) -> impl Iterator<Item = &Frame> {
        std::iter::successors(self.next(), |frag| frag.next())
    }

    /// The packet's next buffer.
    #[inline]
    pub(super) fn next(&self) -> Option<&Frame> {
        if self.has(flag::FRAGS) { self.next.as_ref() } else { None }
    }

    /// As [`Body::next`], to change.
    #[inline]
    pub(super) fn next_mut(&mut self) -> Option<&mut Frame> {
        if self.has(flag::FRAGS) { self.next.as_mut() } else { None }
    }

    pub(super) fn last_frag_mut(&mut self) -> Option<&mut Frame> {
        let count = self.frag_count();
        let before = self.frag_mut(count.checked_sub(1)?);
        before.next_mut()
    }

    /// The buffer in front of frag `number`.
    fn frag_mut(&mut self, number: usize) -> &mut Body {
        let mut body = self;
        for _ in 0..number {
            body = body.next.as_mut().expect("there are as many frags as are counted");
        }
        body
    }

    /// Updates the frags' total length after a change of a frag.
    pub(super) fn note_frags(&mut self) {
        let frags_len = self.frags().map(|frag| frag.linear_len() as u32).sum();
        self.frags_len = frags_len;
    }

    pub(super) fn push_frag(&mut self, mut piece: Frame, offset: usize, len: usize) {
        piece.clear();
        (piece.data_meta, piece.data) = (offset as u32, offset as u32);
        piece.data_end = (offset + len) as u32;
        let last = self.frag_mut(self.frag_count());
        debug_assert!(last.next.is_none(), "the chain ends here");
        last.next = Some(piece);
        last.flags |= flag::FRAGS;
        self.frag_count += 1;
        self.frags_len += len as u32;
    }

    /// Removes the first frag.
    pub(super) fn pop_frag(&mut self) -> Option<Frame> {
        let mut first = if self.has(flag::FRAGS) { self.next.take()? } else { return None };
        self.next = first.next.take();
        if self.next.is_none() {
            self.flags &= !flag::FRAGS;
        }
        first.flags &= !flag::FRAGS;
        self.frag_count -= 1;
        self.frags_len -= first.linear_len() as u32;
        Some(first)
    }

    pub(super) fn spare_buffer(&mut self) -> Option<Frame> {
        let mut first = if self.has(flag::SPARE) { self.spare.take()? } else { return None };
        self.spare = first.next.take();
        if self.spare.is_none() {
            self.flags &= !flag::SPARE;
        }
        Some(first)
    }

    /// Keeps a buffer for later.
    pub(super) fn put_spare(&mut self, mut buffer: Frame) {
        buffer.next = self.spare.take();
        self.spare = Some(buffer);
        self.flags |= flag::SPARE;
    }

    /// Drops all frags from `keep` on; their buffers are kept for later.
    #[cold]
    pub(super) fn release_frags(&mut self, keep: usize) {
        let last = self.frag_mut(keep);
        last.flags &= !flag::FRAGS;
        let mut released = last.next.take();
        while let Some(mut frag) = released {
            released = frag.next.take();
            frag.flags &= !flag::FRAGS;
            self.put_spare(frag);
        }
        self.frag_count = keep as u16;
        self.note_frags();
    }

    /// Removes the buffers of all frags, used and spare ones, and appends those of the arena to
    /// `into`.
    #[cold]
    pub(super) fn strip(&mut self, into: &mut Vec<Frame>) {
        if self.has(flag::FRAGS) {
            self.release_frags(0);
        }
        while let Some(mut buffer) = self.spare_buffer() {
            buffer.strip(into);
            if !buffer.has(flag::OWNER) {
                into.push(buffer);
            }
        }
    }
}
