//! Ctrl-C (SIGINT): a command that runs for long ends, and says what it has. A second one ends it
//! at once.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Whether the process was interrupted since this was made.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on an interrupt does not end the process.
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

    /// Whether there was one.
    pub(crate) fn is_seen(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps so long, or until one comes.
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

    /// A reader that ends with an interrupt, also one that waits for a pipe.
    pub(crate) fn ends<R: Read + AsFd>(&self, inner: R) -> Ending<R> {
        Ending { interrupt: self.clone(), inner }
    }
}

/// See [`Interrupt::ends`].
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
                // What can't be waited for is read as it is.
                Ok(_) | Err(_) => return self.inner.read(buffer),
            }
        }
        Ok(0)
    }
}

/// Until an interrupt that comes just before a wait is seen.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
