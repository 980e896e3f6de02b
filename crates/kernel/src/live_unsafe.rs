//! A ring of packets that user space fills and a BPF program empties: the value of an array map of
//! one element, mapped into this process (`BPF_F_MMAPABLE`).
//!
//! The program copies a slot before it increments `head` with a full barrier, and reads no slot
//! from `tail` on; so user space may write the slots before `head` and from `tail` on.
#![expect(unsafe_code, reason = "memory that a BPF program reads")]

use std::os::fd::AsFd as _;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use towpath_bpf::Errno;

use crate::map::object_name;
use crate::sys_unsafe::MapFd;
use crate::uapi::MapCreate;

/// The producer's side of the ring.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: NonNull<u8>,
    /// Number of the next packet.
    next: u32,
    /// Value of `tail`.
    published: u32,
    _map: MapFd,
}

// SAFETY: the memory belongs to this value alone, except for the kernel, for which all threads are
// equal.
unsafe impl Send for Ring {}

impl Ring {
    /// Number of packets that it holds.
    pub(crate) const SLOTS: u32 = 256;
    /// Largest size of a packet, in bytes.
    pub(crate) const PACKET_BYTES_MAX: usize = SLOT_BYTES - DATA_OFFSET;

    /// A map with room for a ring.
    pub(crate) fn create() -> Result<MapFd, Errno> {
        let numbers = MapCreate {
            map_type: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: VALUE_BYTES as u32,
            max_entries: 1,
            map_flags: F_MMAPABLE,
            map_name: object_name("towpath_ring"),
            ..MapCreate::default()
        };
        MapFd::create(&numbers, VALUE_BYTES)
    }

    /// The empty ring in a map from [`Ring::create`] that has no other mapping.
    pub(crate) fn map(map: MapFd) -> Result<Ring, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel finds room. The map's memory is at least as long.
        let memory =
            unsafe { mmap(ptr::null_mut(), VALUE_BYTES, access, MapFlags::SHARED, map.as_fd(), 0) };
        let memory = memory.map_err(|errno| Errno(errno.raw_os_error()))?;
        let memory = NonNull::new(memory.cast()).ok_or(Errno::ENOMEM)?;
        Ok(Ring { memory, next: 0, published: 0, _map: map })
    }

    /// Writes a packet of at most [`Ring::PACKET_BYTES_MAX`] bytes behind the others; false if the
    /// ring is full.
    #[inline]
    pub(crate) fn put(&mut self, packet: &[u8]) -> bool {
        assert!(packet.len() <= Self::PACKET_BYTES_MAX, "a packet fits a slot");
        if self.next.wrapping_sub(self.head()) >= Self::SLOTS {
            return false;
        }
        let slot = SLOTS_OFFSET + (self.next % Self::SLOTS) as usize * SLOT_BYTES;
        // SAFETY: a slot lies within the mapping, and this one is ours (see the module). The packet
        // fits, and is not in the mapping, to which no references exist.
        unsafe {
            let slot = self.memory.add(slot);
            slot.cast::<u32>().write(packet.len() as u32);
            ptr::copy_nonoverlapping(packet.as_ptr(), slot.add(DATA_OFFSET).as_ptr(), packet.len());
        }
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Makes all written packets visible to the program.
    pub(crate) fn publish(&mut self) {
        self.published = self.next;
        self.word(TAIL_OFFSET).store(self.published, Ordering::Release);
    }

    /// Number of packets that were published and not taken yet.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        self.published.wrapping_sub(self.head())
    }

    /// Total number of packets that the program could not redirect; wraps around.
    pub(crate) fn refused(&self) -> u32 {
        self.word(REFUSED_OFFSET).load(Ordering::Relaxed)
    }

    #[inline]
    fn head(&self) -> u32 {
        self.word(HEAD_OFFSET).load(Ordering::Acquire)
    }

    #[inline]
    fn word(&self, offset: i16) -> &AtomicU32 {
        // SAFETY: the offsets of words are multiples of 4 within the mapping, which lives as long
        // as `self`; this process and the program only use atomics, or whole words, on them.
        unsafe { self.memory.add(offset as usize).cast().as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the whole mapping; no reference into it outlives `self`.
        let _unmapped = unsafe { munmap(self.memory.as_ptr().cast(), VALUE_BYTES) };
    }
}

/// Offset of the number of packets that the program took, which the program increments.
pub(crate) const HEAD_OFFSET: i16 = 0;
/// Offset of the number of packets that were written.
pub(crate) const TAIL_OFFSET: i16 = 4;
/// Offset of the number of taken packets that could not be redirected.
pub(crate) const REFUSED_OFFSET: i16 = 8;
/// Offset of the first slot: a length, and from [`DATA_OFFSET`] on a packet.
pub(crate) const SLOTS_OFFSET: usize = 64;
/// Size of a slot in bytes, a power of two.
pub(crate) const SLOT_BYTES: usize = 2048;
/// Offset of the packet in its slot.
pub(crate) const DATA_OFFSET: usize = 8;
const VALUE_BYTES: usize = SLOTS_OFFSET + Ring::SLOTS as usize * SLOT_BYTES;
const MAP_TYPE_ARRAY: u32 = 2;
const F_MMAPABLE: u32 = 1 << 10;
