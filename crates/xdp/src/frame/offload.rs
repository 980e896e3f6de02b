//! Offload work of a frame: a checksum to complete, a large packet to segment.
//!
//! A tap or a virtual machine may hand over frames with an incomplete checksum, or several packets
//! in one (GSO), as stated in a header: `struct virtio_net_hdr` (virtio 1.3, 5.1.6). The statement
//! stays with the frame until a port does the work or hands it on.

use super::Body;
use super::rx_metadata::{Metadata, flag};

/// Offload work, with offsets from the start of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// A checksum over everything from `start` on is to be stored at `start + offset`, where the
    /// sum of the pseudo header is now (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    pub checksum: Option<Checksum>,
    /// The frame is several packets in one (GSO).
    pub gso: Option<Gso>,
}

/// Position of a missing checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    /// Offset of the first byte it covers (`csum_start`).
    pub start: u16,
    /// Offset of the checksum field, from `start` on (`csum_offset`).
    pub offset: u16,
}

/// How a large packet is segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// The kind of segmentation.
    pub kind: GsoKind,
    /// Bytes of payload in each packet (`gso_size`).
    pub size: u16,
    /// Bytes of headers, which each packet repeats (`hdr_len`); a hint.
    pub header: u16,
    /// TCP only: only the first segment keeps the CWR bit (`VIRTIO_NET_HDR_GSO_ECN`).
    pub ecn: bool,
}

/// `VIRTIO_NET_HDR_GSO_*`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// Several UDP datagrams in one, segmented at the UDP payload (USO).
    UdpL4,
}

impl Body {
    /// Offload work that the sender of this frame left, and that its transmitter must do or hand
    /// on. Offsets are from the packet's present start; a checksum whose start was cut off the head
    /// is dropped.
    #[inline]
    pub fn offload(&self) -> Option<Offload> {
        if self.has(flag::CHECKSUM | flag::GSO) { self.work() } else { None }
    }

    #[cold]
    fn work(&self) -> Option<Offload> {
        let Metadata { checksum_start, checksum_offset, gso_size, gso_header, .. } = self.metadata;
        let start = checksum_start.checked_sub(self.data).and_then(|start| start.try_into().ok());
        let checksum = start
            .filter(|_| self.has(flag::CHECKSUM))
            .map(|start| Checksum { start, offset: checksum_offset });
        let kind = match (self.flags & flag::GSO_KIND) >> flag::GSO_KIND_SHIFT {
            0 => GsoKind::Tcp4,
            1 => GsoKind::Tcp6,
            _ => GsoKind::UdpL4,
        };
        let ecn = self.has(flag::GSO_ECN);
        let gso =
            self.has(flag::GSO).then_some(Gso { kind, size: gso_size, header: gso_header, ecn });
        (checksum.is_some() || gso.is_some()).then_some(Offload { checksum, gso })
    }

    /// Sets the frame's offload work.
    #[inline]
    pub fn set_offload(&mut self, offload: Option<Offload>) {
        self.flags &= !flag::OFFLOAD;
        if let Some(Checksum { start, offset }) = offload.and_then(|offload| offload.checksum) {
            self.metadata.checksum_start = self.data + u32::from(start);
            self.metadata.checksum_offset = offset;
            self.flags |= flag::CHECKSUM;
        }
        if let Some(Gso { kind, size, header, ecn }) = offload.and_then(|offload| offload.gso) {
            (self.metadata.gso_size, self.metadata.gso_header) = (size, header);
            let kind = (kind as u32) << flag::GSO_KIND_SHIFT;
            self.flags |= flag::GSO | kind | if ecn { flag::GSO_ECN } else { 0 };
        }
    }
}
