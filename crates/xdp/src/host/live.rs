//! A host that changes while programs run.
//!
//! Readers pay one load and one comparison: each worker keeps its last tables, and fetches new ones
//! only when the generation has changed. Replaced tables are freed when the last worker has fetched
//! new ones, or is gone.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::fib::{Route, TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use super::{Host, Index, Interface};

/// A replaceable host, shared by all programs that are to see the same one.
#[derive(Debug)]
pub struct Live {
    /// The generation of `tables`.
    generation: AtomicU64,
    tables: Mutex<Arc<Tables>>,
}

/// A host with its lookup tables.
#[derive(Debug)]
pub struct Tables {
    pub(crate) host: Host,
    pub(crate) index: Index,
    /// A number unique among all tables of this process.
    generation: u64,
}

/// The tables that a worker used last.
#[derive(Debug, Clone)]
pub(crate) struct Seen(Arc<Tables>);

impl Live {
    /// A host that stays as it is until [`Live::replace`].
    pub fn new(host: Host) -> Live {
        let tables = Arc::new(Tables::new(host));
        Live { generation: AtomicU64::new(tables.generation), tables: Mutex::new(tables) }
    }

    /// Replaces the host; programs see the new one from their next lookup on. Its tables are made
    /// before any lock is taken.
    pub fn replace(&self, host: Host) {
        let tables = Arc::new(Tables::new(host));
        let generation = tables.generation;
        let mut current = self.tables.lock();
        let before = std::mem::replace(&mut *current, tables);
        self.generation.store(generation, Ordering::Release);
        drop(current);
        // Large tables take time to free, so they are dropped after the lock is released.
        drop(before);
    }

    /// The present host.
    pub fn current(&self) -> Arc<Tables> {
        Arc::clone(&self.tables.lock())
    }

    /// The present tables.
    #[inline(always)]
    pub(crate) fn tables<'w>(&self, seen: &'w mut Seen) -> &'w Tables {
        if seen.0.generation != self.generation.load(Ordering::Acquire) {
            self.refresh(seen);
        }
        &seen.0
    }

    #[cold]
    #[inline(never)]
    fn refresh(&self, seen: &mut Seen) {
        *seen = Seen(self.current());
    }
}

impl Default for Live {
    fn default() -> Live {
        Live::new(Host::default())
    }
}

impl From<Host> for Live {
    fn from(host: Host) -> Live {
        Live::new(host)
    }
}

impl Tables {
    fn new(host: Host) -> Tables {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let index = Index::new(&host);
        Tables { host, index, generation: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The host itself.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The interface with this ifindex.
    pub fn interface(&self, ifindex: u32) -> Option<&Interface> {
        self.index.interface(&self.host, ifindex)
    }

    /// The Ethernet address of a neighbour, if it is known.
    pub fn neighbour(&self, ifindex: u32, address: IpAddr) -> Option<[u8; 6]> {
        self.index.neighbour(ifindex, address)
    }

    /// The best route to a destination by any interface; it may be the host's own address.
    pub fn route(&self, destination: IpAddr) -> Option<&Route> {
        self.best(destination, |table| self.index.route(&self.host, table, destination))
    }

    /// The best route to a destination that leads through an interface, or one that refuses
    /// packets by any.
    pub fn route_through(&self, destination: IpAddr, ifindex: u32) -> Option<&Route> {
        self.best(destination, |table| {
            self.index.route_through(&self.host, table, destination, ifindex)
        })
    }

    /// Asks the tables in the order of a host without rules of its own.
    fn best<'h>(
        &'h self,
        destination: IpAddr,
        in_table: impl Fn(u32) -> Option<&'h Route>,
    ) -> Option<&'h Route> {
        match destination {
            IpAddr::V4(_) => {
                let main = in_table(TABLE_MAIN);
                let is_answer = main.is_some_and(|route| !route.kind.is_refusal());
                if is_answer { main } else { in_table(TABLE_DEFAULT).or(main) }
            }
            IpAddr::V6(_) => in_table(TABLE_LOCAL).or_else(|| in_table(TABLE_MAIN)),
        }
    }

    /// An interface's MTU.
    #[inline]
    pub(crate) fn mtu(&self, ifindex: u32) -> Option<u32> {
        self.index.mtu(&self.host, ifindex)
    }
}

impl Default for Seen {
    fn default() -> Seen {
        static NOTHING: LazyLock<Arc<Tables>> =
            LazyLock::new(|| Arc::new(Tables::new(Host::default())));
        Seen(Arc::clone(&NOTHING))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Interface;

    #[test]
    fn a_worker_sees_what_was_put_in_place() {
        let (live, other) = (Live::default(), Live::new(Host::with_loopback()));
        let mut seen = Seen::default();
        assert!(live.tables(&mut seen).mtu(1).is_none());
        live.replace(Host::with_loopback());
        assert!(live.tables(&mut seen).mtu(1).is_some());
        live.replace(Host::default());
        assert!(other.tables(&mut seen).mtu(1).is_some(), "each has its own");
        assert!(live.tables(&mut seen).mtu(1).is_none());
        let before = Arc::downgrade(&live.current());
        live.replace(Host::with_loopback());
        live.tables(&mut seen);
        assert_eq!(before.strong_count(), 0, "nobody holds what was replaced");
    }

    #[test]
    fn readers_never_see_halves() {
        let hosts = |mtu| {
            let mut host = Host::with_loopback();
            host.interfaces[0].mtu = mtu;
            host.interfaces.push(Interface { ifindex: 2, ..host.interfaces[0].clone() });
            host
        };
        let live = Live::new(hosts(1));
        std::thread::scope(|scope| {
            let reader = || {
                let mut seen = Seen::default();
                let (mut last, mut reads) = (0, 0u64);
                while last < 1000 {
                    let tables = live.tables(&mut seen);
                    let mtus = [1, 2].map(|ifindex| tables.mtu(ifindex));
                    assert_eq!(mtus[0], mtus[1]);
                    assert!(mtus[0] >= Some(last), "time goes on");
                    (last, reads) = (mtus[0].unwrap(), reads + 1);
                }
                reads
            };
            let readers = [scope.spawn(reader), scope.spawn(reader)];
            for mtu in 2..=1000 {
                live.replace(hosts(mtu));
            }
            assert!(readers.map(|reader| reader.join().unwrap()).iter().all(|reads| *reads > 0));
        });
    }
}
