//! A memory area from which tests make any `bpf(2)` call, valid or invalid.
//!
//! Tests ask the kernel for its answers to invalid attributes. The kernel reads and writes at the
//! addresses in these attributes; [`Area::call`] therefore checks every word of the area first, and
//! refuses addresses of other memory of this process.
#![expect(unsafe_code, reason = "memory for the kernel, and a system call with any attribute")]

use std::fs;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr::NonNull;

use towpath_bpf::Errno;

/// Memory between guard pages.
#[derive(Debug)]
pub struct Area {
    whole: NonNull<libc::c_void>,
}

/// Result of a command.
#[derive(Debug)]
pub enum Reply {
    /// A number, usually 0.
    Number(u32),
    /// A new file descriptor.
    Descriptor(OwnedFd),
}

impl Area {
    /// Number of usable bytes.
    pub const BYTES: usize = 1 << 20;

    /// Allocates zeroed memory.
    ///
    /// # Errors
    ///
    /// Fails with `ENOMEM` if there is no memory.
    pub fn new() -> Result<Area, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, where the kernel finds room.
        let whole =
            unsafe { libc::mmap(std::ptr::null_mut(), WHOLE_BYTES, libc::PROT_NONE, flags, -1, 0) };
        let whole = NonNull::new(whole).filter(|at| at.as_ptr() != libc::MAP_FAILED);
        let area = Area { whole: whole.ok_or(Errno::ENOMEM)? };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies inside of the mapping that was just made.
        let result = unsafe { libc::mprotect(area.start().cast(), Self::BYTES, access) };
        if result == 0 { Ok(area) } else { Err(Errno::ENOMEM) }
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.start() as u64
    }

    /// Contents of the area.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: readable as long as `self` lives; the kernel writes only during `call`, which has
        // it exclusively.
        unsafe { std::slice::from_raw_parts(self.start(), Self::BYTES) }
    }

    /// Contents of the area, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and no other reference exists.
        unsafe { std::slice::from_raw_parts_mut(self.start(), Self::BYTES) }
    }

    /// Calls `bpf(2)` with an attribute of `size` bytes at `attr`, which lies in the area or where
    /// nothing is mapped.
    ///
    /// # Panics
    ///
    /// Panics if a word of the area is the address of other memory of this process.
    pub fn call(&mut self, command: u32, attr: u64, size: u32) -> Result<Reply, Errno> {
        let mapped = self.other_memory();
        let (words, _rest) = self.bytes().as_chunks();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word)).chain([attr]);
        for word in words.filter(|&word| word != 0) {
            let inside = mapped.iter().find(|(first, end)| (*first..*end).contains(&word));
            assert!(inside.is_none(), "{word:#x} is an address outside of the area");
        }
        // SAFETY: the attribute and all memory it refers to are in the area, which is borrowed
        // mutably, or at unmapped addresses: every word was compared with the mappings, and the
        // guard pages stop accesses beyond the end.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_long, attr, size) };
        if result < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error();
            return Err(Errno(errno.unwrap_or(Errno::EINVAL.0)));
        }
        if !RETURNS_DESCRIPTOR.contains(&command) {
            return Ok(Reply::Number(result as u32));
        }
        // SAFETY: these commands return a new descriptor that no other code owns.
        Ok(Reply::Descriptor(unsafe { OwnedFd::from_raw_fd(result as i32) }))
    }

    /// Start and end of all mappings besides the area.
    fn other_memory(&self) -> Vec<(u64, u64)> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let range = |line: &str| {
            let (first, end) = line.split(' ').next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(first)?, number(end)?))
        };
        let own = self.whole.as_ptr() as u64..self.whole.as_ptr() as u64 + WHOLE_BYTES as u64;
        maps.lines().filter_map(range).filter(|(first, _)| !own.contains(first)).collect()
    }

    fn start(&self) -> *mut u8 {
        self.whole.as_ptr().cast::<u8>().wrapping_add(GUARD_BYTES)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and references to it have ended.
        unsafe { libc::munmap(self.whole.as_ptr(), WHOLE_BYTES) };
    }
}

const GUARD_BYTES: usize = 64 << 20;
const WHOLE_BYTES: usize = Area::BYTES + 2 * GUARD_BYTES;
/// Commands that return a file descriptor: `MAP_CREATE`, `PROG_LOAD`, `OBJ_GET`, `*_GET_FD_BY_ID`,
/// `RAW_TRACEPOINT_OPEN`, `BTF_LOAD`, `LINK_CREATE`, `ENABLE_STATS`, `ITER_CREATE`, `TOKEN_CREATE`.
const RETURNS_DESCRIPTOR: [u32; 13] = [0, 5, 7, 13, 14, 17, 18, 19, 28, 30, 32, 33, 36];
