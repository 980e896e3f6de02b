//! A file descriptor that wakes a thread in poll(2).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

/// An eventfd(2): readable from the first ring until it is silenced.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// # Errors
    ///
    /// Fails if the process has no file descriptor left.
    pub(crate) fn new() -> Result<Bell, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        fd.map(Bell).map_err(|errno| Error::setup("making an eventfd")(errno.into()))
    }

    pub(crate) fn ring(&self) {
        // A full counter wakes the thread as well.
        let _full = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn silence(&self) {
        let _empty = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
