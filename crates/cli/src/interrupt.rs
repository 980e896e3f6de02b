//! Ctrl-C (SIGINT): a command that runs for long ends and prints its results so far. A second one
//! ends the process at once.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Flag that is set if the process was interrupted after this was made.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles interrupts from now on: the first one does not end the process.
    pub(crate) fn expect() -> Interrupt {
        let seen = Arc::new(AtomicBool::new(false));
        // One action for the first interrupt and for the next: with one each, an interrupt between
        // the two registrations would be lost.
        if let Ok(mut signals) = Signals::new([SIGINT]) {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || {
                for signal in &mut signals {
                    if seen.swap(true, Ordering::Relaxed) {
                        let _ends = emulate_default_handler(signal);
                    }
                }
            });
        }
        Interrupt(seen)
    }

    /// Whether there was an interrupt.
    pub(crate) fn is_seen(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps for `time`, or until an interrupt.
    pub(crate) fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.is_seen() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK_PERIOD));
        }
    }

    /// A reader that ends at an interrupt, also while it waits for a pipe.
    pub(crate) fn ends<R: Read + AsFd>(&self, inner: R) -> Ending<R> {
        Ending { interrupt: self.clone(), inner }
    }
}

/// The reader that [`Interrupt::ends`] returns.
#[derive(Debug)]
pub(crate) struct Ending<R> {
    interrupt: Interrupt,
    inner: R,
}

impl<R: Read + AsFd> Read for Ending<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let period = Timespec { tv_sec: 0, tv_nsec: LOOK_PERIOD.subsec_nanos().into() };
        while !self.interrupt.is_seen() {
            let mut ready = [PollFd::new(&self.inner, PollFlags::IN)];
            match poll(&mut ready, Some(&period)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // A source that can't be polled is read without waiting.
                Ok(_) | Err(_) => return self.inner.read(buffer),
            }
        }
        Ok(0)
    }
}

/// Longest delay until an interrupt that comes just before a wait is seen.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
