//! Requests to the host's stack to resolve neighbours, and to keep them fresh.
//!
//! Packets that don't pass the stack tell it nothing about its neighbours. `NTF_USE` has it behave
//! as if it sent a packet to one: it asks for an unknown address by ARP or ND, and probes an old
//! one. The result is in the host's tables, which a [`Watcher`](crate::Watcher) follows. A request
//! may wait for the kernel's lock of interfaces, so a thread of its own makes them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Error;
use crate::netlink::protocols::NETLINK_ROUTE;
use crate::netlink::{Socket, attribute};

/// A neighbour: the interface's ifindex, and the address.
type Neighbour = (u32, IpAddr);

/// Keeps neighbours of the network namespace in which it was started in use.
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
    queue: VecDeque<Neighbour>,
    asked: HashMap<Neighbour, Asked>,
}

/// The last request for a neighbour.
#[derive(Debug)]
struct Asked {
    at: Instant,
    outcome: Outcome,
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
            while let Some((neighbour, before)) = theirs.next() {
                theirs.note(neighbour, use_neighbour(&mut socket, neighbour, before));
            }
        });
        let thread = thread.map_err(Error::setup("starting a thread"))?;
        Ok(Resolver { shared, thread: Some(thread) })
    }

    /// Tells the stack that a neighbour is in use, unless it was told within the last second. Never
    /// waits; returns the outcome of earlier requests. Needs `CAP_NET_ADMIN`.
    pub fn use_neighbour(&self, ifindex: u32, address: IpAddr) -> Outcome {
        let (neighbour, now) = ((ifindex, address), Instant::now());
        let mut state = self.shared.state.lock();
        if state.asked.len() >= NEIGHBOURS_MAX && !state.asked.contains_key(&neighbour) {
            state.asked.retain(|_, asked| now - asked.at < FORGET);
            if state.asked.len() >= NEIGHBOURS_MAX {
                return Outcome::Pending;
            }
        }
        let outcome = match state.asked.get_mut(&neighbour) {
            Some(asked) if now - asked.at < REPEAT => return asked.outcome,
            Some(asked) => {
                asked.at = now;
                asked.outcome
            }
            None => {
                let outcome = Outcome::Pending;
                state.asked.insert(neighbour, Asked { at: now, outcome });
                outcome
            }
        };
        if !state.queue.contains(&neighbour) {
            state.queue.push_back(neighbour);
        }
        drop(state);
        self.shared.wake.notify_one();
        outcome
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
    /// The next request, with its neighbour's last outcome; `None` at the end.
    fn next(&self) -> Option<(Neighbour, Outcome)> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(neighbour) = state.queue.pop_front() {
                let asked = state.asked.get(&neighbour);
                return Some((neighbour, asked.map_or(Outcome::Pending, |asked| asked.outcome)));
            }
            self.wake.wait(&mut state);
        }
    }

    fn note(&self, neighbour: Neighbour, outcome: Outcome) {
        if let Some(asked) = self.state.lock().asked.get_mut(&neighbour) {
            asked.outcome = outcome;
        }
    }
}

/// Has the stack use a neighbour; gives what has come of it so far.
fn use_neighbour(socket: &mut Socket, neighbour: Neighbour, before: Outcome) -> Outcome {
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
fn state_of(socket: &mut Socket, neighbour: Neighbour) -> io::Result<u16> {
    let answer = socket.ask(RTM_GETNEIGH, &message(neighbour, 0))?;
    let state = answer.content.get(NDM_STATE..).and_then(|bytes| bytes.first_chunk());
    Ok(state.map_or(0, |bytes| u16::from_ne_bytes(*bytes)))
}

/// A `struct ndmsg` with the address.
fn message((ifindex, address): Neighbour, flags: u8) -> Vec<u8> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
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
const NEIGHBOURS_MAX: usize = 4096;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
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
        assert_eq!(resolver.shared.state.lock().asked.len(), 1);
    }
}
