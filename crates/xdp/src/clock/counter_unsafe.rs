//! The processor's time stamp counter.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "reads a register that only intrinsics read")
)]

/// Ticks since the machine started, of the counter behind `CLOCK_MONOTONIC`; 0 if there is none
/// that can be read.
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
