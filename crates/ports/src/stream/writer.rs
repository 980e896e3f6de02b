//! Writes to a stream whose reader may pause: bytes wait in memory, up to a limit.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::Opened;

/// A destination of bytes: a file, written at once, or a stream, written as fast as it is read.
#[derive(Debug)]
pub(crate) enum Outlet {
    File(File),
    Stream(Stream),
}

impl Outlet {
    /// Opens it and truncates a file.
    pub(crate) fn create(path: &Path) -> io::Result<Outlet> {
        match super::create(path)? {
            Opened::File(file) => Ok(Outlet::File(file)),
            Opened::Stream(file) => Stream::start(file).map(Outlet::Stream),
        }
    }

    /// Whether a peer process reads the data as it is written.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Outlet::Stream(_))
    }

    /// Number of bytes that may be added before too many wait to be written.
    ///
    /// # Errors
    ///
    /// Fails with the error that ended writing, if there was one.
    pub(crate) fn room(&self) -> io::Result<usize> {
        match self {
            Outlet::File(_) => Ok(usize::MAX),
            Outlet::Stream(stream) => {
                stream.shared.waiting().map(|it| FULL_BYTES.saturating_sub(it.bytes.len()))
            }
        }
    }
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Outlet::File(file) => file.write(bytes),
            Outlet::Stream(stream) => stream.shared.add(bytes).map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream and its writer thread. Dropping it waits for the peer, for a short time.
#[derive(Debug)]
pub(crate) struct Stream {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Stream {
    fn start(file: File) -> io::Result<Stream> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { waiting: Mutex::default(), bell });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("stream-out".to_owned());
        let thread = thread.spawn(move || {
            if let Err(error) = theirs.write_to(&file) {
                theirs.waiting.lock().ended = Some(error);
            }
        })?;
        Ok(Stream { shared, thread: Some(thread) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.waiting.lock().closed = Some(Instant::now());
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _panicked = thread.join();
        }
    }
}

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Eventfd, signalled when there is data to write or the input ended.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// When the input ended.
    closed: Option<Instant>,
    /// The error that ended writing, if any.
    ended: Option<Errno>,
}

impl Shared {
    fn ring(&self) {
        // The write fails only if the counter is full, which wakes the thread as well.
        let _rung = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn waiting(&self) -> io::Result<MutexGuard<'_, Waiting>> {
        let waiting = self.waiting.lock();
        match waiting.ended {
            Some(errno) => Err(errno.into()),
            None => Ok(waiting),
        }
    }

    /// Adds all of these bytes or none.
    fn add(&self, bytes: &[u8]) -> io::Result<()> {
        let mut waiting = self.waiting()?;
        if waiting.bytes.len() + bytes.len() > BYTES_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let was_empty = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(bytes);
        drop(waiting);
        if was_empty {
            self.ring();
        }
        Ok(())
    }

    /// Writes added bytes until the input ends.
    fn write_to(&self, file: &File) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        loop {
            let closed = {
                let mut waiting = self.waiting.lock();
                std::mem::swap(&mut waiting.bytes, &mut bytes);
                waiting.closed
            };
            if bytes.is_empty() {
                if closed.is_some() {
                    return Ok(());
                }
                self.wait(&[PollFd::new(&self.bell, PollFlags::IN)], None)?;
                continue;
            }
            if !self.write_all(file, &bytes)? {
                return Ok(());
            }
            bytes.clear();
        }
    }

    /// Writes all bytes; returns `false` if the time for closing ran out.
    fn write_all(&self, file: &File, mut bytes: &[u8]) -> Result<bool, Errno> {
        while !bytes.is_empty() {
            match rustix::io::write(file, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let closed = self.waiting.lock().closed;
                    let left = closed.map(|at| CLOSE_TIME.saturating_sub(at.elapsed()));
                    if left == Some(Duration::ZERO) {
                        return Ok(false);
                    }
                    let out = PollFd::new(file, PollFlags::OUT);
                    match left {
                        // After the input ended, the eventfd is not of interest.
                        Some(_) => self.wait(&[out], left)?,
                        None => self.wait(&[out, PollFd::new(&self.bell, PollFlags::IN)], None)?,
                    }
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(true)
    }

    fn wait(&self, what: &[PollFd<'_>], limit: Option<Duration>) -> Result<(), Errno> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut what.to_vec(), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut count = [0; 8];
        // The read fails if the eventfd was not signalled.
        let _count = rustix::io::read(&self.bell, &mut count);
        Ok(())
    }
}

/// Waiting bytes above which new frames are left out.
const FULL_BYTES: usize = 1 << 20;
/// Most waiting bytes: more than [`FULL_BYTES`] and the frames in progress when that was reached.
const BYTES_MAX: usize = 4 << 20;
const _: () = assert!(FULL_BYTES < BYTES_MAX, "what is on its way finds room");
/// Time for the peer to read the rest at the end.
const CLOSE_TIME: Duration = Duration::from_millis(200);
