//! Work left for the sender of a frame: a checksum to complete, a large packet to cut.
//!
//! A tap or a virtual machine may hand over frames whose checksum is not complete, or that are
//! several packets in one (GSO), and says so in a header: `struct virtio_net_hdr` (virtio 1.3,
//! 5.1.6). The statement travels with the frame until a port does the work or hands it on.

use super::Body;
use super::metadata::{Metadata, flag};

/// The statement, with offsets from the start of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// A checksum over everything from `start` on is to be stored at `start + offset`, where the
    /// sum of the pseudo header is now (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    pub checksum: Option<Checksum>,
    /// The frame is several packets in one.
    pub gso: Option<Gso>,
}

/// Where a checksum is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    /// First byte that counts (`csum_start`).
    pub start: u16,
    /// Where the sum goes, from `start` on (`csum_offset`).
    pub offset: u16,
}

/// How a large packet is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// The kind of segmentation.
    pub kind: GsoKind,
    /// Bytes of payload in each packet (`gso_size`).
    pub size: u16,
    /// Bytes of headers, which each packet repeats (`hdr_len`); a hint.
    pub header: u16,
    /// TCP only: segments keep the ECN bit off but in the first (`VIRTIO_NET_HDR_GSO_ECN`).
    pub ecn: bool,
}

/// `VIRTIO_NET_HDR_GSO_*`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams in one, cut at the UDP payload (USO).
    UdpL4,
}

impl Body {
    /// Work that the sender of this frame left, and that its transmitter must do or hand on.
    /// Offsets are from where the packet starts now; a checksum whose bytes were cut off the head
    /// is no work any more.
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

    /// States what is left to do on the way out.
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
