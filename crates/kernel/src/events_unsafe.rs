//! User space's end of ring buffers and perf events, which makes room in them.
#![expect(unsafe_code, reason = "maps memory that the kernel writes")]

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_bpf::Errno;

use crate::map::KernelMap;
use crate::sys_unsafe::{last_errno, number};

/// A reader of a ring buffer map that discards its records.
#[derive(Debug)]
pub struct RingReader {
    consumer: Mapping,
    producer: Mapping,
}

impl RingReader {
    /// Opens the positions of a ring buffer.
    ///
    /// # Errors
    ///
    /// Fails with the kernel's error for other kinds of maps.
    pub fn open(map: &KernelMap) -> Result<Self, Errno> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let consumer = Mapping::new(map.as_fd(), PAGE_BYTES, access, 0)?;
        let producer = Mapping::new(map.as_fd(), PAGE_BYTES, libc::PROT_READ, PAGE_BYTES)?;
        Ok(RingReader { consumer, producer })
    }

    /// Discards all records.
    pub fn skip(&self) {
        let end = self.producer.word().load(Ordering::Acquire);
        self.consumer.word().store(end, Ordering::Release);
    }
}

/// Listeners for a perf event array: a ring for each CPU that can be opened. They have no reader:
/// new samples overwrite old ones.
#[derive(Debug)]
pub struct PerfListeners {
    _rings: Vec<(OwnedFd, Mapping)>,
}

impl PerfListeners {
    /// Opens a ring of `pages` pages, a power of two, on each of the first `cpus` CPUs, and puts
    /// them into the map.
    ///
    /// # Errors
    ///
    /// Fails with the kernel's error if no ring can be opened, or if the map is of another kind.
    pub fn open(map: &KernelMap, cpus: usize, pages: usize) -> Result<Self, Errno> {
        let mut rings = Vec::new();
        let mut refusal = Errno::ENODEV;
        for cpu in 0..cpus {
            let event = match open_event(cpu) {
                Ok(event) => event,
                Err(errno) => {
                    refusal = errno;
                    continue;
                }
            };
            let bytes = (1 + pages) * PAGE_BYTES;
            let ring = Mapping::new(event.as_fd(), bytes, libc::PROT_READ, 0)?;
            map.update(&(cpu as u32).to_ne_bytes(), &number(event.as_fd()).to_ne_bytes(), 0)?;
            rings.push((event, ring));
        }
        if rings.is_empty() { Err(refusal) } else { Ok(PerfListeners { _rings: rings }) }
    }
}

/// An event for samples of programs on a CPU, written from the ring's end to its start as in
/// overwriting rings.
fn open_event(cpu: usize) -> Result<OwnedFd, Errno> {
    let mut attr = [0u64; ATTR_WORDS];
    attr[0] = u64::from(PERF_TYPE_SOFTWARE) | (size_of::<[u64; ATTR_WORDS]>() as u64) << 32;
    attr[1] = PERF_COUNT_SW_BPF_OUTPUT;
    attr[3] = PERF_SAMPLE_RAW;
    attr[5] = WRITE_BACKWARD;
    // SAFETY: the attribute contains its size, and outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attr.as_ptr(),
            -1 as libc::pid_t,
            cpu as libc::c_int,
            -1 as libc::c_int,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: a new descriptor that no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Memory shared with the kernel.
#[derive(Debug)]
struct Mapping {
    start: NonNull<libc::c_void>,
    bytes: usize,
}

impl Mapping {
    fn new(
        fd: BorrowedFd<'_>,
        bytes: usize,
        access: libc::c_int,
        offset: usize,
    ) -> Result<Self, Errno> {
        let null = std::ptr::null_mut();
        let offset = offset as libc::off_t;
        // SAFETY: a new mapping, where the kernel finds room.
        let start =
            unsafe { libc::mmap(null, bytes, access, libc::MAP_SHARED, fd.as_raw_fd(), offset) };
        match NonNull::new(start).filter(|at| at.as_ptr() != libc::MAP_FAILED) {
            Some(start) => Ok(Mapping { start, bytes }),
            None => Err(last_errno()),
        }
    }

    /// The first word of the mapping.
    fn word(&self) -> &AtomicU64 {
        // SAFETY: aligned memory of at least a page that lives as long as `self`; the kernel
        // changes the word atomically, too.
        unsafe { self.start.cast().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, to which no reference is left.
        unsafe { libc::munmap(self.start.as_ptr(), self.bytes) };
    }
}

const PAGE_BYTES: usize = 4096;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
/// Number of 64-bit words of a `struct perf_event_attr` (`PERF_ATTR_SIZE_VER5`).
const ATTR_WORDS: usize = 14;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_BPF_OUTPUT: u64 = 10;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
/// The bit field `write_backward`.
const WRITE_BACKWARD: u64 = 1 << 26;
