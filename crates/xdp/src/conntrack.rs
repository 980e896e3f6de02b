//! Connection tracking for programs: the table behind the kernel's conntrack kfuncs.
//!
//! The kernel's table is filled by its stack and by programs; this one by programs
//! (`bpf_xdp_ct_alloc`, `bpf_ct_insert_entry`), and by tests ([`KnownConnection`]). Entries are
//! objects of the size of `struct nf_conn`, so that programs read `mark`, `status` and `timeout` at
//! the offsets in BTF; the table's own state of an entry lies behind that. As in the kernel, an
//! entry is in two chains, one for each direction, and a full table makes room by evicting
//! connections that are not assured.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use towpath_bpf::Errno;
use towpath_maps::Domain;

use crate::host::Transport;
use crate::objects::{Class, Hidden, Link, Object, Objects};

/// Connections by either direction's tuple.
#[derive(Debug, Default)]
pub(crate) struct Conntrack {
    /// Allocated with the first entry.
    table: OnceLock<Table>,
    /// Number of entries, including those not yet inserted.
    count: Count,
}

/// Keeps the counter on its own cache lines, so that new connections do not slow down lookups.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

#[derive(Debug)]
struct Table {
    seed: [u64; 2],
    chains: Box<[Mutex<Link>]>,
}

/// The layout of a program's connections, by the BTF it was linked against.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) class: Arc<Class>,
    /// Byte offsets of `status` and `mark` in an entry.
    pub(crate) status: Option<u64>,
    pub(crate) mark: Option<u64>,
}

/// A connection known to a host, as entered by its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownConnection {
    /// TCP or UDP.
    pub transport: Transport,
    /// Source and destination of its first packet, of one family.
    pub source: SocketAddr,
    /// See `source`.
    pub destination: SocketAddr,
    /// Time until it expires, from now on.
    pub timeout: Duration,
    /// Traffic was seen in both directions (`IPS_ASSURED`, `IPS_SEEN_REPLY`).
    pub is_assured: bool,
    /// `nf_conn.mark`
    pub mark: u32,
}

/// The key of a connection: addresses as their bytes lie in memory, zeroes behind those of IPv4;
/// then ports, protocol, family and zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuple([u64; 5]);

/// The objects, CPU and time of a look-up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) worker: usize,
    /// Monotonic nanoseconds.
    pub(crate) now_ns: u64,
}

impl Tuple {
    pub(crate) fn new(
        [source, destination]: [[u64; 2]; 2],
        [source_port, destination_port]: [u16; 2],
        protocol: u8,
        is_v6: bool,
        zone: u16,
    ) -> Tuple {
        let ports = u64::from(source_port) | u64::from(destination_port) << 16;
        let rest = u64::from(protocol) << 32 | u64::from(is_v6) << 40 | u64::from(zone) << 48;
        Tuple([source[0], source[1], destination[0], destination[1], ports | rest])
    }

    fn reversed(self) -> Tuple {
        let Tuple([a, b, c, d, rest]) = self;
        let ports = rest as u32;
        Tuple([c, d, a, b, rest & !u64::from(u32::MAX) | u64::from(ports.rotate_left(16))])
    }

    fn hash(self, seed: [u64; 2]) -> u64 {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        let Tuple([a, b, c, d, e]) = self;
        fold(fold(a ^ seed[0], b ^ seed[1]) ^ fold(c ^ seed[1], d ^ seed[0]) ^ e, seed[0] | 1)
    }
}

/// An address as two words.
pub(crate) fn address(bytes: &[u8]) -> [u64; 2] {
    match bytes {
        &[a, b, c, d] => [u64::from(u32::from_le_bytes([a, b, c, d])), 0],
        _ => {
            let word =
                |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b));
            [word(&bytes[..8]), word(&bytes[8..])]
        }
    }
}

impl KnownConnection {
    /// The connection's tuple; `None` if its ends are of two address families.
    fn tuple(&self) -> Option<Tuple> {
        let words = |end: SocketAddr| match end.ip() {
            IpAddr::V4(it) => address(&it.octets()),
            IpAddr::V6(it) => address(&it.octets()),
        };
        let (source, destination) = (self.source, self.destination);
        let ports = [source, destination].map(|end| end.port().to_be());
        let protocol = self.transport.protocol();
        let addresses = [source, destination].map(words);
        let is_one_family = source.is_ipv6() == destination.is_ipv6();
        is_one_family.then(|| Tuple::new(addresses, ports, protocol, source.is_ipv6(), 0))
    }
}

impl Conntrack {
    /// Adds a connection that the host knows already.
    ///
    /// # Errors
    ///
    /// `EINVAL` if its ends are of two address families, `EEXIST` if it or its reverse is known,
    /// `ENOMEM` if there is no room.
    pub(crate) fn enter(
        &self,
        known: &KnownConnection,
        connection: &Connection,
        domain: &Domain,
        by: Asking<'_>,
    ) -> Result<(), Errno> {
        let tuple = known.tuple().ok_or(Errno::EINVAL)?;
        let object = by.objects.allocate(&connection.class, by.worker, domain);
        let object = object.ok_or(Errno::ENOMEM)?;
        let timeout_ns = u64::try_from(known.timeout.as_nanos()).unwrap_or(u64::MAX);
        let seen = if known.is_assured { IPS_SEEN_REPLY | IPS_ASSURED } else { 0 };
        let has_begun = self.begin(object, tuple, timeout_ns, connection.status, by);
        if has_begun {
            set_bits(object, connection.status, IPS_CONFIRMED | seen);
            set_bits(object, connection.mark, known.mark.into());
        }
        let result = match has_begun {
            false => Err(Errno::ENOMEM),
            true if self.insert(object, by) => Ok(()),
            true => Err(Errno::EEXIST),
        };
        // The table holds its own reference.
        by.objects.release(object, by.worker);
        result
    }

    /// The entry of a tuple, with a reference for the program, and its direction (`true`: reply).
    pub(crate) fn lookup<'a>(&self, tuple: Tuple, by: Asking<'a>) -> Option<(Object<'a>, bool)> {
        let table = self.table.get()?;
        let (object, reply) = {
            let chain = table.chains[table.chain_of(tuple)].lock();
            let found = find(&chain, tuple, tuple.reversed(), by.objects)?;
            found.0.acquire().then_some(found)?
        };
        if state(object)?.expires_ns().load(Relaxed) > by.now_ns {
            return Some((object, reply));
        }
        self.remove(object, by);
        by.objects.release(object, by.worker);
        None
    }

    /// Turns a new object into an entry that is not in the table yet; `false` if there is no room.
    /// An entry is assured if the word at `status` says so.
    pub(crate) fn begin(
        &self,
        object: Object<'_>,
        tuple: Tuple,
        timeout_ns: u64,
        status: Option<u64>,
        by: Asking<'_>,
    ) -> bool {
        let Some(state) = state(object) else { return false };
        if self.count.0.fetch_add(1, Relaxed) >= ENTRIES_MAX && !self.make_room(tuple, status, by) {
            self.count.0.fetch_sub(1, Relaxed);
            return false;
        }
        state.set_tuple(tuple);
        state.timeout_ns().store(timeout_ns, Relaxed);
        true
    }

    /// Inserts an entry (`bpf_ct_insert_entry`). If one of its tuples is taken, returns `false`,
    /// and the entry is invalid from then on. The table holds its own reference.
    pub(crate) fn insert(&self, object: Object<'_>, by: Asking<'_>) -> bool {
        let Some(state) = state(object).filter(|state| state.is(NEW)) else { return false };
        let table = self.table.get_or_init(Table::new);
        let (tuple, reply) = (state.tuple(), state.tuple().reversed());
        let is_free = |chain: &Link, tuple: Tuple, other: Tuple| {
            find(chain, tuple, other, by.objects).is_none()
        };
        let inserted = table.lock_both(tuple, |original, other| {
            let other = other.unwrap_or(original);
            let free = is_free(original, tuple, reply) && is_free(other, reply, tuple);
            if free && object.acquire() {
                state.set(INSERTED);
                let expires_ns = by.now_ns.saturating_add(state.timeout_ns().load(Relaxed));
                state.expires_ns().store(expires_ns, Relaxed);
                for (chain, is_reply) in [(other, true), (original, false)] {
                    state.0.links[usize::from(is_reply)].set(chain.get(by.objects));
                    chain.set(Some((object, is_reply)));
                }
            }
            free
        });
        if !inserted {
            self.abandon(object);
        }
        inserted
    }

    /// Sets an entry's timeout, from now or from its insertion.
    pub(crate) fn set_timeout(&self, object: Object<'_>, timeout_ns: u64, by: Asking<'_>) {
        if let Some(state) = state(object) {
            state.timeout_ns().store(timeout_ns, Relaxed);
            if !state.is(NEW) {
                state.expires_ns().store(by.now_ns.saturating_add(timeout_ns), Relaxed);
            }
        }
    }

    /// Invalidates an entry that was never inserted.
    pub(crate) fn abandon(&self, object: Object<'_>) {
        if state(object).is_some_and(|state| state.change(NEW, GONE)) {
            self.count.0.fetch_sub(1, Relaxed);
        }
    }

    /// Takes an entry out of the table, if it is in it.
    fn remove(&self, object: Object<'_>, by: Asking<'_>) {
        let (Some(table), Some(state)) = (self.table.get(), state(object)) else { return };
        let removed = table.lock_both(state.tuple(), |original, reply| {
            let removed = state.change(INSERTED, GONE);
            if removed {
                unlink(original, object, false, by.objects);
                unlink(reply.unwrap_or(original), object, true, by.objects);
            }
            removed
        });
        if removed {
            self.count.0.fetch_sub(1, Relaxed);
            by.objects.release(object, by.worker);
        }
    }

    /// Evicts the expired or unassured connections of one of several neighbouring chains
    /// (`early_drop`).
    #[cold]
    fn make_room(&self, tuple: Tuple, status: Option<u64>, by: Asking<'_>) -> bool {
        let Some(table) = self.table.get() else { return false };
        let may_go = |object: Object<'_>| {
            let word = status.and_then(|offset| object.word(offset as usize));
            let is_assured = word.is_some_and(|word| word.load(Relaxed) & IPS_ASSURED != 0);
            let expires_ns = state(object).map_or(0, |state| state.expires_ns().load(Relaxed));
            !is_assured || expires_ns <= by.now_ns
        };
        let first = table.chain_of(tuple);
        for chain in (0..CHAINS_TO_SEARCH).map(|step| (first + step) & (CHAINS - 1)) {
            let mut made_room = false;
            while let Some(object) = table.first_of(chain, by.objects, may_go) {
                self.remove(object, by);
                by.objects.release(object, by.worker);
                made_room = true;
            }
            if made_room {
                return true;
            }
        }
        false
    }
}

/// Sets bits in a field of a new object, which no other thread accesses yet.
fn set_bits(object: Object<'_>, offset: Option<u64>, bits: u64) {
    let Some(offset) = offset.map(|offset| offset as usize) else { return };
    if let Some(word) = object.word(offset & !7) {
        word.fetch_or(bits << (8 * (offset & 7)), Relaxed);
    }
}

impl Table {
    fn new() -> Table {
        let random = RandomState::new();
        let chains = (0..CHAINS).map(|_| Mutex::default()).collect();
        Table { seed: [random.hash_one(0u8), random.hash_one(1u8)], chains }
    }

    fn chain_of(&self, tuple: Tuple) -> usize {
        tuple.hash(self.seed) as usize & (CHAINS - 1)
    }

    /// Locks the chains of a tuple and of its reply, in a fixed order; the second is `None` if both
    /// are the same.
    fn lock_both<T>(&self, tuple: Tuple, work: impl FnOnce(&Link, Option<&Link>) -> T) -> T {
        let (original, reply) = (self.chain_of(tuple), self.chain_of(tuple.reversed()));
        if original == reply {
            return work(&self.chains[original].lock(), None);
        }
        let (first, second) =
            (self.chains[original.min(reply)].lock(), self.chains[original.max(reply)].lock());
        let (original, reply) =
            if original < reply { (&first, &second) } else { (&second, &first) };
        work(original, Some(reply))
    }

    /// The first object of a chain that `wanted` accepts, with a reference.
    fn first_of<'a>(
        &self,
        chain: usize,
        objects: &'a Objects,
        wanted: impl Fn(Object<'_>) -> bool,
    ) -> Option<Object<'a>> {
        let chain = self.chains[chain].lock();
        let found = walk(&chain, objects).find(|(object, _)| wanted(*object))?.0;
        found.acquire().then_some(found)
    }
}

/// The entry with a tuple in a chain, and whether the tuple is its reply's.
fn find<'a>(
    chain: &Link,
    tuple: Tuple,
    reversed: Tuple,
    objects: &'a Objects,
) -> Option<(Object<'a>, bool)> {
    walk(chain, objects).find(|&(object, is_reply)| {
        let wanted = if is_reply { reversed } else { tuple };
        state(object).is_some_and(|state| state.tuple() == wanted)
    })
}

/// The entries of a chain, each with the direction it stands for.
fn walk<'a>(
    chain: &Link,
    objects: &'a Objects,
) -> impl Iterator<Item = (Object<'a>, bool)> + use<'a> {
    std::iter::successors(chain.get(objects), move |&(object, is_reply)| {
        object.hidden()?.links[usize::from(is_reply)].get(objects)
    })
}

/// Removes an entry from a chain where it stands for one direction.
fn unlink(chain: &Link, object: Object<'_>, is_reply: bool, objects: &Objects) {
    let Some(state) = state(object) else { return };
    let next = state.0.links[usize::from(is_reply)].get(objects);
    if chain.get(objects) == Some((object, is_reply)) {
        return chain.set(next);
    }
    for (before, side) in walk(chain, objects) {
        let Some(link) = before.hidden().map(|hidden| &hidden.links[usize::from(side)]) else {
            return;
        };
        if link.get(objects) == Some((object, is_reply)) {
            return link.set(next);
        }
    }
}

/// The table's state of an entry.
#[derive(Clone, Copy)]
struct State<'o>(&'o Hidden);

fn state(object: Object<'_>) -> Option<State<'_>> {
    object.hidden().map(State)
}

impl<'o> State<'o> {
    fn tuple(self) -> Tuple {
        Tuple(std::array::from_fn(|at| self.0.words[at].load(Relaxed)))
    }

    fn set_tuple(self, Tuple(words): Tuple) {
        self.0.words.iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
    }

    /// Time of expiry; 0 before insertion.
    fn expires_ns(self) -> &'o AtomicU64 {
        &self.0.words[5]
    }

    fn timeout_ns(self) -> &'o AtomicU64 {
        &self.0.words[6]
    }

    fn is(self, state: u64) -> bool {
        self.0.words[7].load(Acquire) == state
    }

    fn set(self, state: u64) {
        self.0.words[7].store(state, Release);
    }

    /// Changes the state from `from` to `to`; returns whether it was `from`.
    fn change(self, from: u64, to: u64) -> bool {
        self.0.words[7].compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }
}

/// States of an entry: not inserted; in the table; invalid.
const NEW: u64 = 0;
const INSERTED: u64 = 1;
const GONE: u64 = 2;

/// Most entries: `nf_conntrack_max` of an ordinary machine.
const ENTRIES_MAX: u64 = 262_144;
/// Number of chains, a power of two: in a full table, each holds two directions of entries on
/// average.
const CHAINS: usize = 262_144;
/// `NF_CT_EVICTION_RANGE`
const CHAINS_TO_SEARCH: usize = 8;
pub(crate) const IPS_SEEN_REPLY: u64 = 1 << 1;
/// Traffic was seen in both directions.
pub(crate) const IPS_ASSURED: u64 = 1 << 2;
pub(crate) const IPS_CONFIRMED: u64 = 1 << 3;
