//! The pcapng format: blocks with a type and a length at either end.

mod options;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use read::Decoder;
pub use write::{Section, Writer};

/// Direction of a frame, in the low two bits of `epb_flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Direction {
    /// Received.
    Inbound = 1,
    /// Sent.
    Outbound = 2,
}

/// The type of a section header block: the same in either byte order.
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// In a section header, in the byte order of the section.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Size in bytes of a block that has no body.
const EMPTY_BLOCK_BYTES: u32 = 12;
