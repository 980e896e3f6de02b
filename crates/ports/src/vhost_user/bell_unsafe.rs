//! Eventfds shared with a front end: signalled and emptied without ever blocking.
//!
//! `O_NONBLOCK` belongs to the open file, which the front end shares: it can clear the flag, and
//! fill or empty the counter, between any two system calls of ours. So neither `write(2)` nor
//! `read(2)` may be used: either could block a worker, and all its other ports, for ever.
//!
//! - **Signalling** is left to the kernel: an asynchronous I/O request that names an eventfd
//!   (`IOCB_FLAG_RESFD`, `fs/aio.c`) has it signalled on completion by `eventfd_signal`, which
//!   never blocks. The request is a read of no bytes from `/dev/null`, which completes before
//!   `io_submit(2)` returns.
//! - **Emptying** is a `preadv2(2)` with `RWF_NOWAIT`, which ignores the file's flags.

#![expect(unsafe_code, reason = "system calls that no library wraps")]

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open, readlink};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// An eventfd of the front end that the back end waits for.
#[derive(Debug)]
pub(super) struct Kick(OwnedFd);

impl Kick {
    /// # Errors
    ///
    /// Fails if the file is not an eventfd, as it could be readable for ever.
    pub(super) fn new(file: OwnedFd) -> io::Result<Kick> {
        check_event_fd(&file)?;
        Ok(Kick(file))
    }

    /// Resets the counter.
    pub(super) fn empty(&self) {
        let mut count = [0; 8];
        // The offset -1 means the file's position, as eventfds cannot seek.
        let offset = u64::MAX;
        let _empty =
            preadv2(&self.0, &mut [IoSliceMut::new(&mut count)], offset, ReadWriteFlags::NOWAIT);
    }
}

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An eventfd of the front end that the back end signals.
#[derive(Debug)]
pub(super) struct CallEvent {
    file: OwnedFd,
    signals: Arc<Signals>,
}

impl CallEvent {
    /// # Errors
    ///
    /// Fails if the file is not an eventfd.
    pub(super) fn new(file: OwnedFd, signals: &Arc<Signals>) -> io::Result<CallEvent> {
        check_event_fd(&file)?;
        Ok(CallEvent { file, signals: Arc::clone(signals) })
    }

    /// Signals it. A full counter stays full, which has the same effect.
    #[inline]
    pub(super) fn ring(&self) {
        self.signals.send(self.file.as_fd());
    }
}

/// A port's asynchronous I/O context (`aio_context_t`), by which all its eventfds are signalled.
#[derive(Debug)]
pub(super) struct Signals {
    context: libc::c_ulong,
    nothing: OwnedFd,
}

impl Signals {
    /// # Errors
    ///
    /// Fails if the system has no more room for asynchronous I/O (`fs.aio-max-nr`), or no
    /// `/dev/null`.
    pub(super) fn new() -> io::Result<Signals> {
        let nothing = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's number to `context`.
        let done = unsafe { libc::syscall(libc::SYS_io_setup, RESULTS, &raw mut context) };
        if done == 0 { Ok(Signals { context, nothing }) } else { Err(io::Error::last_os_error()) }
    }

    #[inline]
    fn send(&self, file: BorrowedFd<'_>) {
        if !self.submit(file) {
            // The kernel has no room for another result.
            self.take_results();
            let _is_done = self.submit(file);
        }
    }

    #[inline]
    fn submit(&self, file: BorrowedFd<'_>) -> bool {
        let mut request = Iocb {
            opcode: IOCB_CMD_PREAD,
            file: self.nothing.as_raw_fd() as u32,
            flags: IOCB_FLAG_RESFD,
            event_file: file.as_raw_fd() as u32,
            ..Iocb::default()
        };
        let mut requests = [&raw mut request];
        // SAFETY: one request, which is done when the call returns, and reads into no memory.
        let made =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, requests.as_mut_ptr()) };
        made == 1
    }

    #[cold]
    fn take_results(&self) {
        let mut results = [[0u64; 4]; RESULTS as usize];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: room for as many `struct io_event`, of 32 bytes, as are asked for.
        let _count = unsafe {
            let results = results.as_mut_ptr();
            libc::syscall(libc::SYS_io_getevents, self.context, 0, RESULTS, results, &raw const now)
        };
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: our own context, whose requests are all done.
        let _gone = unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// `struct iocb` of `<linux/aio_abi.h>`, on little-endian machines.
#[derive(Debug, Default)]
#[repr(C)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

const _: () = assert!(size_of::<Iocb>() == 64);

fn check_event_fd(file: &OwnedFd) -> io::Result<()> {
    let link = readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
    if link.as_bytes() == b"anon_inode:[eventfd]" { Ok(()) } else { Err(Errno::INVAL.into()) }
}

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;
/// Fewest results that the kernel has room for, and most that are taken at a time.
const RESULTS: u32 = 16;

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    /// Two descriptors of one open file without `O_NONBLOCK`; a blocking call hangs this test.
    fn shared(count: u32) -> (OwnedFd, OwnedFd) {
        let ours = eventfd(count, EventfdFlags::CLOEXEC).unwrap();
        let theirs = ours.try_clone().unwrap();
        (ours, theirs)
    }

    fn bell(file: OwnedFd) -> CallEvent {
        CallEvent::new(file, &Arc::new(Signals::new().unwrap())).unwrap()
    }

    #[test]
    fn a_bell_counts() {
        let (ours, theirs) = shared(0);
        let bell = bell(ours);
        let rings = u64::from(100 * RESULTS + 1);
        (0..rings).for_each(|_| bell.ring());
        let mut count = [0; 8];
        rustix::io::read(&theirs, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), rings);
    }

    #[test]
    fn a_full_bell_that_would_block_does_not() {
        let (ours, theirs) = shared(0);
        let bell = bell(ours);
        rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        (0..100).for_each(|_| bell.ring());
    }

    #[test]
    fn a_kick_that_somebody_else_took_does_not_block() {
        let (ours, theirs) = shared(1);
        let kick = Kick::new(ours).unwrap();
        rustix::io::read(&theirs, &mut [0; 8]).unwrap();
        kick.empty();
        rustix::io::write(&theirs, &5u64.to_ne_bytes()).unwrap();
        kick.empty();
        let flags = ReadWriteFlags::NOWAIT;
        let mut count = [0; 8];
        let left = preadv2(&theirs, &mut [IoSliceMut::new(&mut count)], u64::MAX, flags);
        assert_eq!(left, Err(Errno::AGAIN), "it was emptied");
    }

    #[test]
    fn other_files_are_refused() {
        let file = || memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        assert!(Kick::new(file()).is_err());
        assert!(CallEvent::new(file(), &Arc::new(Signals::new().unwrap())).is_err());
    }
}
