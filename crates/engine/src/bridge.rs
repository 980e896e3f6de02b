//! A learning bridge with a forwarding database (FDB).

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::numbers::PortId;

/// A bridge's forwarding database (FDB). Its ports are those that have the bridge as upper.
///
/// Workers look up and refresh addresses without a lock; only new addresses and changes by control
/// code take the lock.
#[derive(Debug)]
pub struct Bridge {
    name: String,
    /// Time after which an address without traffic is forgotten.
    ageing: Duration,
    /// Random hash keys, so that an attacker cannot choose addresses that collide.
    seeds: [u64; 2],
    /// Parts of the table; each is allocated when its first address is learnt.
    shards: [OnceLock<Box<[Entry]>>; SHARDS],
    /// Serialises insertions and removals.
    writer: Mutex<()>,
}

/// A slot of the table. A reader that finds the same key before and after it reads `seen` has read
/// that key's value, because `seen` is cleared before the key changes, and set after.
#[derive(Debug, Default)]
struct Entry {
    /// VLAN and address; 0 in a slot that was never used.
    key: AtomicU64,
    /// A [`LastSeen`].
    seen: AtomicU64,
}

/// The port and the time of the last frame from an address, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastSeen {
    port: PortId,
    /// Time in units of [`TICK_MS`] on the bridges' clock, plus 1; 0 for never, `u32::MAX` for a
    /// static entry.
    tick: u32,
}

impl LastSeen {
    const NEVER: LastSeen = LastSeen { port: PortId(0), tick: 0 };

    fn to_word(self) -> u64 {
        u64::from(self.port.0) << 32 | u64::from(self.tick)
    }

    fn from_word(word: u64) -> LastSeen {
        LastSeen { port: PortId((word >> 32) as u32), tick: word as u32 }
    }

    fn age_ms(self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(u64::from(self.tick.saturating_sub(1)) * TICK_MS)
    }
}

/// The present time on the bridges' common clock, in milliseconds.
pub(crate) fn now_ms() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_millis() as u64
}

/// A bridge's decision about a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forward {
    /// Send to one port.
    To(PortId),
    /// Send to all ports except the ingress port.
    Flood,
    /// Drop: the destination is behind the ingress port, or is reserved for bridges.
    Nowhere,
}

/// An entry of the FDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdbEntry {
    /// VLAN id; 0 for untagged.
    pub vlan: u16,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// The port that leads to the address.
    pub port: PortId,
    /// Time since the last frame from the address; `None` for a static entry.
    pub age: Option<Duration>,
}

impl Bridge {
    /// An empty bridge that forgets addresses after `ageing` (Linux: 300 s).
    pub fn new(name: &str, ageing: Duration) -> Bridge {
        let random = RandomState::new();
        Bridge {
            name: name.to_owned(),
            ageing,
            seeds: [random.hash_one(0u8), random.hash_one(1u8) | 1],
            shards: std::array::from_fn(|_| OnceLock::new()),
            writer: Mutex::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Time after which addresses without traffic are forgotten.
    pub fn ageing(&self) -> Duration {
        self.ageing
    }

    /// Learns the source address and decides about a frame from port `from` (`br_handle_frame`).
    /// `frame` starts with an Ethernet header; `now_ms` is the time on the bridges' clock.
    pub(crate) fn forward(&self, frame: &[u8], from: PortId, now_ms: u64) -> Forward {
        let Some((header, _)) = frame.split_first_chunk::<14>() else { return Forward::Nowhere };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *header;
        let (dest, source) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
        let vlan = vlan_of(frame);
        if source[0] & 1 == 0 && source != [0; 6] {
            self.learn(key(vlan, source), from, now_ms);
        }
        // 01-80-C2-00-00-0X is not forwarded by bridges (IEEE 802.1Q, table 8-1).
        if dest[..5] == [0x01, 0x80, 0xc2, 0, 0] && dest[5] & 0xf0 == 0 {
            return Forward::Nowhere;
        }
        if dest[0] & 1 == 1 {
            return Forward::Flood;
        }
        match self.find(key(vlan, dest), now_ms) {
            Some(port) if port == from => Forward::Nowhere,
            Some(port) => Forward::To(port),
            None => Forward::Flood,
        }
    }

    /// The port that leads to an address, if that is known and not aged out.
    pub fn lookup(&self, vlan: u16, mac: [u8; 6]) -> Option<PortId> {
        self.find(key(vlan, mac), now_ms())
    }

    fn find(&self, key: u64, now_ms: u64) -> Option<PortId> {
        let entry = self.entry(key)?;
        let seen = LastSeen::from_word(entry.seen.load(Ordering::Acquire));
        let is_it = entry.key.load(Ordering::Relaxed) == key;
        (is_it && self.is_fresh(seen, now_ms)).then_some(seen.port)
    }

    fn is_fresh(&self, seen: LastSeen, now_ms: u64) -> bool {
        let lives = || u128::from(seen.age_ms(now_ms)) < self.ageing.as_millis();
        seen.tick != 0 && (seen.tick == STATIC || lives())
    }

    fn learn(&self, key: u64, port: PortId, now_ms: u64) {
        let now = LastSeen { port, tick: (now_ms / TICK_MS) as u32 + 1 };
        let Some(entry) = self.entry(key) else { return self.insert(key, now, now_ms) };
        let word = entry.seen.load(Ordering::Acquire);
        let known = LastSeen::from_word(word);
        if known.tick == 0 || entry.key.load(Ordering::Relaxed) != key {
            return self.insert(key, now, now_ms);
        }
        // Written only when the value changes, because the cache line is shared.
        if known.tick != STATIC && known != now {
            let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
            // If another worker was faster, its value is as good.
            let _known = entry.seen.compare_exchange(word, now.to_word(), release, relaxed);
        }
    }

    /// Inserts an address if its window has a free slot.
    #[cold]
    fn insert(&self, key: u64, seen: LastSeen, now_ms: u64) {
        let _writer = self.writer.lock();
        let (shard, start) = self.place(key);
        let make = || (0..ENTRIES).map(|_| Entry::default()).collect();
        let entries = self.shards[shard].get_or_init(make);
        let is_free = |entry: &&Entry| {
            let known = LastSeen::from_word(entry.seen.load(Ordering::Relaxed));
            entry.key.load(Ordering::Relaxed) == 0 || !self.is_fresh(known, now_ms)
        };
        let Some(entry) = self.entry(key).or_else(|| window(entries, start).find(is_free)) else {
            return;
        };
        entry.seen.store(LastSeen::NEVER.to_word(), Ordering::Release);
        entry.key.store(key, Ordering::Release);
        entry.seen.store(seen.to_word(), Ordering::Release);
    }

    /// Adds a static entry, which does not age.
    pub fn insert_static(&self, vlan: u16, mac: [u8; 6], port: PortId) {
        self.insert(key(vlan, mac), LastSeen { port, tick: STATIC }, now_ms());
    }

    /// Forgets all addresses behind a port.
    pub fn forget(&self, port: PortId) {
        let _writer = self.writer.lock();
        for entry in self.shards.iter().filter_map(OnceLock::get).flatten() {
            if LastSeen::from_word(entry.seen.load(Ordering::Relaxed)).port == port {
                entry.seen.store(LastSeen::NEVER.to_word(), Ordering::Release);
            }
        }
    }

    /// All known addresses, sorted by VLAN and address.
    pub fn entries(&self) -> Vec<FdbEntry> {
        let now = now_ms();
        let entries = self.shards.iter().filter_map(OnceLock::get).flatten();
        let mut known: Vec<FdbEntry> = entries
            .filter_map(|entry| {
                let key = entry.key.load(Ordering::Acquire);
                let seen = LastSeen::from_word(entry.seen.load(Ordering::Acquire));
                let is_it = entry.key.load(Ordering::Relaxed) == key;
                if !is_it || !self.is_fresh(seen, now) {
                    return None;
                }
                let [_, _, mac @ ..] = key.to_be_bytes();
                let age = Duration::from_millis(seen.age_ms(now));
                let (vlan, age) =
                    ((key >> 48) as u16 & 0xfff, (seen.tick != STATIC).then_some(age));
                Some(FdbEntry { vlan, mac, port: seen.port, age })
            })
            .collect();
        known.sort_by_key(|entry| (entry.vlan, entry.mac));
        known
    }

    /// The slot of a key, if there is one.
    #[inline]
    fn entry(&self, key: u64) -> Option<&Entry> {
        let (shard, start) = self.place(key);
        let mut entries = window(self.shards[shard].get()?, start);
        entries.find(|entry| entry.key.load(Ordering::Acquire) == key)
    }

    /// The shard of a key, and the start of the key's window there.
    #[inline]
    fn place(&self, key: u64) -> (usize, usize) {
        let product = u128::from(key ^ self.seeds[0]) * u128::from(self.seeds[1]);
        let hash = product as u64 ^ (product >> 64) as u64;
        (hash as usize % SHARDS, (hash >> 32) as usize % ENTRIES)
    }
}

/// The slots in which a key may be.
#[inline]
fn window(entries: &[Entry], start: usize) -> impl Iterator<Item = &Entry> {
    (start..start + WINDOW).filter_map(|at| entries.get(at % ENTRIES))
}

/// The table key of an address; never 0.
fn key(vlan: u16, mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    1 << 63 | u64::from(vlan & 0xfff) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The frame's VLAN id, 0 when it has no tag.
fn vlan_of(frame: &[u8]) -> u16 {
    match frame.get(12..16) {
        Some(&[0x81, 0x00, high, low]) => u16::from_be_bytes([high, low]) & 0xfff,
        _ => 0,
    }
}

const SHARDS: usize = 64;
/// Entries of a shard.
const ENTRIES: usize = 2048;
/// Number of slots in which a key may be, enough for the 65536 addresses that Linux allows.
const WINDOW: usize = 16;
const _: () = assert!(SHARDS.is_power_of_two() && ENTRIES.is_power_of_two(), "masks choose them");
const _: () =
    assert!(WINDOW <= ENTRIES && SHARDS * ENTRIES >= 2 * 65536, "all addresses find room");
const STATIC: u32 = u32::MAX;
/// Resolution of the bridges' clock: a busy address is written at most once per tick.
const TICK_MS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(dest: u8, source: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, dest, 2, 0, 0, 0, 0, source, 8, 0];
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn learns_forwards_floods_and_forgets() {
        let bridge = Bridge::new("br0", Duration::from_secs(300));
        let (a, b) = (PortId(0), PortId(1));
        assert_eq!(bridge.forward(&frame(2, 1), a, now_ms()), Forward::Flood);
        assert_eq!(bridge.forward(&frame(1, 2), b, now_ms()), Forward::To(a));
        assert_eq!(bridge.forward(&frame(2, 1), a, now_ms()), Forward::To(b));
        assert_eq!(
            bridge.forward(&frame(1, 9), a, now_ms()),
            Forward::Nowhere,
            "behind the same port"
        );
        let mut broadcast = frame(0, 1);
        broadcast[..6].fill(0xff);
        assert_eq!(bridge.forward(&broadcast, b, now_ms()), Forward::Flood);
        assert_eq!(bridge.lookup(0, [2, 0, 0, 0, 0, 1]), Some(b), "it moved");
        bridge.forget(b);
        assert_eq!(bridge.lookup(0, [2, 0, 0, 0, 0, 1]), None);
        let mut lacp = frame(0, 1);
        lacp[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 2]);
        assert_eq!(bridge.forward(&lacp, a, now_ms()), Forward::Nowhere);
        assert_eq!(bridge.forward(&[0; 5], a, now_ms()), Forward::Nowhere);
    }

    #[test]
    fn addresses_age() {
        let bridge = Bridge::new("br0", Duration::ZERO);
        bridge.forward(&frame(2, 1), PortId(0), now_ms());
        assert_eq!(bridge.lookup(0, [2, 0, 0, 0, 0, 1]), None);
        bridge.insert_static(0, [2, 0, 0, 0, 0, 7], PortId(3));
        assert_eq!(bridge.lookup(0, [2, 0, 0, 0, 0, 7]), Some(PortId(3)));
    }

    #[test]
    fn many_addresses_find_room_and_give_it_up() {
        let bridge = Bridge::new("br0", Duration::from_secs(1));
        let mac = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            [2, 0, a, b, c, d]
        };
        for number in 0..32768 {
            bridge.learn(key(0, mac(number)), PortId(number % 7), 0);
        }
        let known = (0..32768).filter(|&it| bridge.find(key(0, mac(it)), 0).is_some()).count();
        assert!(known > 32768 * 99 / 100, "{known}");
        for number in 0..32768 {
            bridge.learn(key(1, mac(number)), PortId(3), 2000);
        }
        let has = |vlan, number| bridge.find(key(vlan, mac(number)), 2000);
        assert!((0..32768).all(|number| has(0, number).is_none()), "they aged");
        let known = (0..32768).filter(|&number| has(1, number) == Some(PortId(3))).count();
        assert!(known > 32768 * 99 / 100, "{known}");
    }

    #[test]
    fn a_place_never_tells_of_another_address() {
        let bridge = Bridge::new("br0", Duration::from_millis(1));
        let entries = ENTRIES as u32 * SHARDS as u32;
        let mac = |number: u32| [2, 0, 0, 0, (number >> 8) as u8, number as u8];
        std::thread::scope(|scope| {
            for worker in 0..3u32 {
                let (bridge, mac) = (&bridge, &mac);
                scope.spawn(move || {
                    for step in 0..entries {
                        let number = step.wrapping_mul(7 + worker) % 4096;
                        let now = u64::from(step) * TICK_MS;
                        bridge.learn(key(0, mac(number)), PortId(number), now);
                        let found = bridge.find(key(0, mac(number)), now);
                        assert!(found.is_none_or(|port| port == PortId(number)), "{found:?}");
                    }
                });
            }
        });
    }
}
