//! What programs and the port tell each other in a frame's metadata: `struct towpath_esp_meta`.

/// The record in front of a frame (`programs/include/towpath_esp.h`), 16 bytes in the machine's
/// byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EspMeta {
    /// Number of the SA in its table; 0 if none was used.
    pub sa: u32,
    /// The SA's SPI, as a number of this machine.
    pub spi: u32,
    /// Operation on the frame.
    pub direction: Direction,
    /// How it ended. A program that chooses the SA writes [`Status::Chosen`].
    pub status: Status,
    /// Bytes by which the packet's first byte moved, towards its end if positive.
    pub moved: i16,
    /// Ifindex of the port at which the frame arrived before it was sent here.
    pub ingress_ifindex: u32,
}

/// Operation on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Direction {
    /// Nothing: its policy lets it by.
    #[default]
    Bypass = 0,
    /// Decapsulated.
    In = 1,
    /// Encapsulated.
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

/// How a frame's processing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Status {
    /// It was done.
    #[default]
    Done = 0,
    /// Refused for a reason without a number of its own: the packet is malformed.
    Refused = 1,
    /// The packet would exceed the path's MTU.
    TooBig = 2,
    /// No SA is there for the packet.
    NoSa = 3,
    /// No policy is there for the packet, or one that discards it.
    NoPolicy = 4,
    /// The SA has ended.
    Expired = 5,
    /// The sequence number was seen before, or is too old.
    Replayed = 6,
    /// The integrity check failed.
    BadIcv = 7,
    /// The engine failed.
    EngineFailed = 8,
    /// A program chose the SA before it sent the frame here.
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

    /// SA and SPI of a record by which a program chose an SA. Other metadata is none of ours.
    pub fn chosen(metadata: &[u8]) -> Option<(u32, u32)> {
        let bytes: &[u8; Self::LEN] = metadata.try_into().ok()?;
        let number = |at: usize| {
            let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            u32::from_ne_bytes(bytes)
        };
        (bytes[9] == Status::Chosen as u8).then(|| (number(0), number(4)))
    }
}
