//! The log: lines go through a bounded queue to a thread, so that a blocked reader of standard
//! error delays no other thread. Lines that cannot be written are counted, reported and lost.

use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::filter::LevelFilter;

use crate::model::settings::Options;

/// Sets up the log of the process. Nothing is written before [`start`].
pub(crate) fn init(options: &Options) {
    let level = match (options.verbose, options.quiet) {
        (0, true) => LevelFilter::WARN,
        (0, false) => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let lines = tracing_subscriber::fmt()
        .with_writer(|| Line)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .with_max_level(level);
    // The log is per process: a second daemon in the process shares it.
    let _is_set = match (options.json, std::env::var_os("JOURNAL_STREAM")) {
        (true, _) => lines.json().flatten_event(true).try_init(),
        (false, Some(_)) => lines.without_time().try_init(),
        (false, None) => lines.try_init(),
    };
    // The default hook writes to standard error directly, which may block forever.
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}

/// Starts the writing thread, which inherits the CPU affinity of the caller.
pub(crate) fn start() {
    let Some(lines) = LOG.receiver.lock().take() else { return };
    let thread = std::thread::Builder::new().name("log".to_owned());
    if thread.spawn(move || lines.iter().for_each(|line| LOG.write(&line))).is_err() {
        LOG.trouble(&"its thread can't be started");
    }
}

/// Waits briefly for the thread to write all queued lines.
pub(crate) fn finish() {
    start();
    let end = Instant::now() + END_WAIT_MAX;
    while LOG.waiting.load(Ordering::Acquire) > 0 && Instant::now() < end {
        std::thread::sleep(END_POLL);
    }
}

/// Number of lines that could not be written since the process started.
pub(crate) fn lost() -> u64 {
    LOG.lost.load(Ordering::Relaxed)
}

/// Why lines cannot be written, while that is the case.
pub(crate) fn trouble() -> Option<String> {
    LOG.trouble.lock().clone()
}

/// The log of the process.
static LOG: LazyLock<Log> = LazyLock::new(Log::new);

#[derive(Debug)]
struct Log {
    queue: SyncSender<Vec<u8>>,
    receiver: Mutex<Option<Receiver<Vec<u8>>>>,
    /// Number of lines in the queue, including the one being written.
    waiting: AtomicU64,
    lost: AtomicU64,
    trouble: Mutex<Option<String>>,
    /// Whether `trouble` is set, for a check without the lock.
    is_troubled: AtomicBool,
}

impl Log {
    fn new() -> Log {
        let (queue, receiver) = sync_channel(LINES_MAX);
        Log {
            queue,
            receiver: Mutex::new(Some(receiver)),
            waiting: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            trouble: Mutex::default(),
            is_troubled: AtomicBool::new(false),
        }
    }

    /// Queues a line; counts it as lost if the queue is full.
    fn add(&self, line: &[u8]) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        match self.queue.try_send(line.to_vec()) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => self.trouble(&"nobody reads standard error"),
            Err(TrySendError::Disconnected(_)) => self.trouble(&"its thread ended"),
        }
        self.left();
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes a line, which may block.
    fn write(&self, line: &[u8]) {
        match write_all(line) {
            Ok(()) if self.is_troubled.swap(false, Ordering::AcqRel) => {
                *self.trouble.lock() = None;
                tracing::warn!("{} lines of the log are lost so far", lost());
            }
            Ok(()) => {}
            Err(error) => {
                self.trouble(&format_args!("standard error can't be written: {error}"));
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.left();
    }

    /// Counts a line as written or lost, so that it no longer waits.
    fn left(&self) {
        let before = self.waiting.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "each line is counted once");
    }

    fn trouble(&self, why: &dyn std::fmt::Display) {
        *self.trouble.lock() = Some(why.to_string());
        self.is_troubled.store(true, Ordering::Release);
    }
}

/// Writes to standard error, which may be non-blocking: other processes share the open file.
fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    while !bytes.is_empty() {
        match stderr.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                let mut it = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
                if poll(&mut it, Some(&second))? == 0 {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The subscriber's writer, which receives each line in one call.
struct Line;

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Capacity of the queue in lines.
const LINES_MAX: usize = 1024;
const END_WAIT_MAX: Duration = Duration::from_millis(250);
const END_POLL: Duration = Duration::from_millis(2);
const _: () = assert!(END_POLL.as_nanos() < END_WAIT_MAX.as_nanos());
