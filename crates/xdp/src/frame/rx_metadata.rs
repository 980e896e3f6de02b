//! Metadata in a frame's second cache line, besides offload work ([`super::offload`]): RX metadata
//! of the ingress port, and requests for the transmitting port. The metadata in front of the
//! packet, which programs write (`data_meta`), is in `adjust.rs`.
//!
//! RX metadata is a device's information about a received packet. Programs read it with the kfuncs
//! `bpf_xdp_metadata_rx_*`, and correct it with `bpf_xdp_store_rx_*`. It stays with the frame
//! across redirects, and also across [`Body::cross`] into another port of this process, which no
//! kernel supports yet; helpers that move a frame's edges leave it alone, and a copy has it, too.
//! Only the checksum's state ends when a program may have changed the checksummed bytes
//! ([`Body::distrust_checksum`]).

use super::{Body, Frame};

/// The metadata fields of the second line. A field is valid while its flag is set.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Metadata {
    timestamp_ns: u64,
    launch_time_ns: u64,
    hash: u32,
    /// The sum over the packet, if the device reported one.
    checksum_sum: u32,
    origin: Origin,
    /// Start of a checksum that is left to do, as an offset in the buffer: it belongs to the bytes
    /// there, as in the kernel (`skb->csum_start`), wherever a program moves the head.
    pub(super) checksum_start: u32,
    pub(super) checksum_offset: u16,
    pub(super) gso_size: u16,
    pub(super) gso_header: u16,
    hash_kind: u16,
    vlan: VlanTag,
}

const _: () = assert!(size_of::<Metadata>() == 48);

/// The flags of a frame.
pub(super) mod flag {
    /// The packet has a next buffer.
    pub(in super::super) const FRAGS: u32 = 1 << 0;
    /// The frame has spare buffers for frags.
    pub(in super::super) const SPARE: u32 = 1 << 1;
    /// A checksum is left to do.
    pub(in super::super) const CHECKSUM: u32 = 1 << 2;
    /// The frame is several packets in one (GSO), of the kind in [`GSO_KIND`].
    pub(in super::super) const GSO: u32 = 1 << 3;
    pub(in super::super) const GSO_ECN: u32 = 1 << 4;
    /// 0 to 2, as in [`super::super::offload::GsoKind`].
    pub(in super::super) const GSO_KIND: u32 = 3 << GSO_KIND_SHIFT;
    pub(in super::super) const GSO_KIND_SHIFT: u32 = 5;
    /// The frame has a request for its TX timestamp ([`crate::TxTimestamps`]).
    pub(in super::super) const TX_REQUEST: u32 = 1 << 8;
    /// The frame has a launch time.
    pub(in super::super) const LAUNCH_TIME: u32 = 1 << 9;
    /// The ingress port supports RX hints; the following flags tell which are set.
    pub(in super::super) const RX: u32 = 1 << 10;
    pub(in super::super) const HASH: u32 = 1 << 11;
    pub(in super::super) const TIMESTAMP: u32 = 1 << 12;
    pub(in super::super) const VLAN: u32 = 1 << 13;
    pub(in super::super) const SUM_COMPLETE: u32 = 1 << 14;
    pub(in super::super) const SUM_UNNECESSARY: u32 = 1 << 15;
    /// It has RX metadata, and the port of first arrival is not noted yet.
    pub(in super::super) const NEW: u32 = 1 << 16;
    /// The port of first arrival is noted.
    pub(in super::super) const ORIGIN: u32 = 1 << 17;
    /// The ingress port supports hash hints, for this frame or others; the next two flags likewise.
    pub(in super::super) const TELLS_HASH: u32 = 1 << 18;
    pub(in super::super) const TELLS_TIMESTAMP: u32 = 1 << 19;
    pub(in super::super) const TELLS_VLAN: u32 = 1 << 20;
    /// The buffer belongs to an application, which may write to it ([`super::super::external`]).
    pub(in super::super) const EXTERNAL: u32 = 1 << 24;
    /// The buffer belongs to the frame alone. Without this and the previous flag, it is part of an
    /// arena.
    pub(in super::super) const OWN_MEMORY: u32 = 1 << 25;

    /// Owner of the buffer's memory, constant for the frame's lifetime.
    pub(in super::super) const OWNER: u32 = EXTERNAL | OWN_MEMORY;
    pub(in super::super) const OFFLOAD: u32 = CHECKSUM | GSO | GSO_ECN | GSO_KIND;
    pub(in super::super) const TX_METADATA: u32 = TX_REQUEST | LAUNCH_TIME;
    pub(in super::super) const RX_METADATA: u32 =
        RX | HASH | TIMESTAMP | VLAN | SUM_COMPLETE | SUM_UNNECESSARY | TELLS;
    pub(in super::super) const TELLS: u32 = TELLS_HASH | TELLS_TIMESTAMP | TELLS_VLAN;
    /// Metadata of the packet.
    pub(in super::super) const METADATA: u32 = OFFLOAD | TX_METADATA | RX_METADATA | NEW | ORIGIN;
    /// Flags for senders.
    pub(in super::super) const WORK: u32 = FRAGS | OFFLOAD | TX_METADATA;
    /// Flags that keep a frame from going back to its pool unchanged.
    pub(in super::super) const UNUSUAL: u32 = FRAGS | SPARE | OWNER | TX_REQUEST;
}

/// Receive metadata of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxMetadata {
    /// A hash over its addresses.
    pub hash: Option<RxHash>,
    /// Receive timestamp, in nanoseconds of the device's clock.
    pub timestamp_ns: Option<u64>,
    /// A VLAN tag that was stripped: it is not in the packet.
    pub vlan: Option<VlanTag>,
    /// The state of its checksum.
    pub checksum: RxChecksum,
}

impl RxMetadata {
    /// Metadata without any hint, of a port that supports hints.
    pub const NOTHING: RxMetadata =
        RxMetadata { hash: None, timestamp_ns: None, vlan: None, checksum: RxChecksum::None };
}

/// The hints that a port supports: those for which its driver has a function (`struct
/// xdp_metadata_ops`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SupportedHints {
    /// Hashes.
    pub hash: bool,
    /// Receive timestamps.
    pub timestamp: bool,
    /// Stripped VLAN tags.
    pub vlan: bool,
}

impl SupportedHints {
    /// All hints.
    pub const ALL: SupportedHints = SupportedHints { hash: true, timestamp: true, vlan: true };

    const fn flags(self) -> u32 {
        let mut flags = 0;
        if self.hash {
            flags |= flag::TELLS_HASH;
        }
        if self.timestamp {
            flags |= flag::TELLS_TIMESTAMP;
        }
        if self.vlan {
            flags |= flag::TELLS_VLAN;
        }
        flags
    }
}

/// A receive hash (`xdp_rss_hash_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxHash {
    /// The hash.
    pub value: u32,
    /// The hashed headers: `XDP_RSS_L3_IPV4` (1), `XDP_RSS_L4` (8) and so on.
    pub kind: u16,
}

/// A VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct VlanTag {
    /// `ETH_P_8021Q`, `ETH_P_8021AD`
    pub protocol: u16,
    /// Priority, DEI and VLAN number.
    pub tci: u16,
}

/// A device's report about a received packet's checksum (`CHECKSUM_*` of a received `sk_buff`). A
/// checksum that its sender left to do is an [`super::offload::Offload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RxChecksum {
    /// No report.
    #[default]
    None,
    /// The sum over the packet.
    Complete(u32),
    /// The checksum is valid.
    Unnecessary,
}

/// The port of a frame's first arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Origin {
    /// Ifindex.
    pub ifindex: u32,
    /// Receive queue.
    pub queue_index: u32,
}

impl Body {
    /// Sets the RX metadata of the ingress port.
    #[inline]
    pub fn set_rx_metadata(&mut self, known: &RxMetadata) {
        let mut flags = flag::RX;
        if let Some(RxHash { value, kind }) = known.hash {
            (self.metadata.hash, self.metadata.hash_kind) = (value, kind);
            flags |= flag::HASH;
        }
        if let Some(timestamp_ns) = known.timestamp_ns {
            self.metadata.timestamp_ns = timestamp_ns;
            flags |= flag::TIMESTAMP;
        }
        if let Some(vlan) = known.vlan {
            self.metadata.vlan = vlan;
            flags |= flag::VLAN;
        }
        flags |= match known.checksum {
            RxChecksum::None => 0,
            RxChecksum::Complete(sum) => {
                self.metadata.checksum_sum = sum;
                flag::SUM_COMPLETE
            }
            RxChecksum::Unnecessary => flag::SUM_UNNECESSARY,
        };
        self.flags &= !flag::RX_METADATA;
        self.say(flags);
    }

    /// Sets the hash, and keeps the other hints.
    #[inline]
    pub fn store_rx_hash(&mut self, RxHash { value, kind }: RxHash) {
        (self.metadata.hash, self.metadata.hash_kind) = (value, kind);
        self.say(flag::RX | flag::HASH);
    }

    /// Sets the receive timestamp, and keeps the other hints.
    #[inline]
    pub fn store_rx_timestamp(&mut self, timestamp_ns: u64) {
        self.metadata.timestamp_ns = timestamp_ns;
        self.say(flag::RX | flag::TIMESTAMP);
    }

    /// Sets the removed VLAN tag, and keeps the other hints.
    #[inline]
    pub fn store_rx_vlan(&mut self, vlan: VlanTag) {
        self.metadata.vlan = vlan;
        self.say(flag::RX | flag::VLAN);
    }

    /// Records which RX hints the ingress port supports.
    #[inline]
    pub fn tells_rx_metadata(&mut self, told: SupportedHints) {
        self.say(flag::RX | told.flags());
    }

    /// The hints that the ingress port supports, and those set on this frame.
    #[inline]
    pub fn told_rx_metadata(&self) -> SupportedHints {
        SupportedHints {
            hash: self.has(flag::TELLS_HASH | flag::HASH),
            timestamp: self.has(flag::TELLS_TIMESTAMP | flag::TIMESTAMP),
            vlan: self.has(flag::TELLS_VLAN | flag::VLAN),
        }
    }

    /// Invalidates the checksum's state, because bytes were changed.
    #[inline]
    pub fn distrust_checksum(&mut self) {
        self.flags &= !(flag::SUM_COMPLETE | flag::SUM_UNNECESSARY);
    }

    #[inline]
    fn say(&mut self, flags: u32) {
        let is_new = self.flags & flag::ORIGIN == 0;
        self.flags |= flags | if is_new { flag::NEW } else { 0 };
    }

    /// Whether there is no headroom for the data that the kernel would store there for a frame in
    /// flight: its `struct xdp_frame`, and RX metadata behind that.
    pub fn has_no_room_for_hints(&self) -> bool {
        (self.data_meta as usize) < XDP_FRAME_BYTES + HINTS_BYTES
    }

    /// Hints of the ingress port; `None` if it supports none.
    #[inline]
    pub fn rx_metadata(&self) -> Option<RxMetadata> {
        if !self.has(flag::RX) {
            return None;
        }
        let Metadata { hash, hash_kind, timestamp_ns, vlan, checksum_sum, .. } = self.metadata;
        let checksum = match (self.has(flag::SUM_COMPLETE), self.has(flag::SUM_UNNECESSARY)) {
            (true, _) => RxChecksum::Complete(checksum_sum),
            (false, true) => RxChecksum::Unnecessary,
            (false, false) => RxChecksum::None,
        };
        Some(RxMetadata {
            hash: self.has(flag::HASH).then_some(RxHash { value: hash, kind: hash_kind }),
            timestamp_ns: self.has(flag::TIMESTAMP).then_some(timestamp_ns),
            vlan: self.has(flag::VLAN).then_some(vlan),
            checksum,
        })
    }

    /// Sets the launch time, in nanoseconds of `CLOCK_MONOTONIC`.
    #[inline]
    pub fn set_launch_time(&mut self, launch_time_ns: u64) {
        self.metadata.launch_time_ns = launch_time_ns;
        self.flags |= flag::LAUNCH_TIME;
    }

    /// Requested launch time (`CLOCK_MONOTONIC`, ns).
    #[inline]
    pub fn launch_time(&self) -> Option<u64> {
        self.has(flag::LAUNCH_TIME).then_some(self.metadata.launch_time_ns)
    }

    /// Clears the launch time.
    pub fn clear_launch_time(&mut self) {
        self.flags &= !flag::LAUNCH_TIME;
    }

    /// Attaches TX-timestamp request `number`.
    pub fn set_tx_request(&mut self, number: u16) {
        debug_assert!(!self.has_tx_request(), "one at a time");
        self.tx_request = number;
        self.flags |= flag::TX_REQUEST;
    }

    /// Whether the frame has a TX-timestamp request.
    #[inline]
    pub fn has_tx_request(&self) -> bool {
        self.has(flag::TX_REQUEST)
    }

    /// Takes the request, for the caller to complete it.
    #[inline]
    pub fn take_tx_request(&mut self) -> Option<u16> {
        let is_there = self.has(flag::TX_REQUEST);
        self.flags &= !flag::TX_REQUEST;
        is_there.then_some(self.tx_request)
    }

    /// The port of first arrival. It is kept only for frames with RX metadata; for others this is
    /// the port of last arrival.
    pub fn origin(&self) -> Origin {
        match self.has(flag::ORIGIN) {
            true => self.metadata.origin,
            false => Origin { ifindex: self.rx.ifindex, queue_index: self.rx.queue_index },
        }
    }

    /// Moves the frame to another port of this process: requests for the transmitting port are
    /// dropped here. Offload work stays, as with veth, and so do RX metadata and the port of first
    /// arrival.
    #[inline]
    pub fn cross(&mut self) {
        debug_assert!(!self.has_tx_request(), "it was sent");
        self.flags &= !flag::TX_METADATA;
        self.flags |= flag::RX | flag::TELLS;
    }

    /// Takes over `rx` and RX metadata from a frame of which this is a segment
    /// (`__copy_skb_header`).
    pub fn descend_from(&mut self, from: &Frame) {
        self.rx = from.rx;
        self.copy_metadata(from, flag::RX_METADATA | flag::NEW | flag::ORIGIN);
    }

    /// Copies the metadata selected by the flags `part` from another frame.
    pub(super) fn copy_metadata(&mut self, from: &Body, part: u32) {
        let flags = from.flags & part;
        self.flags = self.flags & !flag::METADATA | flags;
        if flags != 0 {
            self.metadata = from.metadata;
        }
    }

    /// Notes the port of first arrival, if it is not noted yet and the frame has hints.
    #[inline]
    pub(crate) fn settle_origin(&mut self) {
        if self.has(flag::NEW) {
            self.note_origin();
        }
    }

    #[inline]
    fn note_origin(&mut self) {
        self.metadata.origin =
            Origin { ifindex: self.rx.ifindex, queue_index: self.rx.queue_index };
        self.flags = self.flags & !flag::NEW | flag::ORIGIN;
    }

    #[inline]
    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// `sizeof(struct xdp_frame)`
const XDP_FRAME_BYTES: usize = 40;
/// Bytes that hash, timestamp, tag and checksum take together.
const HINTS_BYTES: usize = 32;

#[cfg(test)]
mod tests;
