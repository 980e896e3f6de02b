//! A sampling profiler of threads: a timer interrupts a thread, and a signal handler records the
//! instruction of compiled code that it was at, or was called from.
//!
//! `perf` is better where it is allowed. This profiler needs no rights and no tools, and knows the
//! origins of compiled code ([`crate::Program::origin_of`]).

#![expect(
    unsafe_code,
    reason = "a timer, its signal's handler, and the stack of what it interrupts"
)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use libc::{itimerspec, sigaction, sigevent, siginfo_t, timer_t, ucontext_t};
use parking_lot::{Mutex, MutexGuard};
use rustix::thread::{Pid, gettid};

use crate::code_unsafe::is_code;
use crate::enter_unsafe::active;
use crate::fault_unsafe::registers;

/// Position of a thread at an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The instruction of compiled code that was running, or that called the running function of
    /// the runtime; `None` outside of compiled code.
    pub instruction: Option<u64>,
    /// Whether a function of the runtime was running.
    pub is_in_runtime: bool,
}

/// A profiler that collects samples of some threads until it is stopped. Only one exists at a time.
#[derive(Debug)]
pub struct Sampler {
    timers: Vec<timer_t>,
    _only: MutexGuard<'static, ()>,
}

impl Sampler {
    /// Starts sampling this thread, unless another sampler runs.
    ///
    /// # Errors
    ///
    /// Fails if the system has no timer left.
    pub fn start(period: Duration) -> io::Result<Sampler> {
        Sampler::over(&[gettid()], period, ONLY.lock())
    }

    /// Starts sampling threads of this process; `None` if another sampler runs. Samples beyond the
    /// first [`SAMPLES_MAX`] are lost.
    ///
    /// # Errors
    ///
    /// Fails if one of the threads is gone, or the system has no timer left.
    pub fn of(threads: &[Pid], period: Duration) -> io::Result<Option<Sampler>> {
        ONLY.try_lock().map(|only| Sampler::over(threads, period, only)).transpose()
    }

    fn over(
        threads: &[Pid],
        period: Duration,
        only: MutexGuard<'static, ()>,
    ) -> io::Result<Sampler> {
        COUNT.store(0, Ordering::Relaxed);
        handle();
        // If a timer can't be made, this is dropped with those before it.
        let mut sampler = Sampler { timers: Vec::new(), _only: only };
        for thread in threads {
            sampler.timers.push(timer_of(*thread)?);
        }
        sampler.timers.iter().try_for_each(|timer| start_timer(*timer, period))?;
        Ok(sampler)
    }

    /// Stops sampling; gives the samples.
    pub fn stop(mut self) -> Vec<Sample> {
        // Before any sample is read, and while no other sampler can start.
        self.end();
        let count = COUNT.load(Ordering::Relaxed).min(SAMPLES.len());
        let samples = SAMPLES[..count].iter().map(|sample| sample.load(Ordering::Relaxed));
        let sample = |word: u64| Sample {
            instruction: (word & !IN_RUNTIME != 0).then_some(word & !IN_RUNTIME),
            is_in_runtime: word & IN_RUNTIME != 0,
        };
        samples.map(sample).collect()
    }

    fn end(&mut self) {
        for timer in self.timers.drain(..) {
            // SAFETY: our own timer, which is not used any more. A signal of it that is still
            // pending finds the handler, which stays.
            unsafe { libc::timer_delete(timer) };
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

static ONLY: Mutex<()> = Mutex::new(());

/// A timer that interrupts a thread of this process, not yet running.
fn timer_of(thread: Pid) -> io::Result<timer_t> {
    // SAFETY: all zeroes is a valid event and a valid place for a timer.
    let (mut event, mut timer): (sigevent, timer_t) = unsafe { (zeroed(), zeroed()) };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGPROF;
    event.sigev_notify_thread_id = thread.as_raw_nonzero().get();
    // SAFETY: a valid event, and a place to write to.
    match unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) } {
        0 => Ok(timer),
        _ => Err(io::Error::last_os_error()),
    }
}

fn start_timer(timer: timer_t, period: Duration) -> io::Result<()> {
    // SAFETY: all zeroes is a valid time: never.
    let mut times: itimerspec = unsafe { zeroed() };
    times.it_interval.tv_nsec = i64::from(period.subsec_nanos());
    times.it_value = times.it_interval;
    // SAFETY: our own timer.
    match unsafe { libc::timer_settime(timer, 0, &times, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number of samples taken; those without room are dropped.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static SAMPLES: [AtomicU64; SAMPLES_MAX] = [const { AtomicU64::new(0) }; SAMPLES_MAX];
/// Largest number of samples.
pub const SAMPLES_MAX: usize = 1 << 14;
/// Flag in a sample: no instruction of a process has an address with this bit.
const IN_RUNTIME: u64 = 1 << 63;
/// Number of words of the stack in which a caller is searched for.
const DEPTH: usize = 512;

fn handle() {
    // SAFETY: all zeroes is a valid `sigaction`.
    let mut ours: sigaction = unsafe { zeroed() };
    let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_time;
    ours.sa_sigaction = handler as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: a valid action; it cannot fail for this signal.
    unsafe { sigaction(libc::SIGPROF, &ours, ptr::null_mut()) };
}

unsafe extern "C" fn on_time(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's arguments to a handler with SA_SIGINFO.
    let (instruction, stack) = registers(unsafe { &*context.cast::<ucontext_t>() });
    let word = match is_code(instruction) {
        true => instruction,
        // SAFETY: the interrupted thread's stack pointer.
        false => unsafe { caller(stack) }.map_or(0, |caller| caller | IN_RUNTIME),
    };
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    if let Some(place) = SAMPLES.get(number) {
        place.store(word, Ordering::Relaxed);
    }
}

/// The instruction of compiled code that called the running function: the innermost word on the
/// stack that is an address of compiled code.
///
/// # Safety
///
/// `stack` is this thread's stack pointer.
unsafe fn caller(stack: u64) -> Option<u64> {
    let landing = active();
    if landing.is_null() {
        return None;
    }
    // SAFETY: a landing outlives the call that it is for, which has not returned.
    let end = unsafe { (*landing).stack };
    let words = (stack..end).step_by(size_of::<u64>()).take(DEPTH);
    // SAFETY: all memory between the stack pointer and the entry of compiled code is stack.
    let mut words = words.map(|place| unsafe { ptr::read_volatile(place as *const u64) });
    // A return address is behind the call.
    words.find(|&word| is_code(word)).map(|word| word - 1)
}
