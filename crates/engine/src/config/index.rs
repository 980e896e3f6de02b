//! Indexes of ports by name, ifindex and upper, so that lookups need not scan all ports.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::numbers::PortId;
use crate::options::UpperName;

/// Ports by name, by ifindex and by upper, and the free numbers.
#[derive(Debug, Clone)]
pub(super) struct Index {
    names: HashMap<String, PortId>,
    ifindexes: HashMap<u32, PortId>,
    /// Ports below a port or a bridge, by its name.
    below: BTreeMap<String, BTreeSet<PortId>>,
    /// Numbers of removed ports, below [`Index::next`].
    free: BTreeSet<PortId>,
    /// The first number that no port ever had.
    next: PortId,
    /// No engine-assigned ifindex below this one is free.
    next_ifindex: u32,
}

impl Default for Index {
    fn default() -> Index {
        Index {
            names: HashMap::new(),
            ifindexes: HashMap::new(),
            below: BTreeMap::new(),
            free: BTreeSet::new(),
            next: PortId(0),
            next_ifindex: FIRST_IFINDEX,
        }
    }
}

impl Index {
    /// The port with this name.
    pub(super) fn named(&self, name: &str) -> Option<PortId> {
        self.names.get(name).copied()
    }

    /// The port with this ifindex.
    pub(super) fn with_ifindex(&self, ifindex: u32) -> Option<PortId> {
        self.ifindexes.get(&ifindex).copied()
    }

    /// The ports whose upper has this name.
    pub(super) fn below(&self, upper: &str) -> impl Iterator<Item = PortId> {
        self.below.get(upper).into_iter().flatten().copied()
    }

    /// The lowest free engine-assigned ifindex.
    pub(super) fn free_ifindex(&mut self) -> u32 {
        while self.ifindexes.contains_key(&self.next_ifindex) {
            self.next_ifindex += 1;
        }
        self.next_ifindex
    }

    /// Adds a port with a unique name and ifindex; returns its number, the lowest free one.
    pub(super) fn add(&mut self, name: &str, ifindex: u32) -> PortId {
        let id = self.free.pop_first().unwrap_or_else(|| {
            let id = self.next;
            self.next = PortId(id.0 + 1);
            id
        });
        self.names.insert(name.to_owned(), id);
        self.ifindexes.insert(ifindex, id);
        id
    }

    /// Removes a port.
    pub(super) fn remove(&mut self, id: PortId, name: &str, ifindex: u32, upper: &UpperName) {
        self.set_upper(id, upper, &UpperName::None);
        self.names.remove(name);
        self.forget_ifindex(ifindex);
        self.free.insert(id);
    }

    /// Changes the ifindex of a port to one that no other port has.
    pub(super) fn set_ifindex(&mut self, id: PortId, before: u32, ifindex: u32) {
        self.forget_ifindex(before);
        self.ifindexes.insert(ifindex, id);
    }

    /// Exchanges the ifindexes of two ports.
    pub(super) fn swap_ifindexes(&mut self, (a, of_a): (PortId, u32), (b, of_b): (PortId, u32)) {
        self.ifindexes.extend([(of_b, a), (of_a, b)]);
    }

    fn forget_ifindex(&mut self, ifindex: u32) {
        self.ifindexes.remove(&ifindex);
        if ifindex >= FIRST_IFINDEX {
            self.next_ifindex = self.next_ifindex.min(ifindex);
        }
    }

    /// Changes the upper of a port.
    pub(super) fn set_upper(&mut self, id: PortId, before: &UpperName, upper: &UpperName) {
        if let UpperName::Named(before) = before
            && let Some(ports) = self.below.get_mut(before)
        {
            ports.remove(&id);
            if ports.is_empty() {
                self.below.remove(before);
            }
        }
        if let UpperName::Named(upper) = upper {
            self.below.entry(upper.clone()).or_default().insert(id);
        }
    }
}

/// Ifindexes of ports without an interface on the host start here, far from the host's own.
const FIRST_IFINDEX: u32 = 0x10001;
const _: () = assert!(FIRST_IFINDEX > u16::MAX as u32, "hosts count from 1");

#[cfg(test)]
mod tests {
    use super::*;

    /// After any sequence of changes, a new port gets the lowest free numbers, as found by a full
    /// scan.
    #[test]
    fn numbers_are_the_lowest_that_are_free() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut index = Index::default();
        let mut there: BTreeMap<PortId, u32> = BTreeMap::new();
        for _ in 0..4000 {
            let all: Vec<(PortId, u32)> = there.iter().map(|(&id, &it)| (id, it)).collect();
            match random.u8(..3) {
                0 if !all.is_empty() => {
                    let (id, ifindex) = all[random.usize(..all.len())];
                    index.remove(id, &format!("p{}", id.0), ifindex, &UpperName::None);
                    there.remove(&id);
                }
                1 if !all.is_empty() => {
                    let (id, before) = all[random.usize(..all.len())];
                    let ifindex = FIRST_IFINDEX + random.u32(..64);
                    if index.with_ifindex(ifindex).is_none() {
                        index.set_ifindex(id, before, ifindex);
                        there.insert(id, ifindex);
                    }
                }
                _ => {
                    let free = (0..).map(PortId).find(|id| !there.contains_key(id)).unwrap();
                    let used: BTreeSet<u32> = there.values().copied().collect();
                    let expected = (FIRST_IFINDEX..).find(|it| !used.contains(it)).unwrap();
                    let ifindex = index.free_ifindex();
                    let id = index.add(&format!("p{}", free.0), ifindex);
                    assert_eq!((id, ifindex), (free, expected));
                    there.insert(id, ifindex);
                }
            }
            for (&id, &ifindex) in &there {
                assert_eq!(index.named(&format!("p{}", id.0)), Some(id));
                assert_eq!(index.with_ifindex(ifindex), Some(id));
            }
        }
    }
}
