//! The way into compiled code that a signal handler can leave.
//!
//! Registers that the caller needs unchanged are saved on the stack, and a [`ReturnPoint`] has
//! their place. The code behind [`enter`] has no destructors: to leave it from anywhere, it is
//! enough to restore the stack pointer.

#![expect(unsafe_code, reason = "calls machine code, and is returned to from the middle of it")]

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use crate::fault_unsafe::CodeFault;
use crate::machine_unsafe::Machine;

/// Return point for compiled code that cannot continue.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ReturnPoint {
    /// The stack pointer that the code at `address` expects.
    pub(crate) stack: u64,
    /// Address of the rest of [`enter`].
    pub(crate) address: u64,
    /// Reason of the return.
    pub(crate) fault: Option<CodeFault>,
    /// The machine that the code works on.
    pub(crate) machine: *mut Machine,
}

thread_local! {
    /// Innermost return point of this thread; null outside of compiled code.
    static ACTIVE: Cell<*mut ReturnPoint> = const { Cell::new(ptr::null_mut()) };
}

/// Innermost return point of this thread, or null. Signal handlers may call it: it needs no
/// initialisation and has no destructor.
pub(crate) fn active() -> *mut ReturnPoint {
    ACTIVE.try_with(Cell::get).unwrap_or(ptr::null_mut())
}

/// Calls compiled code with up to eight arguments, the first of which is the machine.
///
/// # Errors
///
/// Fails with the fault if the code did something that the machine does not allow. Effects until
/// then are not undone.
///
/// # Safety
///
/// `entry` is code of the platform's C convention, which takes at most these arguments, and they
/// satisfy its contract. Between this call and any compiled instruction that can fault, the stack
/// has no frame that must not be skipped.
#[inline]
pub(crate) unsafe fn guarded(entry: *const c_void, args: &[u64; 8]) -> Result<u64, CodeFault> {
    let machine = args[0] as *mut Machine;
    let mut point = ReturnPoint { stack: 0, address: 0, fault: None, machine };
    let point = &raw mut point;
    let outer = ACTIVE.replace(point);
    // SAFETY: the caller's promise; the return point outlives the call.
    let result = unsafe { enter(point, entry, args) };
    ACTIVE.set(outer);
    // SAFETY: a local, and the handler's write to it is complete.
    match unsafe { (*point).fault.take() } {
        None => Ok(result),
        Some(fault) => Err(fault),
    }
}

/// Defines a function that saves the registers that its caller expects unchanged, records the
/// return point in `point`, and calls: one for each processor.
macro_rules! door {
    ($arch:literal: $($line:literal,)+) => {
        #[cfg(target_arch = $arch)]
        #[unsafe(naked)]
        unsafe extern "C" fn enter(
            point: *mut ReturnPoint,
            entry: *const c_void,
            args: *const [u64; 8],
        ) -> u64 {
            naked_asm!($($line),+)
        }
    };
}

door! {
    "x86_64":
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov [rdi], rsp",
    "lea rax, [rip + 2f]",
    "mov [rdi + 8], rax",
    "mov rax, rsi",
    "mov r10, rdx",
    "push [r10 + 56]",
    "push [r10 + 48]",
    "mov rdi, [r10]",
    "mov rsi, [r10 + 8]",
    "mov rdx, [r10 + 16]",
    "mov rcx, [r10 + 24]",
    "mov r8, [r10 + 32]",
    "mov r9, [r10 + 40]",
    "call rax",
    "add rsp, 16",
    "2:",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
}

// The callee also saves floating-point registers.
door! {
    "aarch64":
    "stp x29, x30, [sp, #-160]!",
    "mov x29, sp",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "stp x23, x24, [sp, #48]",
    "stp x25, x26, [sp, #64]",
    "stp x27, x28, [sp, #80]",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "mov x9, sp",
    "adr x10, 2f",
    "stp x9, x10, [x0]",
    "mov x9, x1",
    "mov x10, x2",
    "ldp x0, x1, [x10]",
    "ldp x2, x3, [x10, #16]",
    "ldp x4, x5, [x10, #32]",
    "ldp x6, x7, [x10, #48]",
    "blr x9",
    "2:",
    "ldp x19, x20, [sp, #16]",
    "ldp x21, x22, [sp, #32]",
    "ldp x23, x24, [sp, #48]",
    "ldp x25, x26, [sp, #64]",
    "ldp x27, x28, [sp, #80]",
    "ldp d8, d9, [sp, #96]",
    "ldp d10, d11, [sp, #112]",
    "ldp d12, d13, [sp, #128]",
    "ldp d14, d15, [sp, #144]",
    "ldp x29, x30, [sp], #160",
    "ret",
}
