//! Connections that programs track: a table of our own behind the kernel's conntrack kfuncs.
//!
//! The kernel's table is filled by its stack and by programs; here only programs fill it
//! (`bpf_xdp_ct_alloc`, `bpf_ct_insert_entry`). Entries are objects of the size of `struct
//! nf_conn`, so that programs read `mark`, `status` and `timeout` where BTF says.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Connections by either direction's tuple.
#[derive(Debug, Default)]
pub(crate) struct Conntrack {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// Tuple to entry, and whether the tuple is the reply direction's.
    by_tuple: HashMap<Tuple, (u64, bool)>,
    by_addr: HashMap<u64, Entry>,
}

/// An entry, looked up or not yet inserted.
#[derive(Debug, Clone)]
struct Entry {
    tuple: Tuple,
    inserted: bool,
    /// Monotonic nanoseconds after which it is gone.
    expires_ns: u64,
    timeout_ns: u64,
}

/// What a connection is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tuple {
    /// Addresses as their bytes lie in memory, zeroes behind those of IPv4.
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) is_v6: bool,
    pub(crate) source_port: [u8; 2],
    pub(crate) destination_port: [u8; 2],
    pub(crate) protocol: u8,
    pub(crate) zone: u16,
}

impl Tuple {
    fn reversed(&self) -> Tuple {
        Tuple {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..*self
        }
    }
}

impl Conntrack {
    /// The entry of a tuple and its direction (`true`: reply). Entries that expired are taken out
    /// and returned second, for the caller to give up.
    pub(crate) fn lookup(&self, tuple: &Tuple, now_ns: u64) -> (Option<(u64, bool)>, Option<u64>) {
        let mut entries = self.lock();
        let Some(&(addr, reply)) = entries.by_tuple.get(tuple) else { return (None, None) };
        let expired = entries.by_addr.get(&addr).is_none_or(|entry| entry.expires_ns <= now_ns);
        if expired {
            entries.remove(addr);
            return (None, Some(addr));
        }
        (Some((addr, reply)), None)
    }

    /// Notes a new entry that is not in the table yet; false when there is no room.
    pub(crate) fn begin(&self, addr: u64, tuple: Tuple, timeout_ns: u64) -> bool {
        let mut entries = self.lock();
        if entries.by_addr.len() >= ENTRIES_MAX {
            return false;
        }
        let entry = Entry { tuple, inserted: false, expires_ns: u64::MAX, timeout_ns };
        entries.by_addr.insert(addr, entry);
        true
    }

    /// `bpf_ct_insert_entry`: false when one of its tuples is taken.
    pub(crate) fn insert(&self, addr: u64, now_ns: u64) -> bool {
        let mut entries = self.lock();
        let Some(entry) = entries.by_addr.get(&addr).filter(|entry| !entry.inserted) else {
            return false;
        };
        let (tuple, reply) = (entry.tuple, entry.tuple.reversed());
        if entries.by_tuple.contains_key(&tuple) || entries.by_tuple.contains_key(&reply) {
            entries.by_addr.remove(&addr);
            return false;
        }
        entries.by_tuple.insert(reply, (addr, true));
        entries.by_tuple.insert(tuple, (addr, false));
        if let Some(entry) = entries.by_addr.get_mut(&addr) {
            entry.inserted = true;
            entry.expires_ns = now_ns.saturating_add(entry.timeout_ns);
        }
        true
    }

    /// Sets how long an entry lives, from now or from its insertion.
    pub(crate) fn set_timeout(&self, addr: u64, timeout_ns: u64, now_ns: u64) {
        if let Some(entry) = self.lock().by_addr.get_mut(&addr) {
            entry.timeout_ns = timeout_ns;
            if entry.inserted {
                entry.expires_ns = now_ns.saturating_add(timeout_ns);
            }
        }
    }

    /// Whether the table itself holds a reference to the entry.
    pub(crate) fn is_inserted(&self, addr: u64) -> bool {
        self.lock().by_addr.get(&addr).is_some_and(|entry| entry.inserted)
    }

    /// Forgets an entry that was never inserted.
    pub(crate) fn abandon(&self, addr: u64) {
        let mut entries = self.lock();
        if entries.by_addr.get(&addr).is_some_and(|entry| !entry.inserted) {
            entries.by_addr.remove(&addr);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn remove(&mut self, addr: u64) {
        if let Some(entry) = self.by_addr.remove(&addr) {
            self.by_tuple.remove(&entry.tuple.reversed());
            self.by_tuple.remove(&entry.tuple);
        }
    }
}

/// `nf_conntrack_max` of an ordinary machine.
const ENTRIES_MAX: usize = 262_144;
