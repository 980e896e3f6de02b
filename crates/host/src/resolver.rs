//! Requests to the host's stack: to resolve neighbours and keep them fresh, and for the MTUs that
//! it has learned.
//!
//! Packets that don't pass the stack tell it nothing about its neighbours. `NTF_USE` has it behave
//! as if it sent a packet to one: it asks for an unknown address by ARP or ND, and probes an old
//! one. The result is in the host's tables, which a [`Watcher`](crate::Watcher) follows. Path MTUs
//! are not in these tables: the stack notes an ICMP message as an exception of its route, and tells
//! only who asks for the route to the destination. A request may wait for the kernel's lock of
//! interfaces, so a thread of its own makes them.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Error;
use crate::netlink::protocols::NETLINK_ROUTE;
use crate::netlink::{Attributes, Socket, attribute};

/// A neighbour or a destination: the interface's ifindex, and the address.
type Place = (u32, IpAddr);

/// Asks the stack of the network namespace in which it was started.
#[derive(Debug)]
pub struct Resolver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The outcome of earlier requests for a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// It has not failed: it may be known now, or soon.
    #[default]
    Pending,
    /// It has not answered. The stack asks again, and again.
    Failed,
    /// The host refuses to ask, for this reason (an error number).
    Refused(i32),
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    queue: VecDeque<Request>,
    neighbours: Answers<Outcome>,
    mtus: Answers<Option<u32>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// Tell that a neighbour is in use. With the outcome of the last request.
    Use(Place, Outcome),
    /// Ask for the MTU of the path to a destination.
    Mtu(Place),
}

/// The last answers to one kind of requests.
#[derive(Debug)]
struct Answers<T>(HashMap<Place, Asked<T>>);

#[derive(Debug)]
struct Asked<T> {
    /// Time of the last request.
    at: Instant,
    /// Whether the request is still to be answered.
    is_pending: bool,
    answer: T,
}

impl<T> Default for Answers<T> {
    fn default() -> Answers<T> {
        Answers(HashMap::new())
    }
}

impl<T: Copy + Default> Answers<T> {
    /// The last answer for a place, and whether it is time to repeat the request.
    fn look_up(&mut self, place: Place, now: Instant) -> (T, bool) {
        if self.0.len() >= PLACES_MAX && !self.0.contains_key(&place) {
            self.0.retain(|_, asked| now - asked.at < FORGET);
            if self.0.len() >= PLACES_MAX {
                return (T::default(), false);
            }
        }
        match self.0.entry(place) {
            Entry::Occupied(known) => {
                let asked = known.into_mut();
                let is_due = !asked.is_pending && now - asked.at >= REPEAT;
                if is_due {
                    (asked.at, asked.is_pending) = (now, true);
                }
                (asked.answer, is_due)
            }
            Entry::Vacant(new) => {
                let asked = Asked { at: now, is_pending: true, answer: T::default() };
                (new.insert(asked).answer, true)
            }
        }
    }

    fn note(&mut self, place: Place, answer: T) {
        if let Some(asked) = self.0.get_mut(&place) {
            (asked.answer, asked.is_pending) = (answer, false);
        }
    }
}

impl Resolver {
    /// Starts the thread, for the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// Fails if a socket or thread cannot be made.
    pub fn start() -> Result<Resolver, Error> {
        let socket = Socket::open(NETLINK_ROUTE, 0);
        let mut socket = socket.map_err(Error::setup("opening an rtnetlink socket"))?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("towpath-resolve".to_owned());
        let thread = thread.spawn(move || {
            while let Some(request) = theirs.next() {
                theirs.answer(&mut socket, request);
            }
        });
        let thread = thread.map_err(Error::setup("starting a thread"))?;
        Ok(Resolver { shared, thread: Some(thread) })
    }

    /// Tells the stack that a neighbour is in use, unless it was told within the last second. Never
    /// waits; returns the outcome of earlier requests. Needs `CAP_NET_ADMIN`.
    pub fn use_neighbour(&self, ifindex: u32, address: IpAddr) -> Outcome {
        let mut state = self.shared.state.lock();
        let place = (ifindex, address);
        let (outcome, is_due) = state.neighbours.look_up(place, Instant::now());
        if is_due {
            state.queue.push_back(Request::Use(place, outcome));
            self.shared.wake.notify_one();
        }
        outcome
    }

    /// The MTU of the path to a destination by an interface, as far as the stack has learned one or
    /// the route has one. Never waits: the answer is at least as old as the last call for the
    /// destination, and `None` at the first.
    pub fn path_mtu(&self, ifindex: u32, destination: IpAddr) -> Option<u32> {
        let mut state = self.shared.state.lock();
        let place = (ifindex, destination);
        let (mtu, is_due) = state.mtus.look_up(place, Instant::now());
        if is_due {
            state.queue.push_back(Request::Mtu(place));
            self.shared.wake.notify_one();
        }
        mtu
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Shared {
    /// The next request; `None` at the end.
    fn next(&self) -> Option<Request> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(request) = state.queue.pop_front() {
                return Some(request);
            }
            self.wake.wait(&mut state);
        }
    }

    fn answer(&self, socket: &mut Socket, request: Request) {
        match request {
            Request::Use(place, before) => {
                let outcome = use_neighbour(socket, place, before);
                self.state.lock().neighbours.note(place, outcome);
            }
            Request::Mtu(place) => {
                // Without a route there is no MTU.
                let mtu = path_mtu(socket, place).unwrap_or(None);
                self.state.lock().mtus.note(place, mtu);
            }
        }
    }
}

/// Has the stack use a neighbour; gives what has come of it so far.
fn use_neighbour(socket: &mut Socket, neighbour: Place, before: Outcome) -> Outcome {
    // Read first, because the request ends the failed state.
    let state = state_of(socket, neighbour).unwrap_or(0);
    let used = socket.command(RTM_NEWNEIGH, NLM_F_CREATE, &message(neighbour, NTF_USE));
    match used.map_err(|error| error.raw_os_error().unwrap_or(0)) {
        Err(errno) => Outcome::Refused(errno),
        Ok(()) if state & NUD_FAILED != 0 => Outcome::Failed,
        // It is asked again after a failure.
        Ok(()) if state & NUD_INCOMPLETE != 0 && before == Outcome::Failed => Outcome::Failed,
        Ok(()) => Outcome::Pending,
    }
}

/// The state of a neighbour's entry (`NUD_*`).
fn state_of(socket: &mut Socket, neighbour: Place) -> io::Result<u16> {
    let answer = socket.ask(RTM_GETNEIGH, &message(neighbour, 0))?;
    let state = answer.content.get(NDM_STATE..).and_then(|bytes| bytes.first_chunk());
    Ok(state.map_or(0, |bytes| u16::from_ne_bytes(*bytes)))
}

/// The MTU in the metrics of the route to a destination; the kernel's `rt_fill_info` puts the
/// learned one there.
fn path_mtu(socket: &mut Socket, (ifindex, destination): Place) -> io::Result<Option<u32>> {
    let (family, bytes) = family(destination);
    let mut message = vec![family, 8 * bytes.len() as u8];
    message.resize(RTMSG_BYTES, 0);
    message.extend(attribute(RTA_DST, &bytes));
    message.extend(attribute(RTA_OIF, &ifindex.to_ne_bytes()));
    let answer = socket.ask(RTM_GETROUTE, &message)?;
    let attributes = Attributes(answer.content.get(RTMSG_BYTES..).unwrap_or_default());
    let mtu = attributes.value(RTA_METRICS).and_then(|metrics| Attributes(metrics).value(RTAX_MTU));
    Ok(mtu.and_then(|bytes| bytes.first_chunk()).map(|bytes| u32::from_ne_bytes(*bytes)))
}

/// The family's number and the address's bytes.
fn family(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    }
}

/// A `struct ndmsg` with the address.
fn message((ifindex, address): Place, flags: u8) -> Vec<u8> {
    let (family, bytes) = family(address);
    let mut message = vec![family, 0, 0, 0];
    message.extend(ifindex.to_ne_bytes());
    message.extend([0, 0, flags, 0]);
    message.extend(attribute(NDA_DST, &bytes));
    message
}

/// Time between two requests for the same neighbour.
const REPEAT: Duration = Duration::from_secs(1);
/// Time after which a neighbour is forgotten when there is no room.
const FORGET: Duration = Duration::from_secs(10);
/// Maximum number of neighbours, and of destinations.
const PLACES_MAX: usize = 16384;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTM_GETROUTE: u16 = 26;
/// Length of `struct rtmsg`.
const RTMSG_BYTES: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const NLM_F_CREATE: u16 = 0x400;
const NDA_DST: u16 = 1;
/// Offset of `ndm_state` in `struct ndmsg`.
const NDM_STATE: usize = 8;
const NTF_USE: u8 = 1;
const NUD_INCOMPLETE: u16 = 1;
const NUD_FAILED: u16 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_kernel() {
        let bytes = message((0x0102, "10.0.0.7".parse().unwrap()), NTF_USE);
        let ifindex = 0x0102_u32.to_ne_bytes();
        assert_eq!(bytes[..4], [2, 0, 0, 0]);
        assert_eq!(bytes[4..8], ifindex);
        assert_eq!(bytes[8..12], [0, 0, 1, 0]);
        assert_eq!(bytes[12..], attribute(1, &[10, 0, 0, 7]));
        assert_eq!(message((1, "fe80::1".parse().unwrap()), 0).len(), 12 + 4 + 16);
    }

    #[test]
    fn a_neighbour_is_used_once_in_a_while() {
        let resolver = Resolver::start().unwrap();
        // No interface has this number, so that the host refuses.
        let neighbour = (u32::MAX >> 1, "10.0.0.7".parse().unwrap());
        assert_eq!(resolver.use_neighbour(neighbour.0, neighbour.1), Outcome::Pending);
        let start = Instant::now();
        loop {
            let outcome = resolver.use_neighbour(neighbour.0, neighbour.1);
            if matches!(outcome, Outcome::Refused(_)) {
                break;
            }
            assert_eq!(outcome, Outcome::Pending);
            assert!(start.elapsed() < Duration::from_secs(20), "no answer");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(resolver.shared.state.lock().neighbours.0.len(), 1);
    }
}
