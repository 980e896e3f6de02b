//! A thread that waits for changes, reads what changed and puts a new host in place.
//!
//! A notification only says which table to read again: there is no state that could go astray, and
//! lost notifications (`ENOBUFS`) are cured by reading everything. Changes that come together are
//! read together, and reading never takes more than a tenth of the thread's time.

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

/// Keeps a [`Live`] host like the running one, until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// How the tables are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Times that something was read.
    pub reads: u64,
    /// Times that something different was put in place.
    pub changes: u64,
    /// Times that notifications were lost, so that all was read again.
    pub overruns: u64,
    /// Entries that were not understood in the last reading.
    pub unreadable: usize,
    /// How long the last reading took, with making the tables.
    pub last_duration: Duration,
    /// Why the last attempt failed; it is repeated every second.
    pub error: Option<String>,
}

/// What the thread and its owner have in common.
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
    /// Puts everything there is in the network namespace of the calling thread in `live`, and
    /// keeps it so until the watcher is dropped. No privilege is needed.
    ///
    /// # Errors
    ///
    /// A socket or a thread cannot be had, or the kernel refuses to list a table.
    pub fn start(live: &Arc<Live>) -> Result<Watcher, Error> {
        // First listen, then read: nothing is missed in between.
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

    /// Adds interfaces that the host does not know: ports of this process
    /// (`towpath_engine::Snapshot::interfaces`). They replace those of the last call, and are in
    /// place a moment later.
    pub fn set_ports(&self, ports: Vec<Interface>) {
        let mut state = self.shared.state.lock();
        state.ports_changed |= state.ports != ports;
        state.ports = ports;
        drop(state);
        self.shared.bell.ring();
    }

    /// How it goes.
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

/// What the thread owns.
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
            // What belongs together comes together.
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

    /// Collects notifications for so long.
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

    /// Waits for something, and notes what it says.
    fn wait(&mut self, timeout: Option<Duration>) -> std::ops::ControlFlow<()> {
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let mut fds = [
            PollFd::from_borrowed_fd(self.events.fd(), PollFlags::IN),
            PollFd::new(&self.shared.bell, PollFlags::IN),
        ];
        // An interrupted wait is a short one.
        let _interrupted = poll(&mut fds, timeout.as_ref());
        self.shared.bell.silence();
        self.note();
        match self.shared.state.lock().stopped {
            true => std::ops::ControlFlow::Break(()),
            false => std::ops::ControlFlow::Continue(()),
        }
    }

    /// Marks what is stale by all notifications there are.
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
                        // It may well say so again at once.
                        return std::thread::sleep(RETRY);
                    }
                }
            }
        }
    }

    /// Reads what is stale and puts the result in place.
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

    /// Puts what was read in place, unless it is there already.
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

/// An error with its causes.
fn text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Room for notifications while tables are read.
const BACKLOG_BYTES: usize = 4 << 20;
/// Changes within this time are read together.
const GATHER: Duration = Duration::from_millis(5);
const RETRY: Duration = Duration::from_secs(1);
