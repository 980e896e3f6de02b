//! Feature bits: those offered to a driver and its front end, and those negotiated.

use towpath_engine::port::Features;
use towpath_xdp::frame::offload::{Gso, GsoKind};

/// The features of [`OFFERED`] that the driver accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Negotiated(pub(super) u64);

impl Negotiated {
    #[inline]
    pub(super) fn has(self, bit: u32) -> bool {
        self.0 & 1 << bit != 0
    }

    /// Bytes of the header in front of each frame (virtio 1.3, 5.1.6).
    pub(super) fn header_bytes(self) -> usize {
        let has_buffers = self.has(VERSION_1) || self.has(MRG_RXBUF);
        if has_buffers { crate::vnet::BYTES_WITH_BUFFERS } else { crate::vnet::BYTES }
    }

    /// Offload work that the driver accepts in a frame.
    pub(super) fn takes(self, gso: Option<Gso>) -> Features {
        let can = |gso: Gso| {
            let kind = match gso.kind {
                GsoKind::Tcp4 => self.has(GUEST_TSO4),
                GsoKind::Tcp6 => self.has(GUEST_TSO6),
                GsoKind::UdpL4 => self.has(GUEST_USO4) && self.has(GUEST_USO6),
            };
            kind && (!gso.ecn || self.has(GUEST_ECN))
        };
        let segments = gso.is_some_and(can);
        Features {
            tx_frags: true,
            tx_checksum: self.has(GUEST_CSUM),
            tx_tso: segments,
            tx_uso: segments,
            ..Features::default()
        }
    }

    /// Names of the negotiated features.
    pub(super) fn names(self) -> String {
        let names = NAMES.iter().filter(|(bit, _)| self.has(*bit));
        names.map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
    }
}

/// Features to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Checksums and segmentation may be left to the peer.
    pub offloads: bool,
    /// The driver may use packed rings.
    pub packed: bool,
    /// Frames may span several buffers of the driver.
    pub mergeable: bool,
    /// Buffers are used in the order in which they were made available.
    pub in_order: bool,
    /// The driver may reset single queues. Only for monitors that notify their back end of a reset:
    /// QEMU 7.2 does so for taps only, and a guest that then changes a ring's size loses its queue.
    pub queue_reset: bool,
}

impl Offer {
    /// The feature bits of the offer.
    pub(super) fn bits(self) -> u64 {
        let without = |is_on: bool, bits: u64| if is_on { 0 } else { bits };
        OFFERED
            & !without(self.offloads, OFFLOADS)
            & !without(self.packed, 1 << PACKED)
            & !without(self.mergeable, 1 << MRG_RXBUF)
            & !without(self.in_order, 1 << IN_ORDER)
            & !without(self.queue_reset, 1 << RING_RESET)
    }
}

pub(super) const CSUM: u32 = 0;
pub(super) const GUEST_CSUM: u32 = 1;
pub(super) const MTU: u32 = 3;
pub(super) const GUEST_TSO4: u32 = 7;
pub(super) const GUEST_TSO6: u32 = 8;
pub(super) const GUEST_ECN: u32 = 9;
pub(super) const HOST_TSO4: u32 = 11;
pub(super) const HOST_TSO6: u32 = 12;
pub(super) const HOST_ECN: u32 = 13;
pub(super) const MRG_RXBUF: u32 = 15;
pub(super) const STATUS: u32 = 16;
pub(super) const CTRL_VQ: u32 = 17;
pub(super) const CTRL_RX: u32 = 18;
pub(super) const GUEST_ANNOUNCE: u32 = 21;
pub(super) const MQ: u32 = 22;
/// `VHOST_F_LOG_ALL`: the device logs its writes, for migration.
pub(super) const LOG_ALL: u32 = 26;
pub(super) const ANY_LAYOUT: u32 = 27;
pub(super) const INDIRECT_DESC: u32 = 28;
pub(super) const EVENT_IDX: u32 = 29;
/// `VHOST_USER_F_PROTOCOL_FEATURES`: between front end and back end; drivers never see it.
pub(super) const PROTOCOL_FEATURES: u32 = 30;
pub(super) const VERSION_1: u32 = 32;
pub(super) const PACKED: u32 = 34;
pub(super) const IN_ORDER: u32 = 35;
pub(super) const RING_RESET: u32 = 40;
pub(super) const GUEST_USO4: u32 = 54;
pub(super) const GUEST_USO6: u32 = 55;
pub(super) const HOST_USO: u32 = 56;

/// Bits with names, in order.
const NAMES: [(u32, &str); 26] = [
    (CSUM, "csum"),
    (GUEST_CSUM, "guest_csum"),
    (MTU, "mtu"),
    (GUEST_TSO4, "guest_tso4"),
    (GUEST_TSO6, "guest_tso6"),
    (GUEST_ECN, "guest_ecn"),
    (HOST_TSO4, "host_tso4"),
    (HOST_TSO6, "host_tso6"),
    (HOST_ECN, "host_ecn"),
    (MRG_RXBUF, "mrg_rxbuf"),
    (STATUS, "status"),
    (CTRL_VQ, "ctrl_vq"),
    (CTRL_RX, "ctrl_rx"),
    (GUEST_ANNOUNCE, "guest_announce"),
    (MQ, "mq"),
    (LOG_ALL, "log_all"),
    (ANY_LAYOUT, "any_layout"),
    (INDIRECT_DESC, "indirect_desc"),
    (EVENT_IDX, "event_idx"),
    (VERSION_1, "version_1"),
    (PACKED, "packed"),
    (IN_ORDER, "in_order"),
    (RING_RESET, "ring_reset"),
    (GUEST_USO4, "guest_uso4"),
    (GUEST_USO6, "guest_uso6"),
    (HOST_USO, "host_uso"),
];

const OFFLOADS: u64 = 1 << CSUM
    | 1 << GUEST_CSUM
    | 1 << GUEST_TSO4
    | 1 << GUEST_TSO6
    | 1 << GUEST_ECN
    | 1 << HOST_TSO4
    | 1 << HOST_TSO6
    | 1 << HOST_ECN
    | 1 << GUEST_USO4
    | 1 << GUEST_USO6
    | 1 << HOST_USO;

/// All supported features. UFO is not among them, because no code here makes IP fragments.
const OFFERED: u64 = OFFLOADS
    | 1 << MTU
    | 1 << MRG_RXBUF
    | 1 << STATUS
    | 1 << CTRL_VQ
    | 1 << CTRL_RX
    | 1 << GUEST_ANNOUNCE
    | 1 << MQ
    | 1 << LOG_ALL
    | 1 << ANY_LAYOUT
    | 1 << INDIRECT_DESC
    | 1 << EVENT_IDX
    | 1 << PROTOCOL_FEATURES
    | 1 << VERSION_1
    | 1 << PACKED
    | 1 << IN_ORDER
    | 1 << RING_RESET;

/// `VHOST_USER_PROTOCOL_F_*`, between front end and back end.
pub(super) mod protocol {
    pub(in super::super) const MQ: u32 = 0;
    pub(in super::super) const LOG_SHMFD: u32 = 1;
    pub(in super::super) const RARP: u32 = 2;
    pub(in super::super) const REPLY_ACK: u32 = 3;
    pub(in super::super) const NET_MTU: u32 = 4;
    pub(in super::super) const INFLIGHT_SHMFD: u32 = 12;
    pub(in super::super) const RESET_DEVICE: u32 = 13;
    pub(in super::super) const CONFIGURE_MEM_SLOTS: u32 = 15;
    pub(in super::super) const STATUS: u32 = 16;

    /// All supported protocol features.
    pub(in super::super) const OFFERED: u64 = 1 << MQ
        | 1 << LOG_SHMFD
        | 1 << RARP
        | 1 << REPLY_ACK
        | 1 << NET_MTU
        | 1 << INFLIGHT_SHMFD
        | 1 << RESET_DEVICE
        | 1 << CONFIGURE_MEM_SLOTS
        | 1 << STATUS;
}
