//! A message: a header of fixed size, followed by values.

use super::{CLASS, Command, PAYLOAD_MAX, REPLY, VERSION, Values};

/// The header of every message.
///
/// | bytes | field |
/// |---|---|
/// | 0..4 | `"TPGO"` |
/// | 4..8 | CRC-32 (IEEE 802.3) of all bytes from 8 on |
/// | 8..12 | number of bytes behind the header |
/// | 12..16 | the session, a number that the guest chooses |
/// | 16..20 | number of the request in the session, and of its reply |
/// | 20..22 | version of the protocol |
/// | 22 | class: 0xe0 |
/// | 23 | command; bit 7 is set in a reply |
/// | 24..28 | 0 in a request; in a reply 0, or a Linux error number |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number of bytes behind the header.
    pub length: u32,
    /// Session of the message.
    pub session: u32,
    /// Number of the message in the session.
    pub sequence: u32,
    /// Version of the protocol.
    pub version: u16,
    /// The number of a [`Command`], with [`REPLY`] in a reply.
    pub command: u8,
    /// 0, or the error number of a refused request.
    pub status: u32,
}

/// A header with its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// The values.
    pub payload: Vec<u8>,
}

impl Header {
    /// Parses a header; `None` if it is invalid. The checksum is not checked.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let version = u16::from_le_bytes([bytes[20], bytes[21]]);
        if bytes[..4] != MAGIC || bytes[22] != CLASS {
            return None;
        }
        Some(Header {
            length: u32_at(8)?,
            session: u32_at(12)?,
            sequence: u32_at(16)?,
            version,
            command: bytes[23],
            status: u32_at(24)?,
        })
    }

    /// The header of the answer to this request.
    pub fn reply(&self, status: u32) -> Header {
        Header { length: 0, version: VERSION, command: self.command | REPLY, status, ..*self }
    }

    /// The command of a request, or of the request that a reply answers.
    pub fn command(&self) -> Option<Command> {
        Command::from_number(self.command & !REPLY)
    }

    /// Whether the message is a reply.
    pub fn is_reply(&self) -> bool {
        self.command & REPLY != 0
    }
}

impl Message {
    /// A request.
    pub fn request(command: Command, session: u32, sequence: u32, payload: Vec<u8>) -> Message {
        let command = command as u8;
        let header = Header { length: 0, session, sequence, version: VERSION, command, status: 0 };
        Message { header, payload }
    }

    /// The values in the message.
    pub fn values(&self) -> Values<'_> {
        Values::new(&self.payload)
    }

    /// All bytes of the message.
    ///
    /// # Panics
    ///
    /// Panics if there are more than [`PAYLOAD_MAX`] bytes behind the header: callers ensure the
    /// limit.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.payload.len() <= PAYLOAD_MAX, "{} bytes", self.payload.len());
        let Header { session, sequence, version, command, status, .. } = self.header;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.payload.len());
        bytes.extend(MAGIC);
        bytes.extend([0; 4]);
        bytes.extend((self.payload.len() as u32).to_le_bytes());
        bytes.extend(session.to_le_bytes());
        bytes.extend(sequence.to_le_bytes());
        bytes.extend(version.to_le_bytes());
        bytes.extend([CLASS, command]);
        bytes.extend(status.to_le_bytes());
        bytes.extend(&self.payload);
        let sum = crc32fast::hash(&bytes[SUMMED_FROM..]);
        bytes[4..SUMMED_FROM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// Whether a message's checksum is right.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    let sum = bytes.get(4..SUMMED_FROM).and_then(|bytes| bytes.first_chunk());
    sum.is_some_and(|&sum| crc32fast::hash(&bytes[SUMMED_FROM..]) == u32::from_le_bytes(sum))
}

/// Size of a header, in bytes.
pub const HEADER_BYTES: usize = 28;
/// The first bytes of each message.
pub(super) const MAGIC: [u8; 4] = *b"TPGO";
const SUMMED_FROM: usize = 8;
