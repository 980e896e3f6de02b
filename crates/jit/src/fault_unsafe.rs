//! The guard: what a verified program cannot do, done all the same, ends its run and not the
//! process.
//!
//! The verifier proves that compiled code touches only what it may. Should it be wrong, the machine
//! notices some of what follows and sends a signal. If the instruction is one of compiled code, the
//! handler leads the thread to the [`Landing`] it entered by, with a note of what happened. Every
//! other signal goes to its previous handler: Rust's own guard of stacks, or the default.
//!
//! By the same way code is left that does not return: [`interrupt`] sends its thread a signal of
//! its own.

#![expect(unsafe_code, reason = "a signal handler, and the registers of what it interrupted")]

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Once, OnceLock};

use libc::{sigaction, siginfo_t, ucontext_t};
use rustix::thread::Pid;

use crate::code_unsafe::is_code;
use crate::enter_unsafe::{Landing, active};

/// Something that compiled code did and the machine does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeFault {
    /// Number of the signal.
    pub signal: i32,
    /// Address of the instruction ([`crate::Program::origin_of`]).
    pub instruction: u64,
    /// The address it wanted to access, for `SIGSEGV` and `SIGBUS`; the instruction's for others.
    pub address: u64,
}

impl CodeFault {
    /// Nothing is wrong: the run was asked to end ([`interrupt`]).
    pub fn is_interrupt(&self) -> bool {
        self.signal == INTERRUPT
    }

    /// The signal's name.
    pub fn signal_name(&self) -> &'static str {
        let known = SIGNALS.iter().find(|(number, _)| *number == self.signal);
        known.map_or("a signal", |(_, name)| name)
    }
}

/// Has a thread of this process look whether its run is to end ([`crate::Machine::asked`]):
/// compiled code is left where it is, or at its next look when it is in a function of the runtime.
/// A thread that runs something else does not notice.
pub fn interrupt(thread: Pid) {
    let process = std::process::id().cast_signed();
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: a signal to a thread of ours, ignored where its handler is not installed. It fails
    // where the thread is gone.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, INTERRUPT) };
}

/// A signal without a meaning of its own.
const INTERRUPT: c_int = libc::SIGURG;

/// What a processor says about an instruction, and what a thread says about a run.
const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (INTERRUPT, "SIGURG"),
];

/// Previous handlers, in the order of [`SIGNALS`].
static PREVIOUS: OnceLock<[sigaction; SIGNALS.len()]> = OnceLock::new();

/// Has the signals caught from now on. Called before there is compiled code.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        PREVIOUS.get_or_init(|| SIGNALS.map(|(signal, _)| exchange(signal, None)));
        // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask, no restorer.
        let mut ours: sigaction = unsafe { zeroed() };
        let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
        ours.sa_sigaction = handler as usize;
        // On the stack that Rust gives each thread for its own guard: a thread may be out of stack.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        for (signal, _) in SIGNALS {
            exchange(signal, Some(&ours));
        }
    });
}

/// Sets what is done about a signal; gives what was.
fn exchange(signal: c_int, new: Option<&sigaction>) -> sigaction {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: as in `install`.
    let mut old: sigaction = unsafe { zeroed() };
    // SAFETY: a valid action or null, and a valid place. It cannot fail for these signals.
    unsafe { sigaction(signal, new, &mut old) };
    old
}

/// Does nothing that a signal handler may not: it reads thread-local words and atomics, and writes
/// to the interrupted thread's stack and registers.
unsafe extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel hands to a handler with SA_SIGINFO.
    let (info_of, interrupted) = unsafe { (&*info, &mut *context.cast::<ucontext_t>()) };
    let done = match signal {
        // SAFETY: as above.
        INTERRUPT => unsafe { stop_run(interrupted) },
        // SAFETY: as above.
        _ => unsafe { land(signal, info_of, interrupted) },
    };
    if !done {
        // SAFETY: as above.
        unsafe { pass_on(signal, info, context) };
    }
}

/// Leads the thread out of compiled code; false when it is not there.
///
/// # Safety
///
/// `context` is what a signal interrupted on this thread.
unsafe fn land(signal: c_int, info: &siginfo_t, context: &mut ucontext_t) -> bool {
    // What another process or thread sent says nothing about the instruction.
    let is_ours = info.si_code > 0;
    let (landing, instruction) = (active(), registers(context).0);
    if !is_ours || landing.is_null() || !is_code(instruction) {
        return false;
    }
    // SAFETY: the processor's signals come with an address.
    let address = unsafe { info.si_addr() } as u64;
    // SAFETY: the thread is in compiled code, entered through the innermost landing, which lives as
    // long as that call; no other code uses it meanwhile.
    leave(unsafe { &mut *landing }, CodeFault { signal, instruction, address }, context);
    true
}

/// Has the thread go on behind the call of compiled code that it is in.
fn leave(landing: &mut Landing, fault: CodeFault, context: &mut ucontext_t) {
    landing.fault = Some(fault);
    resume(context, landing.address, landing.stack);
}

/// Ends the run of this thread, if there is one that is to end; false when there is none.
///
/// # Safety
///
/// `context` is what a signal interrupted on this thread.
unsafe fn stop_run(context: &mut ucontext_t) -> bool {
    let (landing, instruction) = (active(), registers(context).0);
    if landing.is_null() {
        return false;
    }
    // SAFETY: a landing and its machine outlive the call that they are for, which has not returned,
    // and what the machine points to outlives both.
    let is_asked = unsafe {
        let machine = (*landing).machine;
        let is_asked = (*(*machine).asked).load(Ordering::Relaxed) == (*machine).run;
        if is_asked {
            // For the next look, when it is a function of the runtime that runs.
            ptr::write_volatile(&raw mut (*machine).stop, 1);
        }
        is_asked
    };
    if is_asked && is_code(instruction) {
        let fault = CodeFault { signal: INTERRUPT, instruction, address: instruction };
        // SAFETY: as in `land`.
        leave(unsafe { &mut *landing }, fault, context);
    }
    is_asked
}

/// Gives a signal to who had it before.
///
/// # Safety
///
/// The arguments of a handler with SA_SIGINFO, unchanged.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    let number = SIGNALS.iter().position(|(known, _)| *known == signal);
    let previous = PREVIOUS.get().zip(number).map(|(all, number)| all[number]);
    match previous {
        Some(action) if action.sa_sigaction > libc::SIG_IGN => {
            // With SA_SIGINFO it takes three arguments, else one, and does not see the others.
            // SAFETY: the address of a handler, which takes what the kernel gave us.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(action.sa_sigaction) };
            // SAFETY: as above.
            unsafe { handler(signal, info, context) };
        }
        // By default it is ignored.
        _ if signal == INTERRUPT => {}
        _ => {
            // The default: the process ends, by this signal, when we return to the instruction, or
            // when it is sent again, if it was sent. SAFETY: all zeroes is the default action.
            let default = unsafe { MaybeUninit::<sigaction>::zeroed().assume_init() };
            exchange(signal, Some(&default));
            // SAFETY: the kernel's, valid; `raise` may be called in handlers.
            unsafe {
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
    }
}

/// The instruction and the stack pointer that a signal interrupted.
#[cfg(target_arch = "x86_64")]
pub(crate) fn registers(context: &ucontext_t) -> (u64, u64) {
    let registers = &context.uc_mcontext.gregs;
    (registers[libc::REG_RIP as usize] as u64, registers[libc::REG_RSP as usize] as u64)
}

/// Has the thread go on at `address` when the handler returns.
#[cfg(target_arch = "x86_64")]
fn resume(context: &mut ucontext_t, address: u64, stack: u64) {
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RIP as usize] = address as i64;
    registers[libc::REG_RSP as usize] = stack as i64;
}

/// The instruction and the stack pointer that a signal interrupted.
#[cfg(target_arch = "aarch64")]
pub(crate) fn registers(context: &ucontext_t) -> (u64, u64) {
    (context.uc_mcontext.pc, context.uc_mcontext.sp)
}

/// Has the thread go on at `address` when the handler returns.
#[cfg(target_arch = "aarch64")]
fn resume(context: &mut ucontext_t, address: u64, stack: u64) {
    context.uc_mcontext.pc = address;
    context.uc_mcontext.sp = stack;
}
