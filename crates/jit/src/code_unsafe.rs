//! Machine code in memory: one mapping for each program, writable until it is complete, executable
//! from then on, never both; and the total size of all mappings.

#![expect(unsafe_code, reason = "maps memory, fills it and makes it executable")]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::enter_unsafe::guarded;
use crate::error::CompileError;
use crate::fault_unsafe::{self, CodeFault};
use crate::icache_unsafe;
use crate::machine_unsafe::{Batch, Machine};
use crate::ranges::Ranges;

/// Address ranges of all programs' code, for the guard.
static PLACED: Ranges = Ranges::new();

/// Whether an address is in compiled code. Signal handlers may call it.
pub(crate) fn is_code(address: u64) -> bool {
    PLACED.contain(address)
}

/// Number of bytes of executable memory in use by all programs.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Executable memory at its final address until dropped.
#[derive(Debug)]
pub(crate) struct Code {
    base: NonNull<c_void>,
    /// Number of mapped bytes: whole pages.
    mapped: usize,
    /// Number of bytes of code.
    bytes: usize,
}

// SAFETY: the mapping is immutable once `Code::place` returns, and freed by the only owner.
unsafe impl Send for Code {}
// SAFETY: as above; shared access is reading and executing.
unsafe impl Sync for Code {}

impl Code {
    /// Maps `bytes` bytes, lets `fill` write them (it gets their address), and makes them
    /// executable. All programs together may have `limit` bytes.
    pub(crate) fn place(
        bytes: usize,
        limit: usize,
        fill: impl FnOnce(u64, &mut [u8]) -> Result<(), CompileError>,
    ) -> Result<Code, CompileError> {
        let code = Code::map(bytes, limit)?;
        // SAFETY: `mapped >= bytes` zeroed, writable bytes that no other code has access to.
        let memory = unsafe { std::slice::from_raw_parts_mut(code.base.as_ptr().cast(), bytes) };
        fill(code.address(), memory)?;
        // SAFETY: the whole mapping, into which no reference points any more.
        let sealed = unsafe {
            let rights = MprotectFlags::READ | MprotectFlags::EXEC;
            rustix::mm::mprotect(code.base.as_ptr(), code.mapped, rights)
        };
        sealed.map_err(|error| no_memory(bytes, error))?;
        icache_unsafe::publish(code.bytes());
        fault_unsafe::install();
        PLACED.add(code.address(), code.address() + bytes as u64);
        Ok(code)
    }

    fn map(bytes: usize, limit: usize) -> Result<Code, CompileError> {
        let mapped = bytes.max(1).next_multiple_of(rustix::param::page_size());
        let in_use = IN_USE.fetch_add(mapped, Relaxed);
        let result = if in_use.saturating_add(mapped) > limit {
            Err(CompileError::CodeFull { bytes: mapped, in_use, limit })
        } else {
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new private mapping at an address of the kernel's choice.
            let base = unsafe {
                rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped, rights, MapFlags::PRIVATE)
            };
            let base = base.and_then(|base| NonNull::new(base).ok_or(Errno::NOMEM));
            base.map_err(|error| no_memory(bytes, error))
        };
        match result {
            Ok(base) => Ok(Code { base, mapped, bytes }),
            Err(error) => {
                IN_USE.fetch_sub(mapped, Relaxed);
                Err(error)
            }
        }
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Pointer to the byte at an offset, for calls.
    pub(crate) fn pointer(&self, offset: usize) -> *const c_void {
        self.base.as_ptr().wrapping_byte_add(offset)
    }

    /// Offset of an address in the code.
    pub(crate) fn offset_of(&self, address: u64) -> Option<usize> {
        let offset = address.checked_sub(self.address())?;
        (offset < self.bytes as u64).then_some(offset as usize)
    }

    /// Bytes of the code, for reading.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: readable, initialised and immutable for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.bytes) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        PLACED.remove(self.address());
        // SAFETY: our own mapping; every user of its code held a reference to `self`. A failure
        // leaves the memory mapped, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.mapped) };
        IN_USE.fetch_sub(self.mapped, Relaxed);
    }
}

/// Calls the batch entry at `entry` for the frames from `first` on; gives their number, or the
/// index of the frame that stopped the run.
///
/// # Errors
///
/// Fails if the code did something that the machine does not allow, at some frame.
///
/// # Safety
///
/// Code compiled as `extern "C" fn(machine, frames, returned, first, count) -> u64` is at `entry`
/// and stays there; otherwise, as [`crate::Program::run_batch`].
pub(crate) unsafe fn run_batch(
    entry: *const c_void,
    machine: *mut Machine,
    batch: Batch,
    first: usize,
) -> Result<usize, CodeFault> {
    let Batch { frames, returned } = batch;
    let (places, count) = (returned.cast::<u32>(), returned.len());
    let args = [machine as u64, frames as u64, places as u64, first as u64, count as u64, 0, 0, 0];
    // SAFETY: the caller's promise. Functions of the runtime that compiled code calls enter it
    // again only through `guarded`.
    unsafe { guarded(entry, &args).map(|index| index as usize) }
}

fn no_memory(bytes: usize, error: Errno) -> CompileError {
    CompileError::Memory { bytes, source: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_costs_nothing() {
        let refused = Code::place(1 << 20, 4096, |_, _| Ok(()));
        assert!(matches!(refused, Err(CompileError::CodeFull { .. })), "{refused:?}");
        let failed =
            Code::place(16, usize::MAX, |_, _| Err(CompileError::Host("no code after all".into())));
        assert!(failed.is_err());
        let code = Code::place(3, usize::MAX, |_, bytes| {
            bytes.copy_from_slice(&[1, 2, 3]);
            Ok(())
        });
        assert_eq!(code.expect("memory for three bytes").bytes(), [1, 2, 3]);
    }
}
