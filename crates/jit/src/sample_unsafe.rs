//! Where threads' time goes, by sampling: a timer interrupts a thread, and a signal handler notes
//! which instruction of compiled code it was at, or was called from.
//!
//! `perf` can do that better where it may be used. This needs no right and no tool, and knows what
//! compiled code was made of ([`crate::Program::origin_of`]).

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

/// What a thread was at when it was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The instruction of compiled code that was running, or that called the function of the
    /// runtime which was; `None` outside of compiled code.
    pub instruction: Option<u64>,
    /// It was such a function that was running.
    pub is_in_runtime: bool,
}

/// Samples of some threads, until it is asked for them. There is one at a time.
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
    /// The system has no timer left.
    pub fn start(period: Duration) -> io::Result<Sampler> {
        Sampler::over(&[gettid()], period, ONLY.lock())
    }

    /// Starts sampling threads of this process; `None` if another sampler runs. Of more than
    /// [`SAMPLES_MAX`] samples the rest is lost.
    ///
    /// # Errors
    ///
    /// One of the threads is gone, or the system has no timer left.
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
        // Dropped, and its timers with it, when one of them can't be made.
        let mut sampler = Sampler { timers: Vec::new(), _only: only };
        for thread in threads {
            sampler.timers.push(timer_of(*thread)?);
        }
        sampler.timers.iter().try_for_each(|timer| start_timer(*timer, period))?;
        Ok(sampler)
    }

    /// Ends; gives what was seen.
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
            // SAFETY: our own timer, which is not used any more. A signal of it that is on its way
            // finds the handler, which stays.
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

/// Samples that were taken; more than there is room for are dropped.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static SAMPLES: [AtomicU64; SAMPLES_MAX] = [const { AtomicU64::new(0) }; SAMPLES_MAX];
/// Samples there is room for.
pub const SAMPLES_MAX: usize = 1 << 14;
/// Of a sample: no instruction of a process has an address with this bit.
const IN_RUNTIME: u64 = 1 << 63;
/// Words of the stack in which a caller is looked for.
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
    // SAFETY: what the kernel hands to a handler with SA_SIGINFO.
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

/// The instruction of compiled code that called what runs: the innermost word on the stack that is
/// an address of compiled code.
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
    // SAFETY: between the stack pointer and where compiled code was entered all is the stack's.
    let mut words = words.map(|place| unsafe { ptr::read_volatile(place as *const u64) });
    // What is returned to follows the call.
    words.find(|&word| is_code(word)).map(|word| word - 1)
}
