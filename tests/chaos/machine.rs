//! A virtual machine that behaves: a monitor and a virtio-net driver, which come again whenever
//! their back end went, or they were killed.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use towpath_workload::virtio::{Guest, GuestOptions};

/// One of them.
#[derive(Debug)]
pub(crate) struct Machine {
    path: PathBuf,
    /// With the connection to its back end.
    guest: Option<(Guest, UnixStream)>,
    tried: Instant,
    /// How often one came up: each has other queues.
    count: usize,
}

impl Machine {
    /// At a back end's socket, as soon as that is there.
    pub(crate) fn new(path: &Path) -> Machine {
        Machine { path: path.to_owned(), guest: None, tried: Instant::now(), count: 0 }
    }

    /// It ends without a word.
    pub(crate) fn kill(&mut self) {
        self.guest = None;
    }

    /// Comes again if the back end went.
    pub(crate) fn look(&mut self) {
        let is_gone = |(_, stream): &(Guest, UnixStream)| {
            matches!(recv(stream, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK), Ok((0, _)))
        };
        if self.guest.as_ref().is_some_and(is_gone) {
            self.guest = None;
        }
        if self.guest.is_none() && self.tried.elapsed() > PAUSE {
            self.tried = Instant::now();
            // It may not listen yet, or go in the middle of it.
            self.guest = self.connect().ok();
        }
    }

    fn connect(&mut self) -> std::io::Result<(Guest, UnixStream)> {
        let stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        self.count += 1;
        let packed = self.count.is_multiple_of(2);
        let size = if self.count.is_multiple_of(3) { 64 } else { 256 };
        let options = GuestOptions { packed, size, ..GuestOptions::default() };
        Ok((Guest::over(stream.try_clone()?, options)?, stream))
    }

    /// Sends a frame, if there is room.
    pub(crate) fn send(&mut self, frame: &[u8]) -> bool {
        self.guest.as_mut().is_some_and(|(guest, _)| guest.send(0, &[0; 12], frame))
    }
}

const PAUSE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(5);
