//! UMEM: an application's packet memory, cut into chunks (`net/xdp/xdp_umem.c`).

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use towpath_ring::Desc;

use crate::abi::{
    RxMetadata, UMEM_RX_METADATA, UMEM_TX_METADATA_LEN, UMEM_TX_SW_CSUM, UMEM_UNALIGNED, UmemReg,
};
use crate::lent::{self, Lent};
use crate::memory_unsafe::Memory;

/// Registered memory.
#[derive(Debug)]
pub(crate) struct Umem {
    pub(crate) memory: Memory,
    /// Its size in bytes.
    pub(crate) size: u64,
    pub(crate) chunk: u32,
    pub(crate) headroom: u32,
    pub(crate) flags: u32,
    /// Bytes of metadata in front of packets to send.
    pub(crate) tx_metadata: u32,
    /// Its chunks as frames, for the only pool that does not copy.
    lent: OnceLock<Mutex<Lent>>,
}

impl Umem {
    /// Registers memory: `reg.len` bytes of a file from `start` on. `reg.addr` is their address in
    /// the application.
    pub(crate) fn new(reg: &UmemReg, file: OwnedFd, start: u64) -> Result<Umem, Errno> {
        check(reg)?;
        if !start.is_multiple_of(PAGE_BYTES) {
            return Err(Errno::INVAL);
        }
        let has_metadata = reg.flags & UMEM_TX_METADATA_LEN != 0;
        Ok(Umem {
            memory: Memory::new(file, start, reg.len)?,
            size: reg.len,
            chunk: reg.chunk_size,
            headroom: reg.headroom,
            flags: reg.flags,
            tx_metadata: if has_metadata { reg.tx_metadata_len } else { 0 },
            lent: OnceLock::new(),
        })
    }

    /// Allows one pool to use its chunks as frames. The chunks must be aligned, a page long and
    /// without headroom, and the file must not become shorter. Returns whether this is possible.
    pub(crate) fn lend(&self) -> bool {
        let fits =
            !self.is_unaligned() && u64::from(self.chunk) == PAGE_BYTES && self.headroom == 0;
        let lent = if fits { lent::lent(&self.memory, self.size).ok() } else { None };
        lent.is_some_and(|lent| self.lent.set(Mutex::new(lent)).is_ok())
    }

    /// Its chunks as frames.
    #[inline]
    pub(crate) fn lent(&self) -> Option<MutexGuard<'_, Lent>> {
        Some(self.lent.get()?.lock())
    }

    pub(crate) fn is_unaligned(&self) -> bool {
        self.flags & UMEM_UNALIGNED != 0
    }

    /// Whether the daemon completes checksums of packets to send.
    pub(crate) fn completes_checksums(&self) -> bool {
        self.flags & UMEM_TX_SW_CSUM != 0
    }

    /// Whether metadata of received packets is written in front of them.
    #[inline]
    pub(crate) fn tells_rx_metadata(&self) -> bool {
        self.flags & UMEM_RX_METADATA != 0
    }

    /// Bytes of a packet that one chunk holds (`xsk_pool_get_rx_frame_size`).
    pub(crate) fn frame_size(&self) -> u32 {
        self.chunk - RX_HEADROOM_BYTES - self.headroom
    }

    /// The layout of received packets.
    #[inline]
    pub(crate) fn layout(&self) -> Layout {
        let offset = u64::from(RX_HEADROOM_BYTES + self.headroom);
        let chunk = u64::from(self.chunk);
        let is_unaligned = self.is_unaligned();
        Layout {
            mask: if is_unaligned { ADDRESS_MASK } else { !(chunk - 1) },
            last: self.size - chunk,
            offset,
            handle: if is_unaligned { offset << OFFSET_SHIFT } else { offset },
        }
    }

    /// [`Layout::chunk_at`]
    #[inline]
    pub(crate) fn chunk_at(&self, addr: u64) -> Option<u64> {
        self.layout().chunk_at(addr)
    }

    /// [`Layout::data_at`]
    #[inline]
    pub(crate) fn data_at(&self, chunk: u64) -> u64 {
        self.layout().data_at(chunk)
    }

    /// [`Layout::handle`]
    #[inline]
    pub(crate) fn handle(&self, chunk: u64) -> u64 {
        self.layout().handle(chunk)
    }

    /// Offset of the packet of a tx ring's entry, if the kernel would accept it
    /// (`xskq_cons_is_valid_desc`). Its metadata, which is in front of it, must be inside, too.
    #[inline]
    pub(crate) fn packet_at(&self, desc: &Desc) -> Option<u64> {
        let metadata = u64::from(self.tx_metadata);
        let len = u64::from(desc.len) + metadata;
        if desc.len == 0 || desc.options & !(Desc::CONTINUES | Desc::METADATA) != 0 {
            return None;
        }
        let data = if self.is_unaligned() {
            (desc.addr & ADDRESS_MASK) + (desc.addr >> OFFSET_SHIFT)
        } else {
            desc.addr
        };
        let start = data.checked_sub(metadata)?;
        let chunk = u64::from(self.chunk);
        let offset = if self.is_unaligned() { 0 } else { start & (chunk - 1) };
        let fits = offset + len <= chunk && start < self.size && len <= self.size - start;
        fits.then_some(data)
    }
}

/// The places of received packets in chunks, prepared so that no packet needs a branch on the
/// options. It is passed by value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Mask for a fill ring's entry: a chunk's first byte, or any.
    mask: u64,
    /// The last place where a chunk may start.
    last: u64,
    /// Offset of a packet in its chunk.
    offset: u64,
    /// The offset in the form of the rx ring.
    handle: u64,
}

impl Layout {
    /// Start of the chunk that a fill ring's entry names, if it lies inside (`xp_check_aligned`,
    /// `xp_check_unaligned`).
    #[inline]
    pub(crate) fn chunk_at(self, addr: u64) -> Option<u64> {
        let chunk = addr & self.mask;
        (chunk <= self.last).then_some(chunk)
    }

    /// Start of the packet in a chunk.
    #[inline]
    pub(crate) fn data_at(self, chunk: u64) -> u64 {
        chunk + self.offset
    }

    /// As [`Layout::data_at`], in the form of the rx ring (`xp_get_handle`).
    #[inline]
    pub(crate) fn handle(self, chunk: u64) -> u64 {
        chunk + self.handle
    }
}

/// The checks of `xdp_umem_reg`, in its order.
pub(crate) fn check(reg: &UmemReg) -> Result<(), Errno> {
    let UmemReg { addr, len, chunk_size, headroom, flags, tx_metadata_len } = *reg;
    if !(CHUNK_BYTES_MIN..=PAGE_BYTES as u32).contains(&chunk_size) {
        return Err(Errno::INVAL);
    }
    let known = UMEM_UNALIGNED | UMEM_TX_SW_CSUM | UMEM_TX_METADATA_LEN | UMEM_RX_METADATA;
    if flags & !known != 0 {
        return Err(Errno::INVAL);
    }
    let is_unaligned = flags & UMEM_UNALIGNED != 0;
    if !is_unaligned && !chunk_size.is_power_of_two() {
        return Err(Errno::INVAL);
    }
    if !addr.is_multiple_of(PAGE_BYTES) || addr.checked_add(len).is_none() {
        return Err(Errno::INVAL);
    }
    if len.div_ceil(PAGE_BYTES) > u64::from(u32::MAX) {
        return Err(Errno::INVAL);
    }
    let chunks = len / u64::from(chunk_size);
    if chunks == 0 || chunks > u64::from(u32::MAX) {
        return Err(Errno::INVAL);
    }
    if !is_unaligned && !len.is_multiple_of(u64::from(chunk_size)) {
        return Err(Errno::INVAL);
    }
    if headroom > chunk_size - RX_HEADROOM_BYTES - SKB_SHARED_INFO_BYTES - FRAME_BYTES_MIN {
        return Err(Errno::INVAL);
    }
    let is_metadata_good = (8..256).contains(&tx_metadata_len) && tx_metadata_len % 8 == 0;
    if flags & UMEM_TX_METADATA_LEN != 0 && !is_metadata_good {
        return Err(Errno::INVAL);
    }
    let has_room = flags & UMEM_TX_METADATA_LEN != 0 && tx_metadata_len as usize >= RxMetadata::END;
    if flags & UMEM_RX_METADATA != 0 && !has_room {
        return Err(Errno::NOSPC);
    }
    Ok(())
}

/// Room that is always in front of received packets (`XDP_PACKET_HEADROOM`).
const RX_HEADROOM_BYTES: u32 = 256;
const SKB_SHARED_INFO_BYTES: u32 = 320;
/// Fewest bytes of a packet for which a chunk must have room.
const FRAME_BYTES_MIN: u32 = 128;
const CHUNK_BYTES_MIN: u32 = 2048;
pub(crate) const PAGE_BYTES: u64 = 4096;
/// `XSK_UNALIGNED_BUF_ADDR_MASK`
const ADDRESS_MASK: u64 = (1 << OFFSET_SHIFT) - 1;
/// `XSK_UNALIGNED_BUF_OFFSET_SHIFT`
const OFFSET_SHIFT: u32 = 48;
