//! Reads a capture from a stream whose writer may pause: a thread waits for packets and passes them
//! on, up to a limit; further packets wait at the writer.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use towpath_capture::{Error, Reader};
use towpath_engine::Waker;

/// A packet that was read.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) data: Vec<u8>,
    pub(crate) timestamp_ns: u64,
    pub(crate) link_type: u16,
}

/// A capture read as it arrives. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct Feed {
    /// `None` only while this is dropped.
    packets: Option<Receiver<Arrived>>,
    /// The next packet, if it was fetched already.
    next: Option<Arrived>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    waker: Mutex<Option<Arc<Waker>>>,
    /// The error that ended it, if any.
    error: Mutex<Option<Error>>,
    stop: OwnedFd,
}

impl Feed {
    /// Starts reading.
    pub(crate) fn start(file: File) -> io::Result<Feed> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared { waker: Mutex::default(), error: Mutex::default(), stop };
        let shared = Arc::new(shared);
        let (sender, packets) = sync_channel(PACKETS_MAX);
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("stream-in".to_owned());
        let thread = thread.spawn(move || {
            let input = Input { file, shared: Arc::clone(&theirs) };
            if let Err(error) = theirs.read(input, &sender) {
                *theirs.error.lock() = Some(error);
            }
            // Dropping the sender announces the end.
            drop(sender);
            theirs.wake();
        })?;
        Ok(Feed { packets: Some(packets), next: None, shared, thread: Some(thread) })
    }

    /// Sets the waker for new data.
    pub(crate) fn set_waker(&self, waker: &Arc<Waker>) {
        *self.shared.waker.lock() = Some(Arc::clone(waker));
    }

    /// Whether a packet or the end is available.
    pub(crate) fn is_ready(&mut self) -> bool {
        if self.next.is_none() {
            self.next = match self.receive() {
                Ok(packet) => Some(packet),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            };
        }
        true
    }

    /// The next packet; `None` if it has not arrived yet.
    ///
    /// # Errors
    ///
    /// `Err(None)` at the end, `Err(Some(_))` if the stream is not a capture or is truncated.
    pub(crate) fn next(&mut self) -> Result<Option<Arrived>, Option<Error>> {
        if let Some(packet) = self.next.take() {
            return Ok(Some(packet));
        }
        match self.receive() {
            Ok(packet) => Ok(Some(packet)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(self.shared.error.lock().take()),
        }
    }

    fn receive(&self) -> Result<Arrived, TryRecvError> {
        self.packets.as_ref().map_or(Err(TryRecvError::Disconnected), Receiver::try_recv)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        drop(self.packets.take());
        let _rung = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _panicked = thread.join();
        }
    }
}

impl Shared {
    fn read(&self, input: Input, packets: &SyncSender<Arrived>) -> Result<(), Error> {
        let mut reader = Reader::new(BufReader::with_capacity(BUFFER_BYTES, input))?;
        while let Some(packet) = reader.next_packet()? {
            let (timestamp_ns, link_type) = (packet.timestamp_ns, packet.link_type);
            let data = packet.data.to_vec();
            if packets.send(Arrived { data, timestamp_ns, link_type }).is_err() {
                // The receiver is gone.
                break;
            }
            self.wake();
        }
        Ok(())
    }

    fn wake(&self) {
        let waker = self.waker.lock();
        waker.iter().for_each(|waker| waker.wake());
    }
}

/// A reader that waits for the peer, until it is cancelled. A FIFO without a writer is not at its
/// end.
struct Input {
    file: File,
    shared: Arc<Shared>,
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut polls = [
                PollFd::new(&self.file, PollFlags::IN),
                PollFd::new(&self.shared.stop, PollFlags::IN),
            ];
            match poll(&mut polls, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if !polls[1].revents().is_empty() {
                return Ok(0);
            }
            if polls[0].revents().is_empty() {
                continue;
            }
            match rustix::io::read(&self.file, &mut *bytes) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result.map_err(io::Error::from),
            }
        }
    }
}

/// Most packets that wait for a worker.
const PACKETS_MAX: usize = 1024;
const BUFFER_BYTES: usize = 1 << 16;
const _: () = assert!(PACKETS_MAX >= 64, "a burst may wait");
