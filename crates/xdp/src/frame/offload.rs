//! What is left to do to a frame on its way out: a checksum to complete, a large packet to cut.
//!
//! A tap or a virtual machine may hand over frames whose checksum is not complete, or that are
//! several packets in one (GSO), and says so in a header: `struct virtio_net_hdr` (virtio 1.3,
//! 5.1.6). The statement travels with the frame until a port does the work or hands it on.

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
    /// What it is.
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
