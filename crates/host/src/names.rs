//! Interfaces of one network namespace by name: the present ones, and whether they are still the
//! same. A thread receives changes through rtnetlink.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;
use towpath_xdp::host::Interface;

use crate::Error;
use crate::bell::Bell;
use crate::interfaces::interface;
use crate::namespace::{self, Identity};
use crate::netlink::{LINKS, Messages, Socket, protocols};

/// Identity of an interface that has a name now. An interface that returns after it was removed or
/// renamed gets another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence(u64);

/// The interfaces of a network namespace, followed until this is dropped.
#[derive(Debug)]
pub struct Names {
    shared: Arc<Shared>,
    identity: Option<Identity>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Ends the thread.
    bell: Bell,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    /// Names that are watched.
    watched: BTreeSet<String>,
    /// Interfaces by ifindex: name, whether it is up, and its identity.
    interfaces: BTreeMap<u32, Known>,
    /// Ifindexes by name.
    by_name: HashMap<String, u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    name: String,
    up: bool,
    since: Presence,
}

impl Names {
    /// Follows a namespace, or the calling thread's if there is no name. A thread calls `changed`
    /// whenever a watched interface appears, disappears, or is set up or down.
    ///
    /// # Errors
    ///
    /// Fails if there is no such namespace, or if no socket or thread can be made.
    pub fn follow(
        namespace: Option<&str>,
        changed: impl Fn() + Send + 'static,
    ) -> Result<Names, Error> {
        let file = namespace.map(namespace::open).transpose();
        let file = file.map_err(Error::setup("opening its network namespace"))?;
        let identity = namespace.and_then(|name| namespace::identity(name).ok());
        let shared = Arc::new(Shared { bell: Bell::new()?, state: Mutex::default() });
        let (theirs, (said, heard)) = (Arc::clone(&shared), std::sync::mpsc::channel());
        let open = |groups| Socket::open(protocols::NETLINK_ROUTE, groups);
        let body = move || {
            let opened = file.map_or(Ok(()), |file| namespace::enter(&file));
            // It listens before it reads, so that no change is missed in between.
            let opened = opened.and_then(|()| Ok((open(LINK_GROUP)?, open(0)?)));
            let (events, reader) = match opened {
                Ok(sockets) => sockets,
                Err(error) => return drop(said.send(Err(error))),
            };
            events.set_backlog(BACKLOG_BYTES);
            let mut work = Work { events, reader, shared: theirs };
            // Without a receiver, the caller is gone.
            let _gone = said.send(work.read().map(drop));
            work.run(changed);
        };
        let thread = std::thread::Builder::new().name("towpath-names".to_owned());
        let thread = thread.spawn(body).map_err(Error::setup("starting a thread"))?;
        let mut names = Names { shared, identity, thread: Some(thread) };
        match heard.recv() {
            Ok(Ok(())) => Ok(names),
            Ok(Err(error)) => Err(Error::setup("listening to rtnetlink")(error)),
            Err(_panicked) => {
                names.thread = None;
                Err(Error::setup("listening to rtnetlink")(io::Error::other("its thread ended")))
            }
        }
    }

    /// Whether the name refers to the namespace that is followed.
    pub fn is_of(&self, namespace: Option<&str>) -> bool {
        namespace.and_then(|name| namespace::identity(name).ok()) == self.identity
    }

    /// Sets the names to watch.
    pub fn watch(&self, names: BTreeSet<String>) {
        self.shared.state.lock().watched = names;
    }

    /// The interface with this name, if there is one now.
    pub fn find(&self, name: &str) -> Option<Presence> {
        let state = self.shared.state.lock();
        state.find(name)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl State {
    fn find(&self, name: &str) -> Option<Presence> {
        let ifindex = self.by_name.get(name)?;
        self.interfaces.get(ifindex).map(|known| known.since)
    }

    /// Removes a name that now belongs to another interface, or to none.
    fn forget_name(&mut self, name: &str, ifindex: u32) {
        if self.by_name.get(name) == Some(&ifindex) {
            self.by_name.remove(name);
        }
    }

    /// Records an interface's state; gives whether a watched name changed.
    fn note(&mut self, interface: &Interface) -> bool {
        let Interface { ifindex, name, up, .. } = interface;
        let before = self.interfaces.get(ifindex);
        let same = before.filter(|known| known.name == *name);
        let since =
            same.map_or_else(|| Presence(NEXT.fetch_add(1, Ordering::Relaxed)), |it| it.since);
        let now = Known { name: name.clone(), up: *up, since };
        if before == Some(&now) {
            return false;
        }
        let old = self.interfaces.insert(*ifindex, now).map(|known| known.name);
        if let Some(old) = old.as_ref().filter(|old| *old != name) {
            self.forget_name(old, *ifindex);
        }
        self.by_name.insert(name.clone(), *ifindex);
        old.iter().chain([name]).any(|name| self.watched.contains(name))
    }

    /// Records that an interface is gone.
    fn forget(&mut self, ifindex: u32) -> bool {
        let gone = self.interfaces.remove(&ifindex);
        if let Some(gone) = &gone {
            self.forget_name(&gone.name, ifindex);
        }
        gone.is_some_and(|known| self.watched.contains(&known.name))
    }
}

/// State of the thread.
struct Work {
    events: Socket,
    reader: Socket,
    shared: Arc<Shared>,
}

impl Work {
    fn run(&mut self, changed: impl Fn()) {
        let mut is_whole = true;
        loop {
            // A failed read is repeated a little later.
            let timeout = (!is_whole).then_some(Timespec { tv_sec: 0, tv_nsec: RETRY_NS });
            let mut fds = [
                PollFd::from_borrowed_fd(self.events.fd(), PollFlags::IN),
                PollFd::new(&self.shared.bell, PollFlags::IN),
            ];
            // An interrupted wait only ends early.
            let _interrupted = poll(&mut fds, timeout.as_ref());
            if self.shared.state.lock().stopped {
                return;
            }
            let mut is_news = self.hear(&mut is_whole);
            if !is_whole {
                match self.read() {
                    Ok(news) => (is_whole, is_news) = (true, is_news | news),
                    Err(_again) => is_whole = false,
                }
            }
            if is_news {
                changed();
            }
        }
    }

    /// Records all pending notifications; gives whether one concerns a watched name. If some were
    /// lost, `is_whole` becomes false.
    fn hear(&mut self, is_whole: &mut bool) -> bool {
        let mut is_news = false;
        loop {
            let bytes = match self.events.receive(RecvFlags::DONTWAIT) {
                Ok(bytes) => bytes,
                Err(error) => {
                    *is_whole &= error.kind() == io::ErrorKind::WouldBlock;
                    return is_news;
                }
            };
            for message in Messages(bytes) {
                // Bridges report their ports in the same way, with another family.
                let family = message.body.first();
                let Some(interface) = interface(message.body).filter(|_| family == Some(&0)) else {
                    continue;
                };
                let mut state = self.shared.state.lock();
                is_news |= match message.kind {
                    RTM_NEWLINK => state.note(&interface),
                    RTM_DELLINK => state.forget(interface.ifindex),
                    _ => false,
                };
            }
        }
    }

    /// Reads all interfaces; gives whether a change concerns a watched name.
    fn read(&mut self) -> io::Result<bool> {
        let there = self.reader.dump(LINKS, 0, interface)?.entries;
        let mut state = self.shared.state.lock();
        let known: BTreeSet<u32> = state.interfaces.keys().copied().collect();
        let there_now: BTreeSet<u32> = there.iter().map(|interface| interface.ifindex).collect();
        let gone: Vec<u32> = known.difference(&there_now).copied().collect();
        let mut is_news = false;
        gone.into_iter().for_each(|ifindex| is_news |= state.forget(ifindex));
        there.iter().for_each(|interface| is_news |= state.note(interface));
        Ok(is_news)
    }
}

/// Source of identities: no two interfaces of any namespaces get the same one.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// `RTMGRP_LINK`.
const LINK_GROUP: u32 = 1;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const BACKLOG_BYTES: usize = 1 << 20;
const RETRY_NS: i64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn named(ifindex: u32, name: &str, up: bool) -> Interface {
        let mut interface = Interface { name: name.to_owned(), ifindex, up, ..EMPTY };
        interface.mtu = 1500;
        interface
    }

    const EMPTY: Interface = Interface {
        ifindex: 0,
        name: String::new(),
        mac: [0; 6],
        mtu: 0,
        up: false,
        forwarding_v4: false,
        forwarding_v6: false,
        addresses: Vec::new(),
        vlan: None,
    };

    #[test]
    fn what_comes_back_is_another_one() {
        let mut state = State { watched: ["a".to_owned()].into(), ..State::default() };
        let find = |state: &State| state.interfaces.get(&7).map(|known| known.since);
        assert!(state.note(&named(7, "a", true)) && !state.note(&named(7, "a", true)));
        let first = find(&state);
        assert!(state.note(&named(7, "a", false)), "it was set down");
        assert_eq!(find(&state), first, "and is the same");
        assert!(!state.note(&named(8, "b", true)) && !state.forget(8), "nobody asked");
        assert!(state.note(&named(7, "c", false)) && state.note(&named(7, "a", false)));
        assert_ne!(find(&state), first, "it was renamed meanwhile");
        assert!(state.forget(7));
        assert_eq!(find(&state), None);
    }

    /// Two interfaces exchange their names, one message after the other.
    #[test]
    fn a_name_is_of_who_had_it_last() {
        let mut state = State::default();
        let since = |state: &State, ifindex| state.interfaces.get(&ifindex).map(|it| it.since);
        for (ifindex, name) in [(7, "a"), (8, "b"), (7, "b"), (8, "a")] {
            state.note(&named(ifindex, name, true));
        }
        assert_eq!((state.find("a"), state.find("b")), (since(&state, 8), since(&state, 7)));
        state.forget(8);
        assert_eq!((state.find("a"), state.find("b")), (None, since(&state, 7)));
    }

    #[test]
    fn the_loopback_device_is_there() {
        let names = Names::follow(None, || ()).expect("anybody may listen");
        assert!(names.find("lo").is_some() && names.find("no such").is_none());
        assert!(names.is_of(None));
        let error = Names::follow(Some("/nowhere"), || ()).expect_err("there is none");
        assert!(error.to_string().contains("namespace"), "{error}");
    }
}
