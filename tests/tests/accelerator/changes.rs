//! SAs and policies that are added, replaced and removed at random.

use std::sync::Arc;

use fastrand::Rng;
use towpath_ipsec::{Config, Table};
use towpath_ports::ipsec::now;

use super::packets::{PEERS, inbound, outbound, policy};

pub(crate) struct Changes {
    table: Arc<Table>,
    random: Rng,
    /// Numbers of the SAs of each peer: inbound, outbound.
    ids: Vec<[Option<u32>; 2]>,
    has_policy: Vec<bool>,
    count: u64,
}

impl Changes {
    /// Begins with all SAs and policies.
    pub(crate) fn new(table: &Arc<Table>, seed: u64) -> Changes {
        let peers = usize::from(PEERS);
        let mut changes = Changes {
            table: Arc::clone(table),
            random: Rng::with_seed(seed),
            ids: vec![[None; 2]; peers],
            has_policy: vec![false; peers],
            count: 0,
        };
        for peer in 0..PEERS {
            changes.put(peer, 0);
            changes.put(peer, 1);
            changes.toggle_policy(peer);
        }
        changes
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Makes one change.
    pub(crate) fn step(&mut self) {
        self.count += 1;
        let peer = self.random.u8(..PEERS);
        let way = self.random.usize(..2);
        match self.random.u8(..100) {
            0..50 => self.put(peer, way),
            50..80 => self.remove(peer, way),
            80..95 => self.toggle_policy(peer),
            95..99 => {
                for sa in self.table.list() {
                    sa.set_pmtu(if self.random.bool() { 600 } else { 0 });
                }
            }
            _ => {
                self.table.flush();
                self.ids.fill([None; 2]);
            }
        }
        let _events = self.table.expire(now());
        self.table.take_wanted();
    }

    /// Adds an SA, or replaces it by one that begins anew.
    fn put(&mut self, peer: u8, way: usize) {
        let config: Config = if way == 0 { inbound(peer) } else { outbound(peer) };
        let id = &mut self.ids[usize::from(peer)][way];
        let sa = match *id {
            Some(old) => self.table.replace(old, config, now()),
            None => self.table.add(config, now()),
        };
        *id = Some(sa.unwrap().id());
    }

    fn remove(&mut self, peer: u8, way: usize) {
        if let Some(id) = self.ids[usize::from(peer)][way].take() {
            assert!(self.table.remove(id).is_some(), "it was there");
        }
    }

    fn toggle_policy(&mut self, peer: u8) {
        let has = &mut self.has_policy[usize::from(peer)];
        match *has {
            true => assert!(self.table.remove_policy(&policy(peer)).is_some(), "it was there"),
            false => self.table.add_policy(policy(peer)).unwrap(),
        }
        *has = !*has;
    }
}
