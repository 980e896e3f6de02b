//! Replacement of missing guest memory by zeroes.
//!
//! The monitor can truncate a file that it passed; accessing the mapping is then fatal (`SIGBUS`),
//! also for all other guests' traffic. So missing pages are replaced by zeroes at the first access,
//! and their guest's rings are broken.

#![expect(unsafe_code, reason = "a signal handler")]

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{sigaction, siginfo_t};

/// A range of addresses whose faults are handled for a guest.
#[derive(Debug)]
pub(super) struct Guarded(&'static Range);

#[derive(Debug)]
struct Range {
    start: AtomicUsize,
    /// End of the range; 0 if the slot is free, 1 while it is being written.
    end: AtomicUsize,
}

impl Guarded {
    /// Guards `len` bytes from `start` on; `None` if there are [`RANGES_MAX`] ranges already.
    pub(super) fn new(start: usize, len: usize) -> Option<Guarded> {
        install();
        let is_ours = |range: &&Range| {
            let (order, other) = (Ordering::AcqRel, Ordering::Relaxed);
            range.end.compare_exchange(FREE, TAKEN, order, other).is_ok()
        };
        let range = RANGES.iter().find(is_ours)?;
        range.start.store(start, Ordering::Relaxed);
        range.end.store(start + len, Ordering::Release);
        Some(Guarded(range))
    }

    /// Stops handling faults in the range.
    pub(super) fn end(&mut self) {
        self.0.end.store(FREE, Ordering::Release);
    }
}

fn install() {
    PREVIOUS.get_or_init(|| {
        // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask, no restorer.
        let (mut ours, mut before): (sigaction, sigaction) = unsafe { (zeroed(), zeroed()) };
        let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: valid actions. It cannot fail for this signal.
        unsafe { sigaction(libc::SIGBUS, &ours, &mut before) };
        before
    });
}

/// The `SIGBUS` handler. It reads atomics and makes one system call; signals outside guarded ranges
/// go to the previous handler.
unsafe extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the argument that the kernel passes to a handler with SA_SIGINFO.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 && is_guarded(at) && put_zeroes(at) {
        return;
    }
    // SAFETY: the arguments of a handler, unchanged.
    unsafe { pass_on(signal, info, context) };
}

fn is_guarded(at: usize) -> bool {
    RANGES.iter().any(|range| {
        let end = range.end.load(Ordering::Acquire);
        end > TAKEN && (range.start.load(Ordering::Relaxed)..end).contains(&at)
    })
}

/// Maps a page of zeroes in place of a missing one, of the same size.
fn put_zeroes(at: usize) -> bool {
    [PAGE_BYTES, HUGE_PAGE_BYTES, GIANT_PAGE_BYTES].into_iter().any(|bytes| {
        let page = at & !(bytes - 1);
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let flags = flags | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: pages of a guest's mapping, which nothing refers to; the call may be made in
        // handlers, as it is nothing but a system call.
        let mapped = unsafe {
            libc::mmap(ptr::without_provenance_mut(page), bytes, protection, flags, -1, 0)
        };
        mapped != libc::MAP_FAILED
    })
}

/// # Safety
///
/// The arguments of a handler with SA_SIGINFO, unchanged.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    match PREVIOUS.get() {
        Some(action) if action.sa_sigaction > libc::SIG_IGN => {
            // SAFETY: the address of a handler, which takes the arguments that the kernel passed.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(action.sa_sigaction) };
            // SAFETY: as above.
            unsafe { handler(signal, info, context) };
        }
        // SAFETY: all zeroes is the default action, which ends the process when the instruction is
        // tried again, or the signal sent.
        _ => unsafe {
            let default: sigaction = zeroed();
            sigaction(signal, &default, ptr::null_mut());
            if (*info).si_code <= 0 {
                libc::raise(signal);
            }
        },
    }
}

/// The previous handler of the signal.
static PREVIOUS: OnceLock<sigaction> = OnceLock::new();
static RANGES: [Range; RANGES_MAX] =
    [const { Range { start: AtomicUsize::new(0), end: AtomicUsize::new(FREE) } }; RANGES_MAX];

const FREE: usize = 0;
const TAKEN: usize = 1;
/// Most regions of all guests together.
const RANGES_MAX: usize = 4096;
const PAGE_BYTES: usize = 4096;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const GIANT_PAGE_BYTES: usize = 1 << 30;
const _: () = assert!(
    HUGE_PAGE_BYTES.is_multiple_of(PAGE_BYTES) && GIANT_PAGE_BYTES.is_multiple_of(HUGE_PAGE_BYTES)
);
const _: () = assert!(FREE != TAKEN);

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::super::mapping_unsafe::Mapping;

    #[test]
    fn what_is_gone_reads_as_zeroes() {
        // Without seals, which would forbid truncation.
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 16 << 12).unwrap();
        let mapping = Mapping::new(&file, 0, 16 << 12).unwrap();
        mapping.write_array(5 << 12, [7; 16]);
        mapping.write_array(0, [7; 16]);
        ftruncate(&file, 1 << 12).unwrap();
        assert_eq!(mapping.read_array::<16>(5 << 12), [0; 16]);
        mapping.write_array(5 << 12, [9; 16]);
        assert_eq!(mapping.read_array::<16>(0), [7; 16], "what is there stays");
        drop(mapping);
        let refused = Mapping::new(&file, 0, 2 << 12).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
    }
}
