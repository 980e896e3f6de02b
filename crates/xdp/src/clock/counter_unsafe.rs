//! The processor's counter of time.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "reads a register that only intrinsics read")
)]

/// Ticks since the machine started, of `CLOCK_MONOTONIC`'s own counter; 0 where there is none to be
/// read.
#[inline(always)]
pub(super) fn counter() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: every x86-64 has the instruction, and Linux lets programs use it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0
}
