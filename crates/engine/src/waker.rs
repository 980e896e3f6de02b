//! Waking a worker that sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use towpath_ring::SleepFlag;

/// Wakes one worker. While the worker is awake, a call costs a fence and a load.
#[derive(Debug)]
pub struct Waker {
    sleeps: SleepFlag,
    bell: OwnedFd,
}

impl Waker {
    /// A waker for a worker that is awake.
    ///
    /// # Errors
    ///
    /// Fails if no eventfd can be made.
    pub fn new() -> io::Result<Waker> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { sleeps: SleepFlag::default(), bell })
    }

    /// Ends the worker's sleep. Call it after publishing the work that the worker is to see.
    #[inline]
    pub fn wake(&self) {
        if self.sleeps.is_set() {
            // The write fails only if the counter is full, which wakes the worker as well.
            let _rung = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Announces the worker's sleep; the worker must check for work once more afterwards.
    pub(crate) fn falls_asleep(&self) {
        self.sleeps.set();
    }

    /// Notes that the worker is awake.
    pub(crate) fn awakes(&self) {
        self.sleeps.clear();
        let mut count = [0; 8];
        // The read fails if the eventfd was not signalled.
        let _count = rustix::io::read(&self.bell, &mut count);
    }

    /// The eventfd, readable after [`Waker::wake`].
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
