//! Ways to destinations: next hop, source address and MTU, as the daemon answers.
//!
//! A thread asks, so that no sender waits: at once for a new destination, again and ever less often
//! while the next hop's Ethernet address is unknown, and every second while the destination is in
//! use. Senders keep the [`Entry`] of each destination and look at its version.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use towpath_xsk_client::Connection;
use towpath_xsk_client::protocol::Route;

/// What is known about the way to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The daemon, or the next hop, was asked and has not answered.
    Unresolved,
    /// Packets can be sent.
    Open(Route),
    /// No packet can be sent, for the reason of this error number.
    Closed(i32),
}

/// A destination.
#[derive(Debug)]
pub(crate) struct Entry {
    destination: IpAddr,
    /// Changes with the way.
    version: AtomicU32,
    /// Used by a sender since the thread last looked.
    is_used: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    way: Way,
    /// Time of the next request to the daemon.
    due: Instant,
    /// Interval of requests while the next hop has not answered.
    retry: Duration,
    /// Time of the last answer with a way, or of the start of the current attempt.
    unresolved_since: Instant,
    /// Number of checks without use.
    unused: u32,
    /// Datagrams that wait for the answer.
    waiting: Vec<Waiting>,
}

/// A copy of a run of datagrams that waits for an answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) source: Option<IpAddr>,
    pub(crate) ecn: u8,
    pub(crate) segment_size: Option<usize>,
    pub(crate) payload: Vec<u8>,
}

impl Entry {
    fn new(destination: IpAddr) -> Entry {
        let now = Instant::now();
        let state = State {
            way: Way::Unresolved,
            due: now,
            retry: RETRY_PERIOD_MIN,
            unresolved_since: now,
            unused: 0,
            waiting: Vec::new(),
        };
        Entry {
            destination,
            version: AtomicU32::new(0),
            is_used: AtomicBool::new(true),
            state: Mutex::new(state),
        }
    }

    /// The destination.
    pub(crate) fn destination(&self) -> IpAddr {
        self.destination
    }

    /// Notes a use; returns the version of the way.
    #[inline]
    pub(crate) fn touch(&self) -> u32 {
        // A store would take the line away from other senders.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        self.version.load(Ordering::Acquire)
    }

    /// The way, and its version.
    pub(crate) fn way(&self) -> (Way, u32) {
        let state = self.state.lock();
        (state.way, self.version.load(Ordering::Acquire))
    }

    /// Keeps a datagram until the way is known. If too many wait, the oldest one is dropped.
    ///
    /// # Errors
    ///
    /// Fails with the way if that is known by now; the datagram is not kept.
    pub(crate) fn wait(&self, datagram: Waiting) -> Result<(), Way> {
        let mut state = self.state.lock();
        if state.way != Way::Unresolved {
            return Err(state.way);
        }
        // As the kernel, which forgets the oldest (`__neigh_event_send`).
        if state.waiting.len() >= WAITING_MAX {
            state.waiting.remove(0);
        }
        state.waiting.push(datagram);
        Ok(())
    }

    /// Takes over an answer; returns datagrams that can be sent now.
    fn answer(&self, answer: io::Result<Route>) -> Vec<Waiting> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let again = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let retry = state.retry;
        state.retry = RETRY_PERIOD_MIN;
        let (way, pause) = match answer {
            Ok(route) => {
                state.unresolved_since = now;
                (Way::Open(route), CHECK_PERIOD)
            }
            // A way that was open stays so for a while: the neighbour is asked again.
            Err(error) if again(&error) && now - state.unresolved_since < RESOLUTION_TIME => {
                state.retry = (2 * retry).min(RETRY_PERIOD_MAX);
                (state.way, retry)
            }
            Err(error) => {
                let errno = if again(&error) { EHOSTUNREACH } else { number_of(&error) };
                (Way::Closed(errno), CHECK_PERIOD)
            }
        };
        // A new attempt has its own time.
        if matches!(way, Way::Closed(_)) {
            state.unresolved_since = now;
        }
        state.due = now + pause;
        if state.way != way {
            state.way = way;
            self.version.fetch_add(1, Ordering::Release);
        }
        match way {
            Way::Unresolved => Vec::new(),
            Way::Open(_) => std::mem::take(&mut state.waiting),
            Way::Closed(_) => {
                state.waiting.clear();
                Vec::new()
            }
        }
    }

    /// Whether the daemon is to be asked now; `None` if nobody has used the entry for long. Then
    /// the caller forgets it, and a sender that still has it asks for a new one.
    fn is_due(&self, now: Instant) -> Option<bool> {
        let mut state = self.state.lock();
        if state.due > now {
            return Some(false);
        }
        let is_used = self.is_used.swap(false, Ordering::Relaxed) || !state.waiting.is_empty();
        state.unused = if is_used { 0 } else { state.unused + 1 };
        if state.unused >= UNUSED_MAX {
            drop(state);
            self.forget();
            return None;
        }
        if !is_used {
            state.due = now + CHECK_PERIOD;
        }
        Some(is_used)
    }

    /// Has senders that still have the entry ask for a new one.
    fn forget(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// The destinations.
#[derive(Debug)]
pub(crate) struct Routes {
    shared: Arc<Shared>,
}

/// The thread that asks, before it runs.
pub(crate) struct Asking {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
}

impl Asking {
    /// Starts the thread; it ends with the destinations. `send` gets datagrams whose destination
    /// was found.
    pub(crate) fn run(
        self,
        send: impl Fn(&Entry, Vec<Waiting>) + Send + 'static,
    ) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("towpath-udp".to_owned());
        thread.spawn(move || run(&self.shared, &self.connection, &send)).map(drop)
    }
}

#[derive(Debug, Default)]
struct Shared {
    entries: RwLock<FxHashMap<IpAddr, Arc<Entry>>>,
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct News {
    is_stopped: bool,
    has_new_entry: bool,
}

impl Routes {
    /// No destinations, and the thread that asks for them, which does not run yet.
    pub(crate) fn new(connection: Arc<Connection>) -> (Routes, Asking) {
        let shared = Arc::new(Shared::default());
        let asking = Asking { shared: Arc::clone(&shared), connection };
        (Routes { shared }, asking)
    }

    /// The entry of a destination, which is new if it was not in use.
    pub(crate) fn entry(&self, destination: IpAddr) -> Arc<Entry> {
        if let Some(entry) = self.shared.entries.read().get(&destination) {
            entry.touch();
            return Arc::clone(entry);
        }
        let mut entries = self.shared.entries.write();
        if entries.len() >= DESTINATIONS_MAX {
            make_room(&mut entries);
        }
        let entry = entries.entry(destination).or_insert_with(|| Arc::new(Entry::new(destination)));
        let entry = Arc::clone(entry);
        drop(entries);
        self.shared.news.lock().has_new_entry = true;
        self.shared.changed.notify_one();
        entry
    }

    /// Number of destinations in use.
    pub(crate) fn len(&self) -> usize {
        self.shared.entries.read().len()
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        // The thread may be in a request, or hold the last reference to the stack: nobody waits.
        self.shared.news.lock().is_stopped = true;
        self.shared.changed.notify_one();
    }
}

/// Forgets some destinations, wherever they are in the table: forged addresses must not fill the
/// memory. Destinations in use are asked for again.
#[cold]
fn make_room(entries: &mut FxHashMap<IpAddr, Arc<Entry>>) {
    let mut number = 0usize;
    entries.retain(|_, entry| {
        number += 1;
        let stays = !number.is_multiple_of(8);
        if !stays {
            entry.forget();
        }
        stays
    });
}

/// Asks for entries that are due, until it is stopped.
fn run(shared: &Shared, connection: &Connection, send: &impl Fn(&Entry, Vec<Waiting>)) {
    loop {
        let now = Instant::now();
        let entries: Vec<Arc<Entry>> = shared.entries.read().values().cloned().collect();
        for entry in &entries {
            match entry.is_due(now) {
                None => drop(shared.entries.write().remove(&entry.destination)),
                Some(false) => {}
                Some(true) => {
                    let found = entry.answer(connection.route(entry.destination));
                    if !found.is_empty() {
                        send(entry, found);
                    }
                }
            }
        }
        let next = entries.iter().map(|entry| entry.state.lock().due).min();
        let next = next.unwrap_or(now + CHECK_PERIOD);
        let mut news = shared.news.lock();
        if !news.has_new_entry && !news.is_stopped {
            let _timed_out = shared.changed.wait_until(&mut news, next);
        }
        news.has_new_entry = false;
        if news.is_stopped {
            return;
        }
    }
}

/// The error number of a failed request; `ENETDOWN` if the daemon or the port is gone.
fn number_of(error: &io::Error) -> i32 {
    match Errno::from_io_error(error) {
        None | Some(Errno::PIPE | Errno::CONNRESET | Errno::NXIO | Errno::NODEV) => ENETDOWN,
        Some(errno) => errno.raw_os_error(),
    }
}

/// Interval of requests for a destination in use.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Intervals of requests while the next hop has not answered: each is twice the one before.
const RETRY_PERIOD_MIN: Duration = Duration::from_millis(3);
const RETRY_PERIOD_MAX: Duration = Duration::from_millis(100);
/// Time after which a next hop counts as silent: the kernel asks three times, a second apart.
const RESOLUTION_TIME: Duration = Duration::from_secs(3);
/// Number of checks without use after which a destination is forgotten.
const UNUSED_MAX: u32 = 60;
/// Maximum number of destinations of a stack.
const DESTINATIONS_MAX: usize = 1 << 16;
/// Maximum number of datagrams that wait for one destination.
const WAITING_MAX: usize = 64;
const EHOSTUNREACH: i32 = Errno::HOSTUNREACH.raw_os_error();
const ENETDOWN: i32 = Errno::NETDOWN.raw_os_error();

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;
    use towpath_xsk_client::protocol::Route;

    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use rustc_hash::FxHashMap;

    use super::{DESTINATIONS_MAX, EHOSTUNREACH, Entry, WAITING_MAX, Waiting, Way, make_room};

    fn datagram(number: u8) -> Waiting {
        Waiting {
            source_port: 1,
            destination_port: 2,
            source: None,
            ecn: 0,
            segment_size: None,
            payload: vec![number],
        }
    }

    fn route() -> Route {
        Route { source_mac: [2; 6], next_hop_mac: [4; 6], mtu: 1500, source: [10, 0, 0, 1].into() }
    }

    fn again() -> io::Error {
        Errno::AGAIN.into()
    }

    #[test]
    fn datagrams_wait_for_the_answer_and_the_newest_are_kept() {
        let entry = Entry::new([10, 0, 0, 2].into());
        for number in 0..=WAITING_MAX as u8 {
            entry.wait(datagram(number)).unwrap();
        }
        assert!(entry.answer(Err(again())).is_empty());
        assert_eq!(entry.way(), (Way::Unresolved, 0));
        let sent = entry.answer(Ok(route()));
        let numbers: Vec<u8> = sent.iter().map(|it| it.payload[0]).collect();
        assert_eq!(numbers, (1..=WAITING_MAX as u8).collect::<Vec<_>>());
        assert_eq!(entry.way(), (Way::Open(route()), 1));
        assert_eq!(entry.wait(datagram(0)), Err(Way::Open(route())));
    }

    #[test]
    fn an_open_way_outlives_a_neighbour_that_is_asked_again() {
        let entry = Entry::new([10, 0, 0, 2].into());
        entry.answer(Ok(route()));
        entry.answer(Err(again()));
        assert_eq!(entry.way(), (Way::Open(route()), 1));
        let moved = Route { next_hop_mac: [6; 6], ..route() };
        entry.answer(Ok(moved));
        assert_eq!(entry.way(), (Way::Open(moved), 2));
    }

    #[test]
    fn headers_of_a_destination_that_was_forgotten_are_old() {
        let entry = Entry::new([10, 0, 0, 2].into());
        entry.answer(Ok(route()));
        let version = entry.touch();
        let start = std::time::Instant::now();
        let after = |seconds| start + std::time::Duration::from_secs(2 + seconds);
        assert_eq!(entry.is_due(after(0)), Some(true), "it was used");
        entry.answer(Ok(route()));
        let unused = 2 * u64::from(super::UNUSED_MAX);
        for seconds in (2..unused).step_by(2) {
            assert_eq!(entry.is_due(after(seconds)), Some(false), "nobody uses it");
        }
        assert_eq!(entry.version.load(Ordering::Relaxed), version);
        assert_eq!(entry.is_due(after(unused)), None);
        assert_ne!(entry.touch(), version);
    }

    #[test]
    fn a_destination_that_is_used_again_is_asked_for_again() {
        let entry = Entry::new([10, 0, 0, 2].into());
        let start = std::time::Instant::now();
        let after = |seconds| start + std::time::Duration::from_secs(seconds);
        assert_eq!(entry.is_due(after(0)), Some(true), "it is new");
        entry.answer(Ok(route()));
        assert_eq!(entry.is_due(after(5)), Some(false));
        entry.touch();
        assert_eq!(entry.is_due(after(10)), Some(true));
    }

    #[test]
    fn there_are_never_too_many_destinations() {
        let mut entries = FxHashMap::default();
        for number in 0..DESTINATIONS_MAX as u32 {
            let destination = std::net::Ipv4Addr::from_bits(number).into();
            entries.insert(destination, Arc::new(Entry::new(destination)));
        }
        let all: Vec<Arc<Entry>> = entries.values().cloned().collect();
        make_room(&mut entries);
        assert_eq!(entries.len(), DESTINATIONS_MAX / 8 * 7);
        let forgotten = all.iter().filter(|entry| entry.touch() != 0).count();
        assert_eq!(forgotten, DESTINATIONS_MAX / 8);
    }

    #[test]
    fn a_silent_neighbour_and_a_missing_route_close_the_way() {
        let entry = Entry::new([10, 0, 0, 2].into());
        entry.wait(datagram(1)).unwrap();
        let long_ago = std::time::Instant::now().checked_sub(super::RESOLUTION_TIME).unwrap();
        entry.state.lock().unresolved_since = long_ago;
        assert!(entry.answer(Err(again())).is_empty());
        assert_eq!(entry.way().0, Way::Closed(EHOSTUNREACH));
        entry.answer(Err(Errno::NETUNREACH.into()));
        assert_eq!(entry.way().0, Way::Closed(Errno::NETUNREACH.raw_os_error()));
        assert!(entry.answer(Ok(route())).is_empty(), "what waited is forgotten");
    }
}
