//! Waking a worker that sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

/// One worker's bell. Ringing it costs a load while the worker is awake.
#[derive(Debug)]
pub struct Waker {
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl Waker {
    /// A bell that nobody waits for yet.
    pub fn new() -> io::Result<Waker> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { asleep: AtomicBool::new(false), bell })
    }

    /// Ends the worker's sleep. Call it after what it should see is visible.
    #[inline]
    pub fn wake(&self) {
        // Pairs with the fence in `falls_asleep`: either we see that it sleeps, or it sees our
        // work.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            // A full counter is a rung bell too.
            let _rung = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// The worker announces that it will sleep; it must look for work once more afterwards.
    pub(crate) fn falls_asleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The worker is awake.
    pub(crate) fn awakes(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        let mut count = [0; 8];
        // Nothing to read when it was not rung.
        let _count = rustix::io::read(&self.bell, &mut count);
    }

    /// Readable when it was rung.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
