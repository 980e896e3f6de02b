//! A thread that waits for changes, reads the changed tables and publishes a new host.
//!
//! A notification only marks the table to read again: there is no incremental state that could
//! become wrong, and after lost notifications (`ENOBUFS`) all tables are read. Changes that come
//! together are read together, and reading never takes more than a tenth of the thread's time.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;
use towpath_xdp::host::{Host, Interface, Live};

use crate::Error;
use crate::bell::Bell;
use crate::netlink::protocols::NETLINK_ROUTE;
use crate::netlink::{Messages, Socket};
use crate::reader::{GROUPS, Reader, Stale};

/// Keeps a [`Live`] host equal to the running one, until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State of the tables and their reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Number of times that tables were read.
    pub reads: u64,
    /// Number of times that a different host was published.
    pub changes: u64,
    /// Number of times that notifications were lost, so that all tables were read again.
    pub overruns: u64,
    /// Number of entries that could not be parsed in the last read.
    pub unreadable: usize,
    /// Duration of the last read, including the construction of the tables.
    pub last_duration: Duration,
    /// Error of the last attempt; it is repeated every second.
    pub error: Option<String>,
}

/// State shared by the thread and its owner.
#[derive(Debug)]
struct Shared {
    /// Wakes the thread.
    bell: Bell,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ports: Vec<Interface>,
    ports_changed: bool,
    stopped: bool,
    status: Status,
}

impl Watcher {
    /// Publishes the tables of the calling thread's network namespace in `live`, and keeps them
    /// current until the watcher is dropped. No privilege is needed.
    ///
    /// # Errors
    ///
    /// Fails if a socket or thread cannot be made, or if the kernel refuses to list a table.
    pub fn start(live: &Arc<Live>) -> Result<Watcher, Error> {
        // It listens before it reads, so that no change is missed in between.
        let events =
            Socket::open(NETLINK_ROUTE, GROUPS).map_err(Error::setup("listening to rtnetlink"))?;
        events.set_backlog(BACKLOG_BYTES);
        let mut reader = Reader::open().map_err(Error::setup("opening an rtnetlink socket"))?;
        reader.read(Stale::ALL)?;
        let bell = Bell::new()?;
        live.replace(reader.host());
        let shared = Arc::new(Shared { bell, state: Mutex::default() });
        let mut work = Work {
            events,
            reader,
            live: Arc::clone(live),
            shared: Arc::clone(&shared),
            stale: Stale::default(),
        };
        let thread = std::thread::Builder::new().name("towpath-host".to_owned());
        let thread = thread.spawn(move || work.run()).map_err(Error::setup("starting a thread"))?;
        Ok(Watcher { shared, thread: Some(thread) })
    }

    /// Adds interfaces that the host does not have: ports of this process
    /// (`towpath_engine::Snapshot::interfaces`). They replace those of the last call, and are
    /// published a moment later.
    pub fn set_ports(&self, ports: Vec<Interface>) {
        let mut state = self.shared.state.lock();
        state.ports_changed |= state.ports != ports;
        state.ports = ports;
        drop(state);
        self.shared.bell.ring();
    }

    /// State of the tables.
    pub fn status(&self) -> Status {
        self.shared.state.lock().status.clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// State of the thread.
struct Work {
    events: Socket,
    reader: Reader,
    live: Arc<Live>,
    shared: Arc<Shared>,
    stale: Stale,
}

impl Work {
    fn run(&mut self) {
        loop {
            let failed = self.shared.state.lock().status.error.is_some();
            let timeout = (failed || self.stale.is_any()).then_some(RETRY);
            if self.wait(timeout).is_break() {
                return;
            }
            // Related changes arrive together.
            if self.pause(GATHER).is_break() {
                return;
            }
            let start = Instant::now();
            self.update();
            if self.pause(start.elapsed() * 9).is_break() {
                return;
            }
        }
    }

    /// Collects notifications for this time.
    fn pause(&mut self, time: Duration) -> std::ops::ControlFlow<()> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return std::ops::ControlFlow::Continue(());
            }
            self.wait(Some(left))?;
        }
    }

    /// Waits for notifications or the owner, and records them.
    fn wait(&mut self, timeout: Option<Duration>) -> std::ops::ControlFlow<()> {
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let mut fds = [
            PollFd::from_borrowed_fd(self.events.fd(), PollFlags::IN),
            PollFd::new(&self.shared.bell, PollFlags::IN),
        ];
        // An interrupted wait only ends early.
        let _interrupted = poll(&mut fds, timeout.as_ref());
        self.shared.bell.silence();
        self.note();
        match self.shared.state.lock().stopped {
            true => std::ops::ControlFlow::Break(()),
            false => std::ops::ControlFlow::Continue(()),
        }
    }

    /// Marks tables by all pending notifications.
    fn note(&mut self) {
        loop {
            match self.events.receive(RecvFlags::DONTWAIT) {
                Ok(bytes) => Messages(bytes).for_each(|message| self.stale.mark(&message)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    self.stale = Stale::ALL;
                    let mut state = self.shared.state.lock();
                    state.status.overruns += 1;
                    if error.raw_os_error() != Some(rustix::io::Errno::NOBUFS.raw_os_error()) {
                        state.status.error = Some(error.to_string());
                        drop(state);
                        // The error may repeat at once.
                        return std::thread::sleep(RETRY);
                    }
                }
            }
        }
    }

    /// Reads the stale tables and publishes the result.
    fn update(&mut self) {
        let ports_changed = std::mem::take(&mut self.shared.state.lock().ports_changed);
        if !self.stale.is_any() && !ports_changed {
            return;
        }
        let start = Instant::now();
        let result = self.reader.read(self.stale);
        if result.is_ok() {
            self.stale = Stale::default();
        }
        let changed = self.replace();
        let mut state = self.shared.state.lock();
        let status = &mut state.status;
        status.reads += 1;
        status.changes += u64::from(changed);
        status.unreadable = self.reader.unreadable();
        status.last_duration = start.elapsed();
        status.error = result.err().map(|error| text(&error));
    }

    /// Publishes the tables, unless the same ones are published already.
    fn replace(&self) -> bool {
        let mut host: Host = self.reader.host();
        host.merge(self.shared.state.lock().ports.iter().cloned());
        let is_new = *self.live.current().host() != host;
        if is_new {
            self.live.replace(host);
        }
        is_new
    }
}

/// Text of an error with its causes.
fn text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Size of the receive buffer for notifications while tables are read, in bytes.
const BACKLOG_BYTES: usize = 4 << 20;
/// Changes within this time are read together.
const GATHER: Duration = Duration::from_millis(5);
const RETRY: Duration = Duration::from_secs(1);
