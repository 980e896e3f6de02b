//! A learning bridge: which port leads to which address.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::snapshot::PortId;

/// A bridge's forwarding database (FDB). Its ports are those whose upper it is.
#[derive(Debug)]
pub struct Bridge {
    name: String,
    /// Seconds after which an address that was not heard of is forgotten.
    ageing: Duration,
    started: Instant,
    hasher: RandomState,
    shards: [RwLock<HashMap<Key, Place>>; SHARDS],
    /// Addresses it may know: more are flooded.
    limit: usize,
}

/// VLAN and address.
type Key = (u16, [u8; 6]);

#[derive(Debug)]
struct Place {
    port: PortId,
    /// Milliseconds since the bridge started; `u64::MAX` for entries that stay.
    seen_ms: AtomicU64,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// To one port.
    To(PortId),
    /// To all ports but the one it came from.
    Flood,
    /// Nowhere: the destination is behind the port it came from, or is for bridges only.
    Nowhere,
}

/// One line of the FDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdbEntry {
    /// VLAN, 0 for untagged.
    pub vlan: u16,
    /// Address.
    pub mac: [u8; 6],
    /// The port it is behind.
    pub port: PortId,
    /// When it was last seen; `None` for an entry that stays.
    pub age: Option<Duration>,
}

impl Bridge {
    /// An empty bridge that forgets addresses after `ageing` (Linux: 300 s).
    pub fn new(name: &str, ageing: Duration) -> Bridge {
        Bridge {
            name: name.to_owned(),
            ageing,
            started: Instant::now(),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| RwLock::default()),
            limit: FDB_MAX,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// After which time it forgets addresses.
    pub fn ageing(&self) -> Duration {
        self.ageing
    }

    /// Learns where the source is, and tells where a frame from `from` goes (`br_handle_frame`).
    /// `frame` starts with an Ethernet header.
    pub fn forward(&self, frame: &[u8], from: PortId) -> Forward {
        let Some((header, _)) = frame.split_first_chunk::<14>() else { return Forward::Nowhere };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *header;
        let (dest, source) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
        let vlan = vlan_of(frame);
        if source[0] & 1 == 0 && source != [0; 6] {
            self.learn((vlan, source), from);
        }
        // 01-80-C2-00-00-0X is not forwarded by bridges (IEEE 802.1Q, table 8-1).
        if dest[..5] == [0x01, 0x80, 0xc2, 0, 0] && dest[5] & 0xf0 == 0 {
            return Forward::Nowhere;
        }
        if dest[0] & 1 == 1 {
            return Forward::Flood;
        }
        match self.lookup(vlan, dest) {
            Some(port) if port == from => Forward::Nowhere,
            Some(port) => Forward::To(port),
            None => Forward::Flood,
        }
    }

    /// The port an address is behind, if that is known and fresh.
    pub fn lookup(&self, vlan: u16, mac: [u8; 6]) -> Option<PortId> {
        let key = (vlan, mac);
        let shard = self.shard(&key).read().unwrap_or_else(PoisonError::into_inner);
        let place = shard.get(&key)?;
        let seen = place.seen_ms.load(Ordering::Relaxed);
        let fresh = seen == STATIC || self.now_ms() < seen + self.ageing.as_millis() as u64;
        fresh.then_some(place.port)
    }

    fn learn(&self, key: Key, port: PortId) {
        let now = self.now_ms();
        {
            let shard = self.shard(&key).read().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = shard.get(&key) {
                let seen = place.seen_ms.load(Ordering::Relaxed);
                if seen == STATIC {
                    return;
                }
                if place.port == port {
                    // Written only when it says something new: the line is shared.
                    if now > seen + 100 {
                        place.seen_ms.store(now, Ordering::Relaxed);
                    }
                    return;
                }
            }
        }
        let mut shard = self.shard(&key).write().unwrap_or_else(PoisonError::into_inner);
        if shard.len() >= self.limit / SHARDS && !shard.contains_key(&key) {
            let ageing = self.ageing.as_millis() as u64;
            shard.retain(|_, place| {
                now < place.seen_ms.load(Ordering::Relaxed).saturating_add(ageing)
            });
            if shard.len() >= self.limit / SHARDS {
                return;
            }
        }
        shard.insert(key, Place { port, seen_ms: AtomicU64::new(now) });
    }

    /// Puts an entry that stays.
    pub fn insert_static(&self, vlan: u16, mac: [u8; 6], port: PortId) {
        let key = (vlan, mac);
        let mut shard = self.shard(&key).write().unwrap_or_else(PoisonError::into_inner);
        shard.insert(key, Place { port, seen_ms: AtomicU64::new(STATIC) });
    }

    /// Forgets everything behind a port.
    pub fn forget(&self, port: PortId) {
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, place| place.port != port);
        }
    }

    /// What it knows.
    pub fn entries(&self) -> Vec<FdbEntry> {
        let now = self.now_ms();
        let mut entries = Vec::new();
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            entries.extend(shard.iter().map(|(&(vlan, mac), place)| {
                let seen = place.seen_ms.load(Ordering::Relaxed);
                let age = (seen != STATIC).then(|| Duration::from_millis(now.saturating_sub(seen)));
                FdbEntry { vlan, mac, port: place.port, age }
            }));
        }
        // What is older counts no more, though it may lie there until its place is needed.
        entries.retain(|entry| entry.age.is_none_or(|age| age < self.ageing));
        entries.sort_by_key(|entry| (entry.vlan, entry.mac));
        entries
    }

    fn shard(&self, key: &Key) -> &RwLock<HashMap<Key, Place>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

/// The frame's VLAN id, 0 when it has no tag.
fn vlan_of(frame: &[u8]) -> u16 {
    match frame.get(12..16) {
        Some(&[0x81, 0x00, high, low]) => u16::from_be_bytes([high, low]) & 0xfff,
        _ => 0,
    }
}

const SHARDS: usize = 16;
const FDB_MAX: usize = 65536;
const STATIC: u64 = u64::MAX;

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
        assert_eq!(bridge.forward(&frame(2, 1), a), Forward::Flood);
        assert_eq!(bridge.forward(&frame(1, 2), b), Forward::To(a));
        assert_eq!(bridge.forward(&frame(2, 1), a), Forward::To(b));
        assert_eq!(bridge.forward(&frame(1, 9), a), Forward::Nowhere, "behind the same port");
        let mut broadcast = frame(0, 1);
        broadcast[..6].fill(0xff);
        assert_eq!(bridge.forward(&broadcast, b), Forward::Flood);
        assert_eq!(bridge.lookup(0, [2, 0, 0, 0, 0, 1]), Some(b), "it moved");
        bridge.forget(b);
        assert_eq!(bridge.lookup(0, [2, 0, 0, 0, 0, 1]), None);
        let mut lacp = frame(0, 1);
        lacp[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 2]);
        assert_eq!(bridge.forward(&lacp, a), Forward::Nowhere);
        assert_eq!(bridge.forward(&[0; 5], a), Forward::Nowhere);
    }

    #[test]
    fn addresses_age() {
        let bridge = Bridge::new("br0", Duration::ZERO);
        bridge.forward(&frame(2, 1), PortId(0));
        assert_eq!(bridge.lookup(0, [2, 0, 0, 0, 0, 1]), None);
        bridge.insert_static(0, [2, 0, 0, 0, 0, 7], PortId(3));
        assert_eq!(bridge.lookup(0, [2, 0, 0, 0, 0, 7]), Some(PortId(3)));
    }
}
