//! An arena as seen by a process that maps it: accesses allocate pages.

#![expect(unsafe_code, reason = "memory that the kernel shares with programs")]

use std::os::fd::AsFd as _;
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};

use parking_lot::{Mutex, MutexGuard};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use towpath_bpf::Errno;

use crate::map::KernelMap;

impl KernelMap {
    /// Writes bytes at an offset in an arena, which allocates their pages.
    ///
    /// # Errors
    ///
    /// Fails with `EINVAL` for maps of other kinds and outside of the arena, or with the error of
    /// `mmap(2)`.
    pub fn write_arena(&self, offset: usize, bytes: &[u8]) -> Result<(), Errno> {
        let mapped = Mapped::new(self)?;
        let target = mapped.at(offset, bytes.len())?;
        // SAFETY: `bytes.len()` bytes of the mapping, which lives until the end of this function
        // and does not overlap `bytes`.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    /// Reads bytes at an offset in an arena, which allocates their pages, too.
    ///
    /// # Errors
    ///
    /// Fails as [`KernelMap::write_arena`] does.
    pub fn read_arena(&self, offset: usize, out: &mut [u8]) -> Result<(), Errno> {
        let mapped = Mapped::new(self)?;
        let source = mapped.at(offset, out.len())?;
        // SAFETY: as in `write_arena`; no thread runs the program meanwhile.
        unsafe { source.copy_to_nonoverlapping(NonNull::from(&mut *out).cast(), out.len()) };
        Ok(())
    }
}

/// One mapping at a time: arenas of one program's copies have the same address.
static MAPPED: Mutex<()> = Mutex::new(());

struct Mapped {
    memory: NonNull<u8>,
    bytes: usize,
    _only: MutexGuard<'static, ()>,
}

impl Mapped {
    fn new(map: &KernelMap) -> Result<Mapped, Errno> {
        let (address, bytes) = map.arena().ok_or(Errno::EINVAL)?;
        let only = MAPPED.lock();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let (at, fixed) = match address {
            0 => (null_mut(), MapFlags::empty()),
            _ => (with_exposed_provenance_mut(address as usize), MapFlags::FIXED_NOREPLACE),
        };
        // SAFETY: a new mapping that replaces none.
        let memory = unsafe { mmap(at, bytes, access, MapFlags::SHARED | fixed, map.as_fd(), 0) };
        let memory = memory.map_err(|errno| Errno(errno.raw_os_error()))?;
        let memory = NonNull::new(memory.cast()).ok_or(Errno::ENOMEM)?;
        Ok(Mapped { memory, bytes, _only: only })
    }

    fn at(&self, offset: usize, len: usize) -> Result<NonNull<u8>, Errno> {
        let end = offset.checked_add(len).filter(|&end| end <= self.bytes);
        end.ok_or(Errno::EINVAL)?;
        // SAFETY: inside of the mapping, as was just checked.
        Ok(unsafe { self.memory.add(offset) })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        let _unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}
