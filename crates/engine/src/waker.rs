//! Waking a worker that sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use towpath_ring::SleepFlag;

/// One worker's bell. Ringing it costs a load while the worker is awake.
#[derive(Debug)]
pub struct Waker {
    sleeps: SleepFlag,
    bell: OwnedFd,
}

impl Waker {
    /// The bell of a worker that is awake.
    pub fn new() -> io::Result<Waker> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { sleeps: SleepFlag::default(), bell })
    }

    /// Ends the worker's sleep. Call it when what the worker should see is visible.
    #[inline]
    pub fn wake(&self) {
        if self.sleeps.is_set() {
            // A full counter is a rung bell too.
            let _rung = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// The worker announces that it will sleep; it must look for work once more afterwards.
    pub(crate) fn falls_asleep(&self) {
        self.sleeps.set();
    }

    /// The worker is awake.
    pub(crate) fn awakes(&self) {
        self.sleeps.clear();
        let mut count = [0; 8];
        // Nothing to read when it was not rung.
        let _count = rustix::io::read(&self.bell, &mut count);
    }

    /// Readable when it was rung.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
