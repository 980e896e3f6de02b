//! A frame: one packet in memory that a program may look at and change.
//!
//! It has the shape of the kernel's `xdp_buff`: a linear buffer with headroom in front (where
//! metadata and pushed headers go) and tailroom behind, and up to 17 further buffers, the frags.
//! Offsets are kept, not pointers; the buffers never move while the frame lives.
//!
//! The record of a frame is two cache lines. Programs, and senders of plain frames, access only the
//! first. The second ([`rx_metadata`], [`offload`], the chain of frags) is neither read nor written
//! while the first's flags say that it is empty.

mod adjust;
pub mod arena;
mod bytes;
mod chain;
pub mod external;
pub mod offload;
mod own;
mod pool;
mod pull;
pub mod rx_metadata;
mod scatter_unsafe;
mod tail_unsafe;

use std::mem::offset_of;
use std::ops::{Deref, DerefMut};

use towpath_jit::Packet;

use crate::memory::{Block, SharedBytes, SharedBytesMut, prefetch_to_write};
pub use own::{OwnFrame, OwnFrameMut};
pub use pool::Pool;
use rx_metadata::{Metadata, flag};
pub use scatter_unsafe::{scatter, scatter_by_masks};

/// One packet: a linear buffer, its metadata and its frags. The handle is one pointer, which owns
/// the frame: it is moved, never copied.
///
/// Its memory may be lent ([`external`]), so its bytes are copied in and out ([`SharedBytes`]).
/// [`Body::own`] gives slices of a frame in this process's memory.
#[derive(Debug)]
#[repr(transparent)]
pub struct Frame(Box<Body>);

/// The record of a [`Frame`]: two cache lines. Compiled code reads the first as a [`Packet`].
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Body {
    head: Block,
    /// Offset of the first byte of metadata; equals `data` if there is none.
    data_meta: u32,
    /// Offset of the first byte of the packet.
    data: u32,
    /// Offset behind the last byte of the linear part.
    data_end: u32,
    /// The ingress queue.
    pub rx: RxInfo,
    /// The egress ifindex, for programs of devmap entries; for a frame redirected into a queue, its
    /// rank there.
    pub egress_ifindex: u32,
    /// Bytes in frags.
    frags_len: u32,
    /// Contents of the second line, and the owner of the buffer's memory ([`flag`]).
    flags: u32,
    /// Number of frags.
    frag_count: u16,
    /// Number of its request for a TX timestamp ([`flag::TX_REQUEST`]).
    tx_request: u16,
    /// The packet's next buffer, also in frags ([`flag::FRAGS`]).
    next: Option<Frame>,
    /// Buffers that held frags and may again ([`flag::SPARE`]).
    spare: Option<Frame>,
    /// Fields of the second line, valid as the flags say.
    metadata: Metadata,
}

const _: () = assert!(size_of::<Body>() == 128);
const _: () = assert!(offset_of!(Body, next) == 64);
const _: () = assert!(offset_of!(Body, head) + Block::BASE_OFFSET == offset_of!(Packet, buffer));
const _: () = assert!(offset_of!(Body, data_meta) == offset_of!(Packet, data_meta));
const _: () = assert!(offset_of!(Body, data) == offset_of!(Packet, data));
const _: () = assert!(FRAME_HEADER_BYTES == Packet::DATA_MIN as usize);
const _: () = assert!(ETH_HLEN == Packet::BYTES_MIN as usize);
const _: () = assert!(offset_of!(Body, data_end) == offset_of!(Packet, data_end));
const _: () = assert!(offset_of!(Body, rx.ifindex) == offset_of!(Packet, ingress_ifindex));
const _: () = assert!(offset_of!(Body, rx.queue_index) == offset_of!(Packet, rx_queue_index));
const _: () = assert!(offset_of!(Body, egress_ifindex) == offset_of!(Packet, egress_ifindex));
const _: () = assert!(offset_of!(Body, frags_len) == offset_of!(Packet, frags_len));

/// The ingress queue of a frame (`xdp_rxq_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct RxInfo {
    /// Ifindex.
    pub ifindex: u32,
    /// Receive queue.
    pub queue_index: u32,
    /// Size of a frag's buffer; 0 if the port does not support growing frags.
    pub frag_size: u32,
}

/// Error for a packet that does not fit a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than an Ethernet header.
    #[error("a frame has at least {ETH_HLEN} bytes, this one has {0}")]
    TooShort(usize),
    /// Longer than a linear buffer and 17 frags.
    #[error("a frame has at most {FRAME_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// Metadata of a length the kernel refuses.
    #[error(
        "metadata has a multiple of 4 bytes, at most {METADATA_BYTES_MAX}, and not more than there \
         are; not {0}"
    )]
    Metadata(usize),
}

/// A frame without a packet, in memory of its own; [`Body::refill`] adds one.
impl Default for Frame {
    fn default() -> Self {
        Frame::over(Block::new(BUFFER_BYTES), flag::OWN_MEMORY)
    }
}

impl Deref for Frame {
    type Target = Body;

    #[inline]
    fn deref(&self) -> &Body {
        &self.0
    }
}

impl DerefMut for Frame {
    #[inline]
    fn deref_mut(&mut self) -> &mut Body {
        &mut self.0
    }
}

impl Frame {
    /// A frame with this packet, split as the kernel's `BPF_PROG_TEST_RUN` splits it: the first
    /// 3520 bytes linear, the rest in frags of 4096.
    pub fn new(packet: &[u8]) -> Result<Frame, FrameError> {
        Frame::with_metadata(packet, 0)
    }

    /// As [`Frame::new`]; the first `metadata` of `bytes` become the frame's metadata.
    pub fn with_metadata(bytes: &[u8], metadata: usize) -> Result<Frame, FrameError> {
        let mut frame = Frame::default();
        frame.refill(bytes, metadata)?;
        Ok(frame)
    }

    /// A copy in one buffer of sufficient size, in memory of its own.
    fn linear_copy(from: &Frame) -> Frame {
        let metadata = from.metadata_len();
        let size = (HEADROOM_BYTES + from.len() + TAILROOM_BYTES).next_multiple_of(64);
        let mut copy = Frame::over(Block::new(size.max(BUFFER_BYTES)), flag::OWN_MEMORY);
        let mut at = HEADROOM_BYTES - metadata;
        copy.data_meta = at as u32;
        for piece in std::iter::once(from.shared_metadata()).chain(from.shared_pieces()) {
            copy.head.shared_mut().part(at..at + piece.len()).copy_from(piece);
            at += piece.len();
        }
        copy.data_end = at as u32;
        copy.copy_context(from);
        copy
    }

    /// A frame without a packet over a buffer of at least [`BUFFER_BYTES`].
    fn over(head: Block, owner: u32) -> Frame {
        Frame(Box::new(Body {
            head,
            data_meta: HEADROOM_BYTES as u32,
            data: HEADROOM_BYTES as u32,
            data_end: HEADROOM_BYTES as u32,
            rx: RxInfo { ifindex: 1, queue_index: 0, frag_size: BUFFER_BYTES as u32 },
            egress_ifindex: 0,
            frags_len: 0,
            flags: owner,
            frag_count: 0,
            tx_request: 0,
            next: None,
            spare: None,
            metadata: Metadata::default(),
        }))
    }
}

impl Body {
    /// Puts another packet into the same buffers; everything except `rx` and `egress_ifindex` is
    /// reset. On an error the frame is unchanged.
    pub fn refill(&mut self, bytes: &[u8], metadata: usize) -> Result<(), FrameError> {
        check_sizes(bytes.len(), metadata)?;
        let (linear, rest) = bytes.split_at(bytes.len().min(LINEAR_BYTES_MAX));
        self.clear();
        let meta = HEADROOM_BYTES - metadata;
        self.data_meta = meta as u32;
        self.data_end = (meta + linear.len()) as u32;
        self.head.shared_mut().part(meta..meta + linear.len()).write(linear);
        for part in rest.chunks(BUFFER_BYTES) {
            let mut buffer = self.spare_buffer().unwrap_or_default();
            buffer.head.shared_mut().part(0..part.len()).write(part);
            self.push_frag(buffer, 0, part.len());
        }
        Ok(())
    }

    /// Removes the packet and all metadata except `rx` and `egress_ifindex`: the frame is empty,
    /// with the usual headroom. The second line is not accessed.
    #[inline]
    pub fn clear(&mut self) {
        self.begin(0);
    }

    /// [`Body::clear`], with `len` bytes of packet afterwards. It makes as few stores as possible,
    /// because reception waits for stores.
    #[inline]
    fn begin(&mut self, len: usize) {
        let stays = flag::OWNER | flag::SPARE;
        if self.flags & !stays != 0 {
            if self.flags & flag::FRAGS != 0 {
                self.release_frags(0);
            }
            self.flags &= stays;
        }
        self.data_meta = HEADROOM_BYTES as u32;
        self.data = HEADROOM_BYTES as u32;
        self.data_end = (HEADROOM_BYTES + len) as u32;
    }

    /// Room for a linear packet behind the usual headroom ([`LINEAR_BYTES_MAX`] bytes), for a port
    /// to receive into; [`Body::set_linear`] sets the received length.
    #[inline]
    pub fn room(&mut self) -> SharedBytesMut<'_> {
        self.head.shared_mut().part(HEADROOM_BYTES..BUFFER_BYTES - TAILROOM_BYTES)
    }

    /// The whole buffer, for a port to receive a frag into ([`Body::append_buffer`]).
    #[inline]
    pub fn buffer(&mut self) -> SharedBytesMut<'_> {
        self.head.shared_mut()
    }

    /// Makes the first `len` bytes of [`Body::room`] the packet; metadata and frags are removed.
    ///
    /// # Panics
    ///
    /// If `len` exceeds the room.
    #[inline]
    pub fn set_linear(&mut self, len: usize) {
        assert!(len <= LINEAR_BYTES_MAX, "{len} bytes in a linear buffer");
        self.begin(len);
    }

    /// Puts a packet of at most [`LINEAR_BYTES_MAX`] bytes into the frame.
    ///
    /// # Panics
    ///
    /// If the packet is longer.
    #[inline]
    pub fn fill(&mut self, packet: &[u8]) {
        self.room().part(0..packet.len()).write(packet);
        self.set_linear(packet.len());
    }

    /// Becomes a copy of the linear part of another frame, with its metadata.
    fn copy_linear(&mut self, from: &Body) {
        self.clear();
        let bytes = from.data_meta as usize..from.data_end as usize;
        self.head.shared_mut().part(bytes.clone()).copy_from(from.head.shared().part(bytes));
        (self.data_meta, self.data, self.data_end) = (from.data_meta, from.data, from.data_end);
        self.copy_context(from);
    }

    /// Takes over ingress, egress and the second line of another frame with the same packet.
    fn copy_context(&mut self, from: &Body) {
        (self.rx, self.egress_ifindex) = (from.rx, from.egress_ifindex);
        // A TX-timestamp request belongs to one frame, not to its copies.
        self.copy_metadata(from, flag::METADATA & !flag::TX_REQUEST);
        if self.has(flag::CHECKSUM) {
            // Its position is an offset in the buffer, and may have been cut off.
            let moved = from.data.wrapping_sub(self.data);
            self.metadata.checksum_start = self.metadata.checksum_start.wrapping_sub(moved);
        }
    }

    /// Length of the packet in bytes, with frags, without metadata.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.linear_len() + self.frags_len as usize
    }

    /// Bytes between `data` and `data_end`.
    #[inline]
    pub fn linear_len(&self) -> usize {
        (self.data_end - self.data) as usize
    }

    /// The metadata in front of the packet.
    #[inline]
    pub fn shared_metadata(&self) -> SharedBytes<'_> {
        self.head.shared().part(self.data_meta as usize..self.data as usize)
    }

    /// The last `len` bytes in front of the packet, where a device may have written hints.
    ///
    /// # Panics
    ///
    /// If there are fewer than `len` bytes.
    #[inline]
    pub fn in_front_mut(&mut self, len: usize) -> SharedBytesMut<'_> {
        let data = self.data as usize;
        self.head.shared_mut().part(data - len..data)
    }

    /// The part of the packet between `data` and `data_end`.
    #[inline]
    pub fn shared_linear(&self) -> SharedBytes<'_> {
        self.head.shared().part(self.data as usize..self.data_end as usize)
    }

    /// As [`Body::shared_linear`], mutable.
    #[inline]
    pub fn shared_linear_mut(&mut self) -> SharedBytesMut<'_> {
        self.head.shared_mut().part(self.data as usize..self.data_end as usize)
    }

    /// The whole packet, copied into one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.shared_pieces().for_each(|piece| piece.append_to(&mut bytes));
        bytes
    }

    /// The metadata and the whole packet behind it, copied into one piece.
    pub fn to_vec_with_metadata(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.metadata_len() + self.len());
        self.shared_metadata().append_to(&mut bytes);
        self.shared_pieces().for_each(|piece| piece.append_to(&mut bytes));
        bytes
    }

    /// Sets the frame's ingress; returns its length. Prefetches its headers, which a program is
    /// about to read.
    #[inline]
    pub fn arrive(&mut self, ifindex: u32, queue_index: u32) -> usize {
        // A reused frame mostly has the same ingress as before.
        if (self.rx.ifindex, self.rx.queue_index) != (ifindex, queue_index) {
            (self.rx.ifindex, self.rx.queue_index) = (ifindex, queue_index);
        }
        self.settle_origin();
        self.head.prefetch(self.data as usize);
        self.len()
    }

    /// Prefetches the record, as a packet is about to be put into the frame.
    #[inline]
    pub(crate) fn expect_writes(&self) {
        prefetch_to_write(&raw const *self);
        self.head.prefetch_to_write(HEADROOM_BYTES);
    }

    /// Sets its rank for a queue ([`crate::FrameQueue`]).
    #[inline]
    pub fn set_rank(&mut self, rank: u32) {
        self.egress_ifindex = rank;
    }

    /// Takes the rank.
    #[inline]
    pub(crate) fn take_rank(&mut self) -> u32 {
        std::mem::take(&mut self.egress_ifindex)
    }

    /// Address of the frame's record, by which a program that holds the frame refers to it.
    /// Compiled code reads a [`Packet`] there.
    #[inline]
    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }

    /// Address that `xdp_md.data` loads.
    pub(crate) fn data_addr(&self) -> u64 {
        self.head.addr() + self.data as u64
    }

    /// Restores `data_meta <= data`, if a helper was stopped after it moved only one of them.
    pub(crate) fn settle(&mut self) {
        self.data_meta = self.data_meta.min(self.data);
    }

    /// Address that `xdp_md.data_meta` loads.
    pub(crate) fn data_meta_addr(&self) -> u64 {
        self.head.addr() + self.data_meta as u64
    }

    /// Address that `xdp_md.data_end` loads.
    pub(crate) fn data_end_addr(&self) -> u64 {
        self.head.addr() + self.data_end as u64
    }

    /// Whether the address is in the linear buffer, head- and tailroom included.
    pub(crate) fn is_in_head(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.head.addr()) < self.head.len() as u64
    }

    /// Bytes of metadata in front of the packet.
    #[inline]
    pub fn metadata_len(&self) -> usize {
        (self.data - self.data_meta) as usize
    }
}

fn check_sizes(len: usize, metadata: usize) -> Result<(), FrameError> {
    if !metadata.is_multiple_of(4) || metadata > METADATA_BYTES_MAX || metadata > len {
        return Err(FrameError::Metadata(metadata));
    }
    if len < ETH_HLEN {
        return Err(FrameError::TooShort(len));
    }
    if len > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(len));
    }
    Ok(())
}

/// Bytes of the linear buffer and of each frag's buffer (`frame_sz`, a page).
pub const BUFFER_BYTES: usize = 4096;
/// Room in front of a new packet (`XDP_PACKET_HEADROOM`).
pub const HEADROOM_BYTES: usize = 256;
/// Room at the end of the linear buffer that programs never get: the kernel keeps
/// `skb_shared_info` there.
pub const TAILROOM_BYTES: usize = 320;
/// Start of the headroom that programs never get (`sizeof(struct xdp_frame)`).
pub const FRAME_HEADER_BYTES: usize = 40;
/// Most bytes of a new packet in the linear buffer.
pub const LINEAR_BYTES_MAX: usize = BUFFER_BYTES - HEADROOM_BYTES - TAILROOM_BYTES;
/// Frags a frame may have (`MAX_SKB_FRAGS`).
pub const FRAGS_MAX: usize = 17;
/// Most bytes of a new packet.
pub const FRAME_BYTES_MAX: usize = LINEAR_BYTES_MAX + FRAGS_MAX * BUFFER_BYTES;
/// Most bytes of metadata in the usual headroom.
pub const METADATA_BYTES_MAX: usize = HEADROOM_BYTES - FRAME_HEADER_BYTES;
/// Bytes of an Ethernet header, which programs cannot cut into.
pub const ETH_HLEN: usize = 14;

#[cfg(test)]
mod tests;
