//! vhost-user messages on the wire (`docs/interop/vhost-user.rst` of QEMU).

use std::os::fd::OwnedFd;

use super::inflight::Description;
use super::memory::RegionRange;
use super::ring::Addresses;

/// A message of the front end.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) request: u32,
    /// The front end waits for an acknowledgement (`VHOST_USER_NEED_REPLY`).
    pub(super) needs_ack: bool,
    pub(super) payload: Vec<u8>,
    /// Descriptors attached to it.
    pub(super) files: Vec<OwnedFd>,
}

/// A reason to refuse a message.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("version {0} of the protocol")]
    Version(u32),
    #[error("{0} bytes of payload")]
    Size(u32),
    #[error("a payload that is too short")]
    Short,
    #[error("{0} descriptors came where {1} are wanted")]
    Files(usize, usize),
    #[error("an eventfd for a queue: {0}")]
    EventFd(#[source] std::io::Error),
    #[error("queue {0} of {1}")]
    Queue(u64, usize),
    #[error("{0} is not a valid ring size")]
    RingSize(u32),
    #[error("features that were not offered: {0:#x}")]
    Features(u64),
    #[error("an MTU of {0}")]
    Mtu(u64),
    #[error("a memory region that is not there")]
    NoRegion,
    #[error("memory: {0}")]
    Memory(#[source] std::io::Error),
    #[error("queue {0}: {1}")]
    Setup(u32, #[source] super::ring::SetupError),
    #[error("a request that is not known")]
    Unknown,
}

/// The header of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) request: u32,
    flags: u32,
    pub(super) size: u32,
}

impl Header {
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Refused> {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let header = Header { request: word(0), flags: word(4), size: word(8) };
        if header.flags & VERSION_MASK != VERSION {
            return Err(Refused::Version(header.flags & VERSION_MASK));
        }
        if header.size > PAYLOAD_BYTES_MAX {
            return Err(Refused::Size(header.size));
        }
        Ok(header)
    }

    pub(super) fn needs_ack(self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    /// The header of an answer.
    pub(super) fn reply(request: u32, size: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [request, VERSION | REPLY, size as u32];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

impl Message {
    /// The payload as a 64-bit number.
    pub(super) fn number(&self) -> Result<u64, Refused> {
        self.u64_at(0)
    }

    /// `struct vhost_vring_state`: a queue and a number.
    pub(super) fn state(&self) -> Result<(u32, u32), Refused> {
        Ok((self.u32_at(0)?, self.u32_at(4)?))
    }

    /// `struct vhost_vring_addr`: a queue and the addresses of its ring.
    pub(super) fn addresses(&self) -> Result<(u32, Addresses), Refused> {
        let is_logged = self.u32_at(4)? & LOG_RING != 0;
        let log = self.u64_at(32)?;
        let addresses = Addresses {
            descriptors: self.u64_at(8)?,
            used: self.u64_at(16)?,
            available: self.u64_at(24)?,
            log: is_logged.then_some(log),
        };
        Ok((self.u32_at(0)?, addresses))
    }

    /// The regions of a memory table, 8 bytes into the payload.
    pub(super) fn regions(&self) -> Result<Vec<RegionRange>, Refused> {
        let count = self.u32_at(0)?;
        if count > TABLE_REGIONS_MAX {
            return Err(Refused::Size(count));
        }
        (0..count as usize).map(|index| self.region_at(8 + index * REGION_BYTES)).collect()
    }

    /// The region of `ADD_MEM_REG` and `REM_MEM_REG`.
    pub(super) fn region(&self) -> Result<RegionRange, Refused> {
        self.region_at(8)
    }

    fn region_at(&self, at: usize) -> Result<RegionRange, Refused> {
        Ok(RegionRange {
            guest: self.u64_at(at)?,
            len: self.u64_at(at + 8)?,
            user: self.u64_at(at + 16)?,
            offset: self.u64_at(at + 24)?,
        })
    }

    /// `struct VhostUserInflight`: description of an in-flight region, passed or requested.
    pub(super) fn inflight(&self) -> Result<Description, Refused> {
        let counts = self.u32_at(16)?;
        Ok(Description {
            bytes: self.u64_at(0)?,
            offset: self.u64_at(8)?,
            queues: counts as u16,
            size: (counts >> 16) as u16,
        })
    }

    /// The only descriptor.
    pub(super) fn file(&mut self) -> Result<OwnedFd, Refused> {
        match self.files.len() {
            1 => self.files.pop().ok_or(Refused::Files(0, 1)),
            count => Err(Refused::Files(count, 1)),
        }
    }

    pub(super) fn u32_at(&self, at: usize) -> Result<u32, Refused> {
        let bytes = self.payload.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Refused::Short)
    }

    pub(super) fn u64_at(&self, at: usize) -> Result<u64, Refused> {
        let bytes = self.payload.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map(|bytes| u64::from_ne_bytes(*bytes)).ok_or(Refused::Short)
    }
}

/// Requests (`VhostUserRequest`).
pub(super) mod request {
    macro_rules! requests {
        ($($name:ident = $number:literal,)*) => {
            $(pub(in super::super) const $name: u32 = $number;)*

            /// The name of a request.
            pub(in super::super) fn name(number: u32) -> &'static str {
                match number {
                    $($number => stringify!($name),)*
                    _ => "an unknown request",
                }
            }
        };
    }

    requests! {
        GET_FEATURES = 1,
        SET_FEATURES = 2,
        SET_OWNER = 3,
        RESET_OWNER = 4,
        SET_MEM_TABLE = 5,
        SET_LOG_BASE = 6,
        SET_LOG_FD = 7,
        SET_VRING_NUM = 8,
        SET_VRING_ADDR = 9,
        SET_VRING_BASE = 10,
        GET_VRING_BASE = 11,
        SET_VRING_KICK = 12,
        SET_VRING_CALL = 13,
        SET_VRING_ERR = 14,
        GET_PROTOCOL_FEATURES = 15,
        SET_PROTOCOL_FEATURES = 16,
        GET_QUEUE_NUM = 17,
        SET_VRING_ENABLE = 18,
        SEND_RARP = 19,
        NET_SET_MTU = 20,
        GET_INFLIGHT_FD = 31,
        SET_INFLIGHT_FD = 32,
        RESET_DEVICE = 34,
        GET_MAX_MEM_SLOTS = 36,
        ADD_MEM_REG = 37,
        REM_MEM_REG = 38,
        SET_STATUS = 39,
        GET_STATUS = 40,
    }
}

pub(super) const HEADER_BYTES: usize = 12;
/// Longest payload of a message; a memory table has 264 bytes.
pub(super) const PAYLOAD_BYTES_MAX: u32 = 4096;
/// Most descriptors in a message: one for each region of a memory table.
pub(super) const FILES_MAX: usize = 8;
const REGION_BYTES: usize = 32;
/// `VHOST_MEMORY_BASELINE_NREGIONS`
const TABLE_REGIONS_MAX: u32 = FILES_MAX as u32;
const _: () = assert!(
    8 + TABLE_REGIONS_MAX as usize * REGION_BYTES <= PAYLOAD_BYTES_MAX as usize,
    "a table fits"
);
const VERSION_MASK: u32 = 3;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
const _: () = assert!(
    VERSION & !VERSION_MASK == 0 && (REPLY | NEED_REPLY) & VERSION_MASK == 0,
    "flags are beside the version"
);
/// `VHOST_VRING_F_LOG`
const LOG_RING: u32 = 1;
