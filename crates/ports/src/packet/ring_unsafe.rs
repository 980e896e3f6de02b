//! A receive ring shared with the kernel: `TPACKET_V3`
//! (`Documentation/networking/packet_mmap.rst`).
//!
//! The ring consists of blocks. A block belongs to the kernel until its status hands it to user
//! space; then it holds packets one after another, which are read until the block is returned.
//! Offsets in it are checked, so that a corrupt ring causes an error and no access outside of it.

#![expect(unsafe_code, reason = "memory that is shared with the kernel")]

use std::ffi::c_int;
use std::io;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::socket_unsafe::Socket;
use crate::vnet;

/// A ring and the socket it belongs to.
#[derive(Debug)]
pub(super) struct Ring {
    socket: Socket,
    memory: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    /// The block that is read or waited for.
    block: usize,
    /// Unread packets in the block; 0 if the block belongs to the kernel.
    left: u32,
    /// Offset of the next packet in the block.
    at: usize,
}

/// A packet in the ring.
#[derive(Debug)]
pub(super) struct Received<'a> {
    /// Its bytes, from the Ethernet header on.
    pub(super) bytes: &'a [u8],
    /// Its whole length; more than `bytes` has if it did not fit.
    pub(super) len: usize,
    /// `struct virtio_net_hdr`
    pub(super) header: &'a [u8; vnet::BYTES],
    /// A VLAN tag that was stripped: its protocol and its value.
    pub(super) tag: Option<[u16; 2]>,
    pub(super) stamp: Stamp,
}

/// Receive timestamp of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stamp {
    /// In nanoseconds of the interface's clock.
    Device(u64),
    /// In nanoseconds of `CLOCK_REALTIME`.
    Kernel(u64),
}

impl Ring {
    /// Makes a ring for a socket.
    pub(super) fn new(socket: Socket, block_bytes: u32, blocks: u32) -> io::Result<Ring> {
        socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, &TPACKET_V3)?;
        socket.set_header()?;
        socket.prefer_device_timestamps()?;
        let request = libc::tpacket_req3 {
            tp_block_size: block_bytes,
            tp_block_nr: blocks,
            tp_frame_size: FRAME_BYTES,
            tp_frame_nr: block_bytes / FRAME_BYTES * blocks,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let (block_bytes, blocks) = (block_bytes as usize, blocks as usize);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let (anywhere, bytes) = (std::ptr::null_mut(), block_bytes * blocks);
        // SAFETY: a new mapping, at an address the kernel chooses.
        let memory = unsafe { mmap(anywhere, bytes, access, MapFlags::SHARED, socket.as_fd(), 0) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { socket, memory, block_bytes, blocks, block: 0, left: 0, at: 0 })
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The next packet. It is returned again until [`Ring::advance`].
    pub(super) fn peek(&mut self) -> io::Result<Option<Received<'_>>> {
        if self.left == 0 && !self.enter() {
            return Ok(None);
        }
        self.received().map(Some).ok_or_else(|| io::Error::other("the receive ring is damaged"))
    }

    /// Moves past the packet that [`Ring::peek`] returned. After a block's last packet the block is
    /// returned to the kernel.
    pub(super) fn advance(&mut self) {
        let next = self.packet_header().map_or(0, |header| header.tp_next_offset);
        self.at += next as usize;
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.block = (self.block + 1) % self.blocks;
        }
    }

    /// Takes over the current block if the kernel handed it over. Blocks may be empty.
    fn enter(&mut self) -> bool {
        loop {
            if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return false;
            }
            // SAFETY: the block is ours (its status was read with acquire), lies in the mapping
            // and begins with this header, which is made of integers.
            let header = unsafe {
                let block = self.memory.add(self.block * self.block_bytes);
                block.cast::<libc::tpacket_block_desc>().read().hdr.bh1
            };
            (self.left, self.at) = (header.num_pkts, header.offset_to_first_pkt as usize);
            if self.left > 0 {
                return true;
            }
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.block = (self.block + 1) % self.blocks;
        }
    }

    fn received(&self) -> Option<Received<'_>> {
        let header = self.packet_header()?;
        let start = self.at + usize::from(header.tp_mac);
        let bytes = self.bytes(start, header.tp_snaplen as usize)?;
        // The virtio-net header is between the packet's ring header and the packet.
        let vnet = self.bytes(start.checked_sub(vnet::BYTES)?, vnet::BYTES)?;
        let tag = (header.tp_status & TP_STATUS_VLAN_VALID != 0).then(|| {
            let has_protocol = header.tp_status & TP_STATUS_VLAN_TPID_VALID != 0;
            let protocol = if has_protocol { header.hv1.tp_vlan_tpid } else { ETH_P_8021Q };
            [protocol, header.hv1.tp_vlan_tci as u16]
        });
        let ns = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
        let is_device = header.tp_status & TP_STATUS_TS_RAW_HARDWARE != 0;
        let stamp = if is_device { Stamp::Device(ns) } else { Stamp::Kernel(ns) };
        let (len, header) = (header.tp_len as usize, vnet.try_into().ok()?);
        Some(Received { bytes, len, header, tag, stamp })
    }

    fn packet_header(&self) -> Option<libc::tpacket3_hdr> {
        let bytes = self.bytes(self.at, size_of::<libc::tpacket3_hdr>())?;
        // SAFETY: this many bytes are there, and any bytes are a header.
        Some(unsafe { bytes.as_ptr().cast::<libc::tpacket3_hdr>().read_unaligned() })
    }

    /// Bytes of the current block; `None` if the range exceeds it.
    fn bytes(&self, at: usize, len: usize) -> Option<&[u8]> {
        if self.left == 0 || at.checked_add(len)? > self.block_bytes {
            return None;
        }
        // SAFETY: the range is in a block that is ours (`left` is not 0), in the mapping that lives
        // as long as `self`. The kernel writes to the block only after `advance`, which needs
        // `&mut self`.
        Some(unsafe {
            let start = self.memory.add(self.block * self.block_bytes + at);
            std::slice::from_raw_parts(start.as_ptr(), len)
        })
    }

    /// The current block's status word, which says which side owns it.
    fn status(&self) -> &AtomicU32 {
        let at = self.block * self.block_bytes + STATUS_OFFSET;
        // SAFETY: the word is in the mapping, aligned, and both sides use it atomically.
        unsafe { self.memory.add(at).cast().as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let bytes = self.block_bytes * self.blocks;
        // SAFETY: the mapping is ours alone, and nothing borrowed from it is left.
        let _unmapped = unsafe { munmap(self.memory.as_ptr().cast(), bytes) };
    }
}

// SAFETY: the mapping is reached only through the ring, which has one owner.
unsafe impl Send for Ring {}

/// `block_status` in `struct tpacket_block_desc`.
const STATUS_OFFSET: usize = std::mem::offset_of!(libc::tpacket_block_desc, hdr)
    + std::mem::offset_of!(libc::tpacket_hdr_v1, block_status);
const TPACKET_V3: c_int = libc::tpacket_versions::TPACKET_V3 as c_int;
/// Nominal frame size. Packets have variable lengths; the kernel only checks that a whole number of
/// frames fits a block.
const FRAME_BYTES: u32 = 2048;
const _: () =
    assert!(FRAME_BYTES.is_multiple_of(libc::TPACKET_ALIGNMENT as u32), "packet_set_ring wants it");
/// Time in ms after which the kernel hands over a block that is not full.
const RETIRE_MS: u32 = 1;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
const TP_STATUS_TS_RAW_HARDWARE: u32 = 1 << 31;
const ETH_P_8021Q: u16 = 0x8100;
