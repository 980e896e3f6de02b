//! `struct towpath_esp_meta`: the record that programs and the port exchange in metadata.

use strum::FromRepr;

/// The record in front of a frame (`programs/include/towpath_esp.h`), 16 bytes in the machine's
/// byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EspMeta {
    /// Number of the SA in its table; 0 if none was used.
    pub sa: u32,
    /// The SA's SPI, in the machine's byte order.
    pub spi: u32,
    /// Operation on the frame.
    pub direction: Direction,
    /// Outcome of the operation. A program that chooses the SA writes [`Status::Chosen`].
    pub status: Status,
    /// Bytes by which the packet's first byte moved, towards its end if positive.
    pub moved: i16,
    /// Ifindex of the port at which the frame arrived before it was sent to this port.
    pub ingress_ifindex: u32,
}

/// Operation on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromRepr)]
#[repr(u8)]
pub enum Direction {
    /// None: a bypass policy lets the frame through.
    #[default]
    Bypass = 0,
    /// The frame is decapsulated.
    In = 1,
    /// The frame is encapsulated.
    Out = 2,
}

impl From<towpath_ipsec::Direction> for Direction {
    #[inline]
    fn from(direction: towpath_ipsec::Direction) -> Direction {
        match direction {
            towpath_ipsec::Direction::Inbound => Direction::In,
            towpath_ipsec::Direction::Outbound => Direction::Out,
        }
    }
}

/// Outcome of the operation on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromRepr)]
#[repr(u8)]
pub enum Status {
    /// The operation was done.
    #[default]
    Done = 0,
    /// The frame was refused for a reason that has no status of its own: for example, the packet is
    /// malformed.
    Refused = 1,
    /// The packet would exceed the path's MTU.
    TooBig = 2,
    /// There is no SA for the packet.
    NoSa = 3,
    /// No policy matches the packet, or its policy discards it.
    NoPolicy = 4,
    /// The SA has ended.
    Expired = 5,
    /// The sequence number was seen before, or is too old.
    Replayed = 6,
    /// The integrity check failed.
    BadIcv = 7,
    /// The engine failed.
    EngineFailed = 8,
    /// Another worker or the port's queue uses the SA.
    Busy = 9,
    /// A program chose the SA before it sent the frame to the port.
    Chosen = 0x80,
}

impl EspMeta {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// The record's bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.sa.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.spi.to_ne_bytes());
        bytes[8] = self.direction as u8;
        bytes[9] = self.status as u8;
        bytes[10..12].copy_from_slice(&self.moved.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.ingress_ifindex.to_ne_bytes());
        bytes
    }

    /// SA and SPI of a record by which a program chose an SA. The record must be the whole
    /// metadata; other metadata is not interpreted.
    pub fn chosen(metadata: &[u8]) -> Option<(u32, u32)> {
        let bytes: &[u8; Self::LEN] = metadata.try_into().ok()?;
        let number = |at: usize| {
            let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            u32::from_ne_bytes(bytes)
        };
        (bytes[9] == Status::Chosen as u8).then(|| (number(0), number(4)))
    }
}
