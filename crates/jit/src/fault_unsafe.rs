//! The guard: an action that verified programs never take ends the run, and not the process.
//!
//! The verifier proves that compiled code accesses only allowed memory. If a proof is wrong, the
//! machine detects some of the consequences and sends a signal. If the signal's instruction is
//! compiled code, the handler returns the thread to the [`ReturnPoint`] it entered by, with a
//! record of the fault. Every other signal goes to its previous handler: Rust's own stack guard, or
//! the default.
//!
//! The same way ends code that does not return: [`interrupt`] sends its thread a signal.

#![expect(unsafe_code, reason = "a signal handler, and the registers of what it interrupted")]

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Once, OnceLock};

use libc::{sigaction, siginfo_t, ucontext_t};
use rustix::thread::Pid;

use crate::code_unsafe::is_code;
use crate::enter_unsafe::{ReturnPoint, active};

/// An action of compiled code that the machine does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeFault {
    /// Number of the signal.
    pub signal: i32,
    /// Address of the instruction ([`crate::Program::origin_of`]).
    pub instruction: u64,
    /// Accessed address for `SIGSEGV` and `SIGBUS`; the instruction's address for other signals.
    pub address: u64,
}

impl CodeFault {
    /// Whether there was no fault, but a request to end the run ([`interrupt`]).
    pub fn is_interrupt(&self) -> bool {
        self.signal == INTERRUPT
    }

    /// Name of the signal.
    pub fn signal_name(&self) -> &'static str {
        let known = SIGNALS.iter().find(|(number, _)| *number == self.signal);
        known.map_or("a signal", |(_, name)| name)
    }
}

/// Makes a thread of this process check whether its run is to end ([`crate::Machine::asked`]):
/// compiled code is left at once, or, if the thread is in a function of the runtime, at the next
/// check. A thread that runs other code is not affected.
pub fn interrupt(thread: Pid) {
    let process = std::process::id().cast_signed();
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: a signal to a thread of this process, ignored if its handler is not installed. The
    // call fails if the thread is gone.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, INTERRUPT) };
}

/// A signal that is ignored by default.
const INTERRUPT: c_int = libc::SIGURG;

/// Signals by which a processor reports an instruction, or a thread the end of a run.
const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (INTERRUPT, "SIGURG"),
];

/// Previous handlers, in the order of [`SIGNALS`].
static PREVIOUS: OnceLock<[sigaction; SIGNALS.len()]> = OnceLock::new();

/// Installs the handlers. Called before there is compiled code.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        PREVIOUS.get_or_init(|| SIGNALS.map(|(signal, _)| exchange(signal, None)));
        // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask, no restorer.
        let mut ours: sigaction = unsafe { zeroed() };
        let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
        ours.sa_sigaction = handler as usize;
        // On the stack that Rust gives each thread for its own guard: the thread's may be full.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        for (signal, _) in SIGNALS {
            exchange(signal, Some(&ours));
        }
    });
}

/// Sets the action for a signal; gives the previous one.
fn exchange(signal: c_int, new: Option<&sigaction>) -> sigaction {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: as in `install`.
    let mut old: sigaction = unsafe { zeroed() };
    // SAFETY: a valid action or null, and a valid place. It cannot fail for these signals.
    unsafe { sigaction(signal, new, &mut old) };
    old
}

/// Does only what a signal handler may: reads thread-local words and atomics, and writes to the
/// interrupted thread's stack and registers.
unsafe extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's arguments to a handler with SA_SIGINFO.
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

/// Returns the thread from compiled code to its return point; false if it is in other code.
///
/// # Safety
///
/// `context` is the interrupted state of this thread.
unsafe fn land(signal: c_int, info: &siginfo_t, context: &mut ucontext_t) -> bool {
    // A signal from another process or thread is unrelated to the instruction.
    let is_ours = info.si_code > 0;
    let (point, instruction) = (active(), registers(context).0);
    if !is_ours || point.is_null() || !is_code(instruction) {
        return false;
    }
    // SAFETY: the processor's signals come with an address.
    let address = unsafe { info.si_addr() } as u64;
    // SAFETY: the thread is in compiled code, entered through the innermost return point, which
    // lives as long as that call; no other code uses it meanwhile.
    leave(unsafe { &mut *point }, CodeFault { signal, instruction, address }, context);
    true
}

/// Makes the thread continue behind its call of compiled code.
fn leave(point: &mut ReturnPoint, fault: CodeFault, context: &mut ucontext_t) {
    point.fault = Some(fault);
    resume(context, point.address, point.stack);
}

/// Ends the run of this thread if that was asked for; false if not.
///
/// # Safety
///
/// `context` is the interrupted state of this thread.
unsafe fn stop_run(context: &mut ucontext_t) -> bool {
    let (point, instruction) = (active(), registers(context).0);
    if point.is_null() {
        return false;
    }
    // SAFETY: a return point and its machine outlive the call that they are for, which has not
    // returned, and the pointers of the machine outlive both.
    let is_asked = unsafe {
        let machine = (*point).machine;
        let is_asked = (*(*machine).asked).load(Ordering::Relaxed) == (*machine).run;
        if is_asked {
            // For the next check, if the thread is in a function of the runtime.
            ptr::write_volatile(&raw mut (*machine).stop, 1);
        }
        is_asked
    };
    if is_asked && is_code(instruction) {
        let fault = CodeFault { signal: INTERRUPT, instruction, address: instruction };
        // SAFETY: as in `land`.
        leave(unsafe { &mut *point }, fault, context);
    }
    is_asked
}

/// Passes a signal to its previous handler.
///
/// # Safety
///
/// `signal`, `info` and `context` are the unchanged arguments of a handler with SA_SIGINFO.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    let number = SIGNALS.iter().position(|(known, _)| *known == signal);
    let previous = PREVIOUS.get().zip(number).map(|(all, number)| all[number]);
    match previous {
        Some(action) if action.sa_sigaction > libc::SIG_IGN => {
            // With SA_SIGINFO it takes three arguments, else one, and ignores the others.
            // SAFETY: the address of a handler, which takes the kernel's arguments.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(action.sa_sigaction) };
            // SAFETY: as above.
            unsafe { handler(signal, info, context) };
        }
        // By default it is ignored.
        _ if signal == INTERRUPT => {}
        _ => {
            // The default: the process ends by this signal when the handler returns to the
            // instruction, or, if it was sent, when it is sent again. SAFETY: all zeroes is the
            // default action.
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

/// Makes the thread continue at `address` when the handler returns.
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

/// Makes the thread continue at `address` when the handler returns.
#[cfg(target_arch = "aarch64")]
fn resume(context: &mut ucontext_t, address: u64, stack: u64) {
    context.uc_mcontext.pc = address;
    context.uc_mcontext.sp = stack;
}
