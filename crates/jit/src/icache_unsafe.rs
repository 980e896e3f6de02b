//! Publication of new code to all processors, for machines whose instruction caches do not watch
//! stores.
//!
//! x86 needs none of this. On aarch64 written bytes are in the data cache, and a processor may hold
//! the earlier contents of the address: in its instruction cache, and in its pipeline (Arm
//! Architecture Reference Manual, "Concurrent modification and execution of instructions").

#![cfg_attr(
    target_arch = "aarch64",
    expect(unsafe_code, reason = "maintains caches, which only instructions can")
)]

/// Makes code that was just written visible to instruction fetches.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn publish(_code: &[u8]) {}

/// Makes code that was just written visible to instruction fetches.
#[cfg(target_arch = "aarch64")]
pub(crate) fn publish(code: &[u8]) {
    use std::arch::asm;

    let (start, end) = (code.as_ptr() as usize, code.as_ptr() as usize + code.len());
    let types: usize;
    // SAFETY: reads a register that Linux lets processes read, with the sizes of cache lines.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) types, options(nomem, nostack)) };
    let data_line = 4 << (types >> 16 & 15);
    let code_line = 4 << (types & 15);
    for line in (start & !(data_line - 1)..end).step_by(data_line) {
        // SAFETY: writes a line of readable memory back, which changes nothing in it.
        unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack)) };
    }
    // SAFETY: waits for the above.
    unsafe { asm!("dsb ish", options(nostack)) };
    for line in (start & !(code_line - 1)..end).step_by(code_line) {
        // SAFETY: drops a cached line of readable memory, which is fetched again.
        unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack)) };
    }
    // SAFETY: waits for the above, here; the system call makes the process's other threads do so.
    unsafe {
        asm!("dsb ish", "isb", options(nostack));
        for command in [REGISTER_SYNC_CORE, SYNC_CORE] {
            // Before Linux 4.16 there is no such command; a context switch has the same effect.
            let _old_kernel = libc::syscall(libc::SYS_membarrier, command, 0, 0);
        }
    }
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE`.
#[cfg(target_arch = "aarch64")]
const SYNC_CORE: libc::c_int = 1 << 5;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE`.
#[cfg(target_arch = "aarch64")]
const REGISTER_SYNC_CORE: libc::c_int = 1 << 6;
