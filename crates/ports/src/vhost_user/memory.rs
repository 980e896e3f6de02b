//! A guest's memory: the regions passed by its virtual machine monitor, found by guest and
//! front-end addresses.
//!
//! Descriptors use guest addresses, ring setup uses addresses of the front end. A ring must lie
//! within one region; a buffer that crosses regions is split into pieces.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use towpath_xdp::{SharedBytes, SharedBytesMut};

use super::mapping_unsafe::{Area, Mapping, Place};
use super::ring::SetupError;

/// All regions; immutable, and replaced as a whole.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    regions: Vec<Region>,
}

/// One region (`struct vhost_memory_region`).
#[derive(Debug, Clone)]
struct Region {
    range: RegionRange,
    mapping: Arc<Mapping>,
    /// Number of times it was passed: QEMU 7.2 passes it once for each pair of queues.
    times: u32,
}

/// Position of a region in the guest and in the front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegionRange {
    /// Address of the first byte in the guest.
    pub(super) guest: u64,
    /// Length in bytes.
    pub(super) len: u64,
    /// Address of the first byte in the front end.
    pub(super) user: u64,
    /// Offset of its first byte in its file.
    pub(super) offset: u64,
}

/// A validated range in one region, to be read or written through the [`Memory`] that found it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    region: u32,
    pub(super) len: u32,
    offset: u64,
}

impl Memory {
    /// A copy with another region, which must not overlap existing ones, but may be equal to one.
    pub(super) fn with(&self, range: RegionRange, file: OwnedFd) -> io::Result<Memory> {
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let mut regions = self.regions.clone();
        if let Some(region) = regions.iter_mut().find(|region| region.range == range) {
            region.times = region.times.saturating_add(1);
            return Ok(Memory { regions });
        }
        if self.regions.len() >= REGIONS_MAX {
            return Err(invalid("more memory regions than slots"));
        }
        let fits = |start: u64| start.checked_add(range.len).is_some();
        if range.len == 0 || !fits(range.guest) || !fits(range.user) {
            return Err(invalid("a memory region without an end"));
        }
        if self.regions.iter().any(|region| region.range.overlaps(&range)) {
            return Err(invalid("memory regions overlap"));
        }
        let mapping = Arc::new(Mapping::new(file, range.offset, range.len)?);
        regions.push(Region { range, mapping, times: 1 });
        regions.sort_by_key(|region| region.range.guest);
        Ok(Memory { regions })
    }

    /// A copy without the region, once it was removed as often as it was passed; `None` if there is
    /// no such region.
    pub(super) fn without(&self, range: &RegionRange) -> Option<Memory> {
        let is_it = |region: &Region| {
            let at = &region.range;
            (at.guest, at.len, at.user) == (range.guest, range.len, range.user)
        };
        let at = self.regions.iter().position(is_it)?;
        let mut regions = self.regions.clone();
        regions[at].times -= 1;
        if regions[at].times == 0 {
            regions.remove(at);
        }
        Some(Memory { regions })
    }

    /// A finder for the buffers of a burst.
    #[inline]
    pub(super) fn finder(&self) -> Finder<'_> {
        Finder { regions: &self.regions, region: self.regions.first() }
    }

    pub(super) fn regions(&self) -> usize {
        self.regions.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.range.len).sum()
    }

    /// Appends the pieces that make up `len` bytes at a guest address, and prefetches the cache
    /// lines of a header and a short packet, for writing if `to_write`. Returns `false` if the
    /// range is not fully mapped; the appended pieces are then invalid.
    #[inline]
    pub(super) fn translate(
        &self,
        guest: u64,
        len: u32,
        to_write: bool,
        pieces: &mut Vec<Piece>,
    ) -> bool {
        let Some(piece) = self.piece(guest, len) else {
            return self.translate_across(guest, len, pieces);
        };
        let (mapping, offset) = (self.of(piece), piece.offset as usize);
        mapping.prefetch(offset, to_write);
        if len as usize > LINE_BYTES {
            mapping.prefetch(offset + LINE_BYTES, to_write);
        }
        pieces.push(piece);
        true
    }

    /// `len` bytes at a guest address, if they are in one region.
    #[inline]
    pub(super) fn piece(&self, guest: u64, len: u32) -> Option<Piece> {
        (0..).zip(&self.regions).find_map(|(region, Region { range, .. })| {
            let offset = guest.wrapping_sub(range.guest);
            let is_inside = offset < range.len && u64::from(len) <= range.len - offset;
            is_inside.then_some(Piece { region, len, offset })
        })
    }

    /// Like [`Memory::translate`], for bytes in several adjacent regions.
    #[cold]
    fn translate_across(&self, guest: u64, len: u32, pieces: &mut Vec<Piece>) -> bool {
        let (mut at, mut left) = (guest, u64::from(len));
        // Regions are in the order of addresses.
        for (number, region) in self.regions.iter().enumerate() {
            let offset = at.wrapping_sub(region.range.guest);
            if offset < region.range.len {
                let part = left.min(region.range.len - offset);
                pieces.push(Piece { region: number as u32, len: part as u32, offset });
                left -= part;
                if left == 0 {
                    return true;
                }
                // This cannot overflow, as regions end before the address space does.
                at += part;
            }
        }
        false
    }

    /// `len` bytes of a ring at a front-end address, in one region.
    pub(super) fn area<const ALIGN: usize>(
        &self,
        user: u64,
        len: usize,
    ) -> Result<Area<ALIGN>, SetupError> {
        let bytes = len as u64;
        let region = self.regions.iter().find(|region| {
            let offset = user.wrapping_sub(region.range.user);
            offset < region.range.len && bytes <= region.range.len - offset
        });
        let region = region.ok_or(SetupError::Address(user))?;
        let start = (user - region.range.user) as usize;
        let area = Area::new(&region.mapping, start, len, region.range.guest + start as u64);
        area.ok_or(SetupError::Alignment(user))
    }

    /// The guest address of a piece.
    pub(super) fn guest_address(&self, piece: Piece) -> u64 {
        self.regions[piece.region as usize].range.guest + piece.offset
    }

    /// Copies from a piece, `skip` bytes into it.
    #[inline]
    pub(super) fn read(&self, piece: Piece, skip: usize, to: SharedBytesMut<'_>) {
        debug_assert!(skip + to.len() <= piece.len as usize, "no more than was translated");
        self.of(piece).read(piece.offset as usize + skip, to);
    }

    /// Copies into a piece, `skip` bytes into it.
    #[inline]
    pub(super) fn write(&self, piece: Piece, skip: usize, from: SharedBytes<'_>) {
        debug_assert!(skip + from.len() <= piece.len as usize, "no more than was translated");
        self.of(piece).write(piece.offset as usize + skip, from);
    }

    /// As [`Memory::read`].
    #[inline]
    pub(super) fn read_array<const N: usize>(&self, piece: Piece, skip: usize) -> [u8; N] {
        debug_assert!(skip + N <= piece.len as usize, "no more than was translated");
        self.of(piece).read_array(piece.offset as usize + skip)
    }

    /// As [`Memory::write`].
    #[cfg(test)]
    pub(super) fn write_array<const N: usize>(&self, piece: Piece, skip: usize, bytes: [u8; N]) {
        debug_assert!(skip + N <= piece.len as usize, "no more than was translated");
        self.of(piece).write_array(piece.offset as usize + skip, bytes);
    }

    #[inline]
    fn of(&self, piece: Piece) -> &Mapping {
        &self.regions[piece.region as usize].mapping
    }
}

/// Finds bytes by guest address, fast if a driver's buffers are in one region.
#[derive(Debug)]
pub(super) struct Finder<'m> {
    regions: &'m [Region],
    /// The region of the bytes found last.
    region: Option<&'m Region>,
}

impl<'m> Finder<'m> {
    /// `len` bytes at a guest address, if they are in one region.
    #[inline]
    pub(super) fn find(&mut self, guest: u64, len: u32) -> Option<Place<'m>> {
        let place = self.region?.place(guest, len);
        if place.is_some() { place } else { self.find_elsewhere(guest, len) }
    }

    #[cold]
    fn find_elsewhere(&mut self, guest: u64, len: u32) -> Option<Place<'m>> {
        self.regions.iter().find_map(|region| {
            let place = region.place(guest, len)?;
            self.region = Some(region);
            Some(place)
        })
    }
}

impl Region {
    /// `len` bytes at a guest address.
    #[inline]
    fn place(&self, guest: u64, len: u32) -> Option<Place<'_>> {
        self.mapping.place(guest.wrapping_sub(self.range.guest), len)
    }
}

impl RegionRange {
    fn overlaps(&self, other: &RegionRange) -> bool {
        let overlap = |a: u64, b: u64| a < b + other.len && b < a + self.len;
        overlap(self.guest, other.guest) || overlap(self.user, other.user)
    }
}

const LINE_BYTES: usize = 64;
/// Most memory slots (`VHOST_USER_GET_MAX_MEM_SLOTS`): as many as in libvhost-user and the kernel's
/// vhost.
pub(super) const REGIONS_MAX: usize = 509;

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use std::sync::atomic::Ordering;

    use super::*;

    fn file(pages: u64) -> OwnedFd {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, pages << 12).unwrap();
        file
    }

    fn range(guest: u64, pages: u64, user: u64) -> RegionRange {
        RegionRange { guest, len: pages << 12, user, offset: 0 }
    }

    #[test]
    fn what_is_not_all_there_is_not_found() {
        let memory = Memory::default().with(range(0x1000, 2, 0x70_0000), file(2)).unwrap();
        let memory = memory.with(range(0x3000, 1, 0x90_0000), file(1)).unwrap();
        let memory = memory.with(range(0x8000, 1, 0xa0_0000), file(1)).unwrap();
        let pieces = |at, len| {
            let mut pieces = Vec::new();
            let is_there = memory.translate(at, len, false, &mut pieces);
            is_there.then(|| pieces.iter().map(|piece| piece.len).collect::<Vec<_>>())
        };
        assert_eq!(pieces(0x1000, 0x2000), Some(vec![0x2000]));
        assert_eq!(pieces(0x2ff0, 0x20), Some(vec![0x10, 0x10]), "across two regions");
        assert_eq!(pieces(0x3ff0, 0x20), None, "into a hole");
        assert_eq!(pieces(0xfff, 1), None);
        assert_eq!(pieces(u64::MAX - 3, 8), None, "around the end of addresses");
        assert_eq!(pieces(0x8000, u32::MAX), None);
        assert!(memory.area::<8>(0x70_0000, 0x2000).is_ok());
        assert!(memory.area::<8>(0x70_0001, 0x2000).is_err());
        assert!(memory.area::<8>(0x70_0004, 0x1000).is_err());
        assert!(memory.area::<2>(u64::MAX, 2).is_err());
    }

    #[test]
    fn files_that_could_keep_us_waiting_are_refused() {
        for path in ["/proc/self/status", "/dev/null", "/sys/kernel/mm"] {
            let Ok(file) = std::fs::File::open(path) else { continue };
            let error = Memory::default().with(range(0x1000, 1, 0x70_0000), file.into());
            let error = error.expect_err(path);
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{path}: {error}");
        }
    }

    #[test]
    fn regions_are_apart() {
        let memory = Memory::default().with(range(0x1000, 2, 0x70_0000), file(2)).unwrap();
        assert!(memory.with(range(0x2000, 1, 0x90_0000), file(1)).is_err());
        assert!(memory.with(range(0x9000, 1, 0x70_1000), file(1)).is_err());
        assert!(memory.with(range(u64::MAX - 100, 1, 0x90_0000), file(1)).is_err());
        assert!(memory.with(range(0x9000, 2, 0x90_0000), file(1)).is_err(), "a short file");
        assert!(memory.without(&range(0x1000, 1, 0x70_0000)).is_none());
        let again = memory.with(range(0x1000, 2, 0x70_0000), file(2)).unwrap();
        assert_eq!(again.regions(), 1);
        let once = again.without(&range(0x1000, 2, 0x70_0000)).unwrap();
        assert_eq!(once.regions(), 1);
        assert_eq!(once.without(&range(0x1000, 2, 0x70_0000)).unwrap().regions(), 0);
    }

    #[test]
    fn bytes_go_in_and_out() {
        let memory = Memory::default().with(range(0x1000, 2, 0x70_0000), file(2)).unwrap();
        let mut pieces = Vec::new();
        assert!(memory.translate(0x1ffe, 8, true, &mut pieces));
        memory.write_array(pieces[0], 1, [1, 2, 3]);
        let mut bytes = [0; 5];
        memory.read(pieces[0], 0, SharedBytesMut::from(&mut bytes[..]));
        assert_eq!(bytes, [0, 1, 2, 3, 0]);
        assert_eq!(memory.guest_address(pieces[0]), 0x1ffe);
        let area = memory.area::<8>(0x70_0000, 0x2000).unwrap();
        assert_eq!(area.load16(0x1000, Ordering::Relaxed), u16::from_le_bytes([2, 3]));
    }
}
