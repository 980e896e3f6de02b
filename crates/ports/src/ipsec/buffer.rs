//! A frame in the form in which [`towpath_ipsec`] sees packets.

use towpath_ipsec::Buffer;
use towpath_xdp::frame::Body;
use towpath_xdp::{Frame, Pool};

use super::meta::EspMeta;

/// A frame in one piece, in memory that only this process writes.
#[derive(Debug)]
pub struct Packet(Frame);

impl Packet {
    /// Linearises the frame, and copies it if an application can write its memory.
    #[inline]
    pub(super) fn new(mut frame: Frame, pool: &mut Pool) -> Packet {
        if !frame.is_plain() {
            pool.linearize(&mut frame);
        }
        pool.own(&mut frame);
        Packet(frame)
    }

    #[inline]
    pub(super) fn into_frame(self) -> Frame {
        self.0
    }

    /// The metadata in front of the packet.
    #[inline]
    pub(super) fn metadata(&self) -> &[u8] {
        self.0.own().map_or(&[], |own| own.metadata())
    }

    /// Removes all metadata.
    #[inline]
    pub(super) fn strip_metadata(&mut self) {
        let len = self.0.metadata_len() as i32;
        if len > 0 {
            let stripped = self.0.adjust_meta(len);
            debug_assert_eq!(stripped, Ok(()), "all of it can be taken off");
        }
    }
}

impl Buffer for Packet {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.0.own().map_or(&[], |own| own.linear())
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.own_mut().map_or(&mut [], |own| own.linear())
    }

    /// The headroom, less the room for the record with which the frame arrives.
    #[inline]
    fn headroom(&self) -> usize {
        self.0.headroom().saturating_sub(EspMeta::LEN)
    }

    #[inline]
    fn tailroom(&self) -> usize {
        self.0.tailroom()
    }

    /// Does not fail: the caller has checked the room, and the metadata is removed.
    #[inline]
    fn adjust_head(&mut self, delta: isize) {
        InPlace(&mut self.0).adjust_head(delta);
    }

    #[inline]
    fn adjust_tail(&mut self, delta: isize) {
        InPlace(&mut self.0).adjust_tail(delta);
    }
}

/// A frame in memory of this process, with its metadata.
pub(super) struct InPlace<'f>(pub(super) &'f mut Body);

impl Buffer for InPlace<'_> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.0.own().map_or(&[], |own| own.linear())
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.own_mut().map_or(&mut [], |own| own.linear())
    }

    #[inline]
    fn headroom(&self) -> usize {
        self.0.headroom()
    }

    #[inline]
    fn tailroom(&self) -> usize {
        self.0.tailroom()
    }

    /// Does not fail: the caller has checked the room.
    #[inline]
    fn adjust_head(&mut self, delta: isize) {
        let moved = i32::try_from(delta).map(|delta| self.0.adjust_head(delta));
        debug_assert!(matches!(moved, Ok(Ok(()))), "{delta}: {moved:?}");
    }

    #[inline]
    fn adjust_tail(&mut self, delta: isize) {
        let moved = i32::try_from(delta).map(|delta| self.0.adjust_tail(delta));
        debug_assert!(matches!(moved, Ok(Ok(()))), "{delta}: {moved:?}");
    }
}
