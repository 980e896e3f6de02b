//! Numbers and structures of `<linux/if_xdp.h>`.

/// Address family of AF_XDP sockets and of `sockaddr_xdp`.
pub const AF_XDP: u16 = 44;

/// `XDP_MMAP_OFFSETS` (get)
pub const MMAP_OFFSETS: u32 = 1;
/// `XDP_RX_RING` (set): entries
pub const RX_RING: u32 = 2;
/// `XDP_TX_RING` (set): entries
pub const TX_RING: u32 = 3;
/// `XDP_UMEM_REG` (set)
pub const UMEM_REG: u32 = 4;
/// `XDP_UMEM_FILL_RING` (set): entries
pub const UMEM_FILL_RING: u32 = 5;
/// `XDP_UMEM_COMPLETION_RING` (set): entries
pub const UMEM_COMPLETION_RING: u32 = 6;
/// `XDP_STATISTICS` (get)
pub const STATISTICS: u32 = 7;
/// `XDP_OPTIONS` (get)
pub const OPTIONS: u32 = 8;
/// `XDP_MAX_TX_SKB_BUDGET` (set): packets sent by one call
pub const MAX_TX_SKB_BUDGET: u32 = 9;

/// Added to the number of an option of level `SOL_SOCKET`: the level's number.
pub const SOCKET_LEVEL: u32 = 1 << 16;
/// `SO_BUSY_POLL`: microseconds
pub const BUSY_POLL: u32 = SOCKET_LEVEL | 46;
/// `SO_PREFER_BUSY_POLL`: 0 or 1
pub const PREFER_BUSY_POLL: u32 = SOCKET_LEVEL | 69;
/// `SO_BUSY_POLL_BUDGET`: packets
pub const BUSY_POLL_BUDGET: u32 = SOCKET_LEVEL | 70;

/// `XDP_PGOFF_RX_RING`
pub const PGOFF_RX: u64 = 0;
/// `XDP_PGOFF_TX_RING`
pub const PGOFF_TX: u64 = 0x8000_0000;
/// `XDP_UMEM_PGOFF_FILL_RING`
pub const PGOFF_FILL: u64 = 0x1_0000_0000;
/// `XDP_UMEM_PGOFF_COMPLETION_RING`
pub const PGOFF_COMPLETION: u64 = 0x1_8000_0000;

/// `XDP_UMEM_UNALIGNED_CHUNK_FLAG`
pub const UMEM_UNALIGNED: u32 = 1;
/// `XDP_UMEM_TX_SW_CSUM`
pub const UMEM_TX_SW_CSUM: u32 = 2;
/// `XDP_UMEM_TX_METADATA_LEN`
pub const UMEM_TX_METADATA_LEN: u32 = 4;

/// Our own flag: the metadata of a received packet is in front of it ([`RxMetadata`]). Goes with
/// [`UMEM_TX_METADATA_LEN`] of at least [`RxMetadata::END`] bytes.
pub const UMEM_RX_METADATA: u32 = 1 << 31;

/// `XDP_SHARED_UMEM`
pub const SHARED_UMEM: u16 = 1;
/// `XDP_COPY`
pub const COPY: u16 = 2;
/// `XDP_ZEROCOPY`
pub const ZEROCOPY: u16 = 4;
/// `XDP_USE_NEED_WAKEUP`
pub const USE_NEED_WAKEUP: u16 = 8;
/// `XDP_USE_SG`
pub const USE_SG: u16 = 16;

/// Our own flag: other sockets of the queue may have memory of their own, as if each had a queue.
/// Excludes zero copy.
pub const SHARE_QUEUE: u16 = 1 << 15;

/// `struct xdp_umem_reg`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UmemReg {
    /// Its address in the application's memory; a multiple of the page size.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Bytes of a chunk: the place for one packet.
    pub chunk_size: u32,
    /// Bytes kept free in front of received packets.
    pub headroom: u32,
    /// `UMEM_*`
    pub flags: u32,
    /// Bytes in front of packets to send.
    pub tx_metadata_len: u32,
}

impl UmemReg {
    /// From the argument of `setsockopt`; older versions are shorter.
    pub fn from_bytes(bytes: &[u8]) -> Option<UmemReg> {
        let word = |at: usize| bytes.get(at..at + 4).map(number);
        let long = |at: usize| bytes.get(at..at + 8).map(long_number);
        Some(UmemReg {
            addr: long(0)?,
            len: long(8)?,
            chunk_size: word(16)?,
            headroom: word(20)?,
            flags: word(24).unwrap_or(0),
            tx_metadata_len: word(28).unwrap_or(0),
        })
    }

    /// As `setsockopt` takes it.
    pub fn to_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.addr.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_ne_bytes());
        let words = [self.chunk_size, self.headroom, self.flags, self.tx_metadata_len];
        for (place, word) in bytes[16..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// Metadata of a received packet, after the `struct xsk_tx_metadata` in front of it with
/// [`UMEM_RX_METADATA`] (`struct towpath_rx_metadata`). It is there when the rx descriptor has
/// `XDP_TX_METADATA` among its options; the same descriptor sends the packet as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxMetadata {
    /// A hash over its addresses, and what it covers (`enum xdp_rss_hash_type`).
    pub hash: Option<(u32, u32)>,
    /// The VLAN tag that was taken off: protocol (`ETH_P_8021Q`) and value.
    pub vlan: Option<(u16, u16)>,
    /// The time at which it arrived, in nanoseconds of the port's clock.
    pub timestamp_ns: Option<u64>,
    /// `XDP_CHECKSUM_NONE` (1), `_UNNECESSARY` (2: it was right) or `_COMPLETE` (4), and for the
    /// last one the sum.
    pub checksum: Option<(u32, u32)>,
}

impl RxMetadata {
    /// Its size in bytes.
    pub const BYTES: usize = 32;
    /// Its offset from the start of the `tx_metadata_len` bytes in front of the packet: behind
    /// `struct xsk_tx_metadata`.
    pub const START: usize = 24;
    /// Smallest `tx_metadata_len` that has room for it.
    pub const END: usize = RxMetadata::START + RxMetadata::BYTES;

    /// From the bytes in front of a packet.
    pub fn from_bytes(bytes: &[u8; RxMetadata::BYTES]) -> RxMetadata {
        let word = |at: usize| number(&bytes[at..at + 4]);
        let half = |at: usize| [bytes[at], bytes[at + 1]];
        let has = |flag: u32| word(0) & flag != 0;
        RxMetadata {
            timestamp_ns: has(RX_TIMESTAMP).then(|| long_number(&bytes[16..24])),
            hash: has(RX_HASH).then(|| (word(4), word(8))),
            vlan: has(RX_VLAN_TAG)
                .then(|| (u16::from_be_bytes(half(12)), u16::from_ne_bytes(half(14)))),
            checksum: has(RX_CHECKSUM).then(|| (word(24), word(28))),
        }
    }

    /// As it is in front of a packet.
    pub fn to_bytes(&self) -> [u8; RxMetadata::BYTES] {
        let mut bytes = [0; RxMetadata::BYTES];
        let mut flags = 0;
        let mut put = |at: usize, value: &[u8]| {
            bytes[at..at + value.len()].copy_from_slice(value);
        };
        if let Some((value, kind)) = self.hash {
            flags |= RX_HASH;
            put(4, &value.to_ne_bytes());
            put(8, &kind.to_ne_bytes());
        }
        if let Some((protocol, tci)) = self.vlan {
            flags |= RX_VLAN_TAG;
            put(12, &protocol.to_be_bytes());
            put(14, &tci.to_ne_bytes());
        }
        if let Some(timestamp_ns) = self.timestamp_ns {
            flags |= RX_TIMESTAMP;
            put(16, &timestamp_ns.to_ne_bytes());
        }
        if let Some((state, sum)) = self.checksum {
            flags |= RX_CHECKSUM;
            put(24, &state.to_ne_bytes());
            put(28, &sum.to_ne_bytes());
        }
        put(0, &flags.to_ne_bytes());
        bytes
    }
}

/// `NETDEV_XDP_RX_METADATA_*`
const RX_TIMESTAMP: u32 = 1;
const RX_HASH: u32 = 2;
const RX_VLAN_TAG: u32 = 4;
const RX_CHECKSUM: u32 = 8;

/// `struct sockaddr_xdp`; the descriptor of another socket comes beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Address {
    /// [`AF_XDP`]
    pub family: u16,
    /// Bind flags.
    pub flags: u16,
    /// The port.
    pub ifindex: u32,
    /// Its queue.
    pub queue: u32,
    /// A descriptor of the socket whose memory is shared.
    pub shared_umem_fd: u32,
}

impl Address {
    /// From the argument of `bind`.
    pub fn from_bytes(bytes: &[u8]) -> Option<Address> {
        let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| bytes.get(at..at + 4).map(number);
        Some(Address {
            family: half(0)?,
            flags: half(2)?,
            ifindex: word(4)?,
            queue: word(8)?,
            shared_umem_fd: word(12)?,
        })
    }

    /// As `bind` takes it.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&self.family.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.flags.to_ne_bytes());
        let words = [self.ifindex, self.queue, self.shared_umem_fd];
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// The first four bytes as a number; 0 when there are fewer.
pub fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn long_number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}
