//! Packet memory of an application: a file that it passed to the daemon.
//!
//! The application can write to it at any time, so nothing here is ever a Rust reference: bytes are
//! copied in and out. It could also make the file shorter, after which an access to the mapping
//! would be fatal (`SIGBUS`). A memfd can be sealed against that (`F_SEAL_SHRINK`), which is done
//! here if the application has not done it. Any other file is read and written by system calls,
//! which fail beyond the file's end: this is slower, but as safe.
//!
//! The file must be in a tmpfs, as memfds are. A file system in user space could block the daemon
//! forever, and huge pages that the application gives back (`FALLOC_FL_PUNCH_HOLE`) may be missing
//! at the next access, even if the file is sealed.

#![expect(unsafe_code, reason = "memory shared with applications")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FileType, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use towpath_xdp::SharedBytes;
use towpath_xdp::frame::external::Chunks;

/// The memory.
#[derive(Debug)]
pub(crate) struct Memory {
    fd: OwnedFd,
    /// Its offset in the file.
    start: u64,
    len: usize,
    /// `None` if the file could become shorter.
    base: Option<NonNull<u8>>,
}

// SAFETY: shared memory that is copied from and to through raw pointers; nothing in `Memory`
// depends on the thread.
unsafe impl Send for Memory {}
// SAFETY: as above. Copies that race give bytes that the application could have written as well.
unsafe impl Sync for Memory {}

impl Memory {
    /// `len` bytes of a file from `start` on, which must exist.
    pub(crate) fn new(fd: OwnedFd, start: u64, len: u64) -> Result<Memory, Errno> {
        let size = usize::try_from(len).map_err(|_too_long| Errno::INVAL)?;
        let end = start.checked_add(len).ok_or(Errno::INVAL)?;
        if len > BYTES_MAX {
            return Err(Errno::NOBUFS);
        }
        // Device files can be in a tmpfs, too.
        let is_file = FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::RegularFile;
        if !is_file || fstatfs(&fd)?.f_type != TMPFS_MAGIC {
            return Err(Errno::OPNOTSUPP);
        }
        let is_sealed = seal(fd.as_fd());
        // The length is read after sealing, because it could have changed before.
        let there = fstat(&fd).map_err(|_not_a_file| Errno::INVAL)?.st_size;
        if u64::try_from(there).unwrap_or(0) < end {
            return Err(Errno::FAULT);
        }
        let base = if is_sealed { Some(map(fd.as_fd(), start, size)?) } else { None };
        Ok(Memory { fd, start, len: size, base })
    }

    /// The memory, if it is mapped.
    #[inline]
    pub(crate) fn mapping(&self) -> Option<Mapping<'_>> {
        Some(Mapping { base: self.base?, len: self.len as u64, of: PhantomData })
    }

    /// Maps it once more, for frames in it ([`towpath_xdp::frame::external`]). Fails if the file
    /// could become shorter, or if the system has no more room.
    pub(crate) fn chunks(&self) -> io::Result<Chunks> {
        if self.base.is_none() {
            return Err(Errno::OPNOTSUPP.into());
        }
        Chunks::map(self.fd.try_clone()?, self.start, self.len)
    }

    /// Writes bytes at an offset; fails if the file has become shorter.
    ///
    /// # Panics
    ///
    /// If the bytes would exceed the memory.
    #[inline]
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.mapping() {
            Some(mapping) => {
                mapping.write(offset, bytes);
                Ok(())
            }
            None => {
                self.check(offset, bytes.len());
                self.write_file(offset, bytes)
            }
        }
    }

    /// As [`Memory::write`], for bytes that an application may change meanwhile.
    ///
    /// # Panics
    ///
    /// If the bytes would exceed the memory.
    #[inline]
    pub(crate) fn write_shared(&self, offset: u64, bytes: SharedBytes<'_>) -> io::Result<()> {
        self.check(offset, bytes.len());
        let Some(base) = self.base else {
            let mut copy = Vec::new();
            bytes.append_to(&mut copy);
            return self.write_file(offset, &copy);
        };
        // SAFETY: inside the mapping, checked above; `bytes` are at other addresses, even where the
        // application has named the same part of its file twice.
        unsafe { copy(bytes.as_ptr(), base.as_ptr().add(offset as usize), bytes.len()) };
        Ok(())
    }

    /// Copies bytes from an offset; fails if the file has become shorter.
    ///
    /// # Panics
    ///
    /// If the bytes would exceed the memory.
    #[inline]
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.check(offset, bytes.len());
        match self.base {
            Some(base) => {
                // SAFETY: as in `write`.
                unsafe {
                    let from = base.as_ptr().add(offset as usize);
                    std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
                }
                Ok(())
            }
            None => self.read_file(offset, bytes),
        }
    }

    #[inline]
    fn check(&self, offset: u64, len: usize) {
        let end = offset.checked_add(len as u64);
        assert!(end.is_some_and(|end| end <= self.len as u64), "inside the memory");
    }

    #[cold]
    fn write_file(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = self.start + offset;
        // Writing behind its end would make the file longer again, and hide that it became shorter.
        if u64::try_from(fstat(&self.fd)?.st_size).unwrap_or(0) < at + bytes.len() as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let written = rustix::io::pwrite(&self.fd, bytes, at)?;
        if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    #[cold]
    fn read_file(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let wanted = bytes.len();
        let read = rustix::io::pread(&self.fd, bytes, self.start + offset)?;
        if read == wanted { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Mapped memory. It is small and passed by value, so that a writer of many packets need not look
/// up the address each time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping<'a> {
    base: NonNull<u8>,
    len: u64,
    of: PhantomData<&'a Memory>,
}

impl Mapping<'_> {
    /// Writes bytes at an offset.
    ///
    /// # Panics
    ///
    /// If the bytes would exceed the memory.
    #[inline]
    pub(crate) fn write(self, offset: u64, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len() as u64);
        assert!(end.is_some_and(|end| end <= self.len), "inside the memory");
        // SAFETY: inside the mapping, checked above; `bytes` is ours, so they don't overlap.
        unsafe { copy(bytes.as_ptr(), self.base.as_ptr().add(offset as usize), bytes.len()) };
    }

    /// Prefetches the memory at an offset for writing; any offset is allowed.
    #[inline]
    pub(crate) fn prefetch(self, offset: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let address = self.base.as_ptr().wrapping_add(offset as usize);
            // SAFETY: prefetching accesses nothing, and every address is allowed.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(address.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _not_known = offset;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(base) = self.base {
            // SAFETY: our own mapping, and nothing points into it but `self`.
            let _unmapped = unsafe { munmap(base.as_ptr().cast(), self.len) };
        }
    }
}

/// Copies bytes. A small packet is copied as two overlapping parts of a fixed size, without a call,
/// which would cost as much as the copy.
///
/// # Safety
///
/// As `copy_nonoverlapping`.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // SAFETY: both ends of `len` bytes, as the caller says, and never less than `N` of them.
        64..=128 => unsafe { copy_ends::<64>(from, to, len) },
        // SAFETY: as above.
        32..=63 => unsafe { copy_ends::<32>(from, to, len) },
        // SAFETY: as the caller says.
        _ => unsafe { std::ptr::copy_nonoverlapping(from, to, len) },
    }
}

/// Copies the first and the last `N` of `len` bytes.
///
/// # Safety
///
/// As `copy_nonoverlapping`, and `len` is at least `N`.
#[inline(always)]
unsafe fn copy_ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: `N` bytes at the front and at the end of `len`.
    unsafe {
        let front = from.cast::<[u8; N]>().read_unaligned();
        to.cast::<[u8; N]>().write_unaligned(front);
        if len > N {
            let end = from.add(len - N).cast::<[u8; N]>().read_unaligned();
            to.add(len - N).cast::<[u8; N]>().write_unaligned(end);
        }
    }
}

/// Makes sure that a file cannot become shorter; returns whether this worked.
fn seal(fd: BorrowedFd<'_>) -> bool {
    let is_sealed = |fd| fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    is_sealed(fd) || (fcntl_add_seals(fd, SealFlags::SHRINK).is_ok() && is_sealed(fd))
}

fn map(fd: BorrowedFd<'_>, start: u64, len: usize) -> Result<NonNull<u8>, Errno> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, fd, start) }?;
    NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)
}

/// Memory that the application never touched is charged to us at the first packet, so it is
/// limited. The kernel's is `RLIMIT_MEMLOCK`.
const BYTES_MAX: u64 = 4 << 30;
/// `<linux/magic.h>`
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
