//! A message: a header of fixed size, and values behind it.

use super::{CLASS, Command, PAYLOAD_MAX, REPLY, VERSION, Values};

/// The header of every message.
///
/// | bytes | field |
/// |---|---|
/// | 0..4 | `"TPGO"` |
/// | 4..8 | CRC-32 (IEEE 802.3) of all bytes from 8 on |
/// | 8..12 | bytes behind the header |
/// | 12..16 | the dialogue, a number that the guest makes up |
/// | 16..20 | number of the request in it, and of its reply |
/// | 20..22 | version of the protocol |
/// | 22 | class: 0xe0 |
/// | 23 | command; a reply's has bit 7 |
/// | 24..28 | 0; of a reply 0, or a Linux error number |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes behind it.
    pub length: u32,
    /// The dialogue that it belongs to.
    pub session: u32,
    /// Its number there.
    pub sequence: u32,
    /// Version of the protocol.
    pub version: u16,
    /// The number of a [`Command`], with [`REPLY`] in a reply.
    pub command: u8,
    /// 0, or why a request was refused.
    pub status: u32,
}

/// A header with what is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// Values.
    pub payload: Vec<u8>,
}

impl Header {
    /// Reads a header; `None` when it is none. The sum of bytes is not looked at.
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

    /// The command of a request, or of what a reply answers.
    pub fn command(&self) -> Option<Command> {
        Command::from_number(self.command & !REPLY)
    }

    /// Whether it is of a reply.
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

    /// The values in it.
    pub fn values(&self) -> Values<'_> {
        Values::new(&self.payload)
    }

    /// The bytes of the whole.
    ///
    /// # Panics
    ///
    /// With more than [`PAYLOAD_MAX`] bytes behind the header: who makes a message sees to that.
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

/// Whether a message's bytes are as they were written.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    let sum = bytes.get(4..SUMMED_FROM).and_then(|bytes| bytes.first_chunk());
    sum.is_some_and(|&sum| crc32fast::hash(&bytes[SUMMED_FROM..]) == u32::from_le_bytes(sum))
}

/// Bytes of a header.
pub const HEADER_BYTES: usize = 28;
/// The first bytes of each message.
pub(super) const MAGIC: [u8; 4] = *b"TPGO";
const SUMMED_FROM: usize = 8;
