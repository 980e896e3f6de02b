//! A frame's further buffers, the frags, and the rest that few frames have.

use super::offload::{Checksum, Offload};
use super::{Body, FRAGS_MAX, Frame};

/// What most frames do without.
#[derive(Debug, Default)]
pub(super) struct Rare {
    pub(super) frags: Vec<Frag>,
    /// Buffers that held frags and may again.
    pub(super) spare: Vec<Frame>,
    /// Work left to whoever sends the frame.
    pub(super) offload: Option<Offload>,
    /// Where `data` was when that was stated. A checksum belongs to bytes in the buffer, as in the
    /// kernel (`skb->csum_start`), wherever a program moves the head.
    pub(super) offload_base: u32,
}

/// A further buffer of a frame (`skb_frag_t`): a part of another frame's linear buffer.
#[derive(Debug)]
pub(crate) struct Frag {
    pub(super) buffer: Frame,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

impl Frag {
    /// Address of its first byte.
    pub(crate) fn addr(&self) -> u64 {
        self.buffer.head.addr() + u64::from(self.offset)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let start = self.offset as usize;
        &self.buffer.head.bytes()[start..start + self.len as usize]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.offset as usize;
        &mut self.buffer.head.bytes_mut()[start..start + self.len as usize]
    }

    /// Makes it longer by `bytes` zeros, for which there must be room.
    pub(super) fn grow(&mut self, bytes: usize) {
        let end = (self.offset + self.len) as usize;
        self.buffer.head.bytes_mut()[end..end + bytes].fill(0);
        self.len += bytes as u32;
    }
}

impl Body {
    /// Number of frags.
    pub fn frag_count(&self) -> usize {
        self.frags().len()
    }

    /// Whether there is nothing but a linear buffer: neither frags nor work left to do.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.rare.is_none()
    }

    /// Whether there is more than the linear buffer.
    #[inline]
    pub fn has_frags(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| !rare.frags.is_empty())
    }

    /// The packet's pieces in order: the linear part, then the frags.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.linear()).chain(self.frags().iter().map(Frag::bytes))
    }

    /// As [`Body::pieces`], to change.
    pub fn pieces_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let linear = self.data as usize..self.data_end as usize;
        let frags = self.rare.iter_mut().flat_map(|rare| &mut rare.frags).map(Frag::bytes_mut);
        std::iter::once(&mut self.head.bytes_mut()[linear]).chain(frags)
    }

    /// Makes the linear part of `piece` this frame's last frag. Gives the piece back when there
    /// are [`FRAGS_MAX`] already.
    pub fn append(&mut self, piece: Frame) -> Result<(), Frame> {
        if self.frag_count() >= FRAGS_MAX {
            return Err(piece);
        }
        let (start, len) = (piece.data as usize, piece.linear_len());
        self.push_frag(piece, start, len);
        Ok(())
    }

    /// Makes the first `len` bytes of the whole buffer of `piece` ([`Body::buffer_mut`]) this
    /// frame's last frag: a frag needs neither headroom nor tailroom. Gives the piece back when
    /// there are [`FRAGS_MAX`] already.
    ///
    /// # Panics
    ///
    /// When the buffer is shorter.
    pub fn append_buffer(&mut self, piece: Frame, len: usize) -> Result<(), Frame> {
        assert!(len <= piece.head.len(), "{len} bytes in a buffer of {}", piece.head.len());
        if self.frag_count() >= FRAGS_MAX {
            return Err(piece);
        }
        self.push_frag(piece, 0, len);
        Ok(())
    }

    pub(crate) fn frags(&self) -> &[Frag] {
        self.rare.as_ref().map_or(&[], |rare| &rare.frags)
    }

    /// Counts the bytes in frags again: after every change to one.
    pub(super) fn note_frags(&mut self) {
        self.frags_len = self.frags().iter().map(|frag| frag.len).sum();
    }

    pub(super) fn last_frag_mut(&mut self) -> Option<&mut Frag> {
        self.rare.as_mut()?.frags.last_mut()
    }

    pub(super) fn push_frag(&mut self, buffer: Frame, offset: usize, len: usize) {
        let (offset, len) = (offset as u32, len as u32);
        self.rare_mut().frags.push(Frag { buffer, offset, len });
        self.frags_len += len;
    }

    pub(super) fn spare_buffer(&mut self) -> Option<Frame> {
        self.rare.as_mut()?.spare.pop()
    }

    /// Drops all frags from `keep` on; their buffers are kept for later.
    pub(super) fn release_frags(&mut self, keep: usize) {
        if let Some(rare) = &mut self.rare {
            rare.spare.extend(rare.frags.drain(keep..).map(|frag| frag.buffer));
        }
        self.note_frags();
    }

    /// Takes the buffers of all frags out, used and spare ones, with everything else that is rare.
    #[cold]
    pub(super) fn strip(&mut self, into: &mut Vec<Frame>) {
        if let Some(rare) = self.rare.take() {
            let Rare { frags, spare, .. } = *rare;
            into.extend(frags.into_iter().map(|frag| frag.buffer).chain(spare));
        }
        self.frags_len = 0;
    }

    #[cold]
    pub(super) fn clear_rare(&mut self) {
        self.release_frags(0);
        self.set_offload(None);
    }

    pub(super) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Work that the sender of this frame was spared, and that whoever transmits it must do or
    /// hand on. Offsets are from where the packet starts now; a checksum whose bytes were cut off
    /// the head is no work any more.
    #[inline]
    pub fn offload(&self) -> Option<Offload> {
        let rare = self.rare.as_ref()?;
        let offload = rare.offload?;
        let checksum = offload.checksum.and_then(|checksum| {
            let start = (u32::from(checksum.start) + rare.offload_base).checked_sub(self.data)?;
            Some(Checksum { start: start.try_into().ok()?, ..checksum })
        });
        (checksum.is_some() || offload.gso.is_some()).then_some(Offload { checksum, ..offload })
    }

    /// States what is left to do on the way out.
    pub fn set_offload(&mut self, offload: Option<Offload>) {
        if offload.is_some() || self.rare.is_some() {
            let base = self.data;
            let rare = self.rare_mut();
            rare.offload = offload;
            rare.offload_base = base;
        }
    }
}
