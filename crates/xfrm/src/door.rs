//! A door: the SAs and policies of IKE daemons in a table, and the notifications for them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use netlink_packet_xfrm::constants::*;
use netlink_packet_xfrm::{
    Address, Id, Selector, UserAcquire, UserExpire, UserMapping, UserSaId, UserSaInfo, XfrmAttrs,
};
use parking_lot::Mutex;
use towpath_ipsec::{self as ipsec, Direction, Events, Flow, Sa, Table, Wanted};
use zeroize::Zeroizing;

use crate::policies::{self, Held};
use crate::states;
use crate::wire::{attributes, bytes, notification};

/// SAs and policies of IKE daemons in a [`Table`], managed by messages of XFRM.
///
/// The table may have SAs and policies of others. IKE daemons don't see them, and can't change
/// them.
pub struct Door {
    pub(crate) table: Arc<Table>,
    /// The table's seconds.
    pub(crate) clock: fn() -> u64,
    pub(crate) entries: Mutex<Entries>,
    /// Called with each refusal that an operator should know.
    pub(crate) log: Box<dyn Fn(&str) + Send + Sync>,
}

/// A connection of an IKE daemon.
#[derive(Debug, Default)]
pub struct Client {
    /// Groups of notifications that it gets: a mask, bit 0 for group 1.
    pub(crate) groups: u32,
}

#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) states: HashMap<states::Key, State>,
    /// SPIs that were given out for inbound SAs, with the time at which they are free again.
    pub(crate) larval: HashMap<states::Key, Larval>,
    pub(crate) policies: HashMap<policies::Key, Held>,
    /// Addresses for which SPIs were given out: those of this side.
    pub(crate) locals: HashSet<IpAddr>,
    /// SPIs and directions of SAs that were removed last. An IKE daemon changes the addresses of an
    /// SA by removing it and adding it again.
    pub(crate) removed: VecDeque<(u32, Direction)>,
    /// Reqids for which the IKE daemons were asked to make an SA, and until when.
    asked: HashMap<u32, u64>,
    pub(crate) policies_made: u32,
    acquires: u32,
}

pub(crate) struct State {
    pub(crate) sa: Arc<Sa>,
    pub(crate) info: UserSaInfo,
    /// The attributes of its message. IKE daemons read them, with the keys, to change addresses.
    pub(crate) attributes: Zeroizing<Vec<u8>>,
}

pub(crate) struct Larval {
    pub(crate) info: UserSaInfo,
    pub(crate) until: u64,
}

/// A message for all clients of a group.
#[derive(Debug)]
pub(crate) struct Notification {
    group: u32,
    pub(crate) bytes: Zeroizing<Vec<u8>>,
}

impl Notification {
    /// Whether a client asked for messages of this group.
    pub(crate) fn is_for(&self, client: &Client) -> bool {
        client.groups & 1 << (self.group - 1) != 0
    }
}

impl Door {
    /// A door to a table. `clock` gives the table's seconds; `log` gets a sentence for each refused
    /// change.
    pub fn new(
        table: Arc<Table>,
        clock: fn() -> u64,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Door {
        Door { table, clock, entries: Mutex::default(), log: Box::new(log) }
    }

    /// Numbers of SAs and of policies that came through the door.
    pub fn counts(&self) -> (usize, usize) {
        let entries = self.entries.lock();
        (entries.states.len(), entries.policies.len())
    }

    /// The SAs that came through the door.
    pub fn sas(&self) -> Vec<Arc<Sa>> {
        self.entries.lock().states.values().map(|state| Arc::clone(&state.sa)).collect()
    }

    /// Removes all SAs and policies that came through the door.
    pub fn flush(&self) {
        let mut entries = self.entries.lock();
        self.flush_states(&mut entries);
        self.flush_policies(&mut entries);
    }

    pub(crate) fn flush_states(&self, entries: &mut Entries) {
        for (_, state) in entries.states.drain() {
            self.table.remove(state.sa.id());
        }
        entries.larval.clear();
    }

    pub(crate) fn flush_policies(&self, entries: &mut Entries) {
        for ((_, selector), held) in entries.policies.drain() {
            if let Some(policy) = held.policy(selector) {
                self.table.remove_policy(&policy);
            }
        }
        entries.inbound().for_each(|sa| sa.set_allowed(Some(Vec::new())));
    }

    /// Removes SAs that have reached a hard limit, and returns the notifications for IKE daemons.
    /// It is called several times a second.
    pub(crate) fn turn(&self) -> Vec<Notification> {
        let now = (self.clock)();
        let mut entries = self.entries.lock();
        entries.larval.retain(|_, larval| larval.until > now);
        entries.asked.retain(|_, until| *until > now);
        let mut news = Vec::new();
        for state in entries.states.values() {
            state.sa.expire(now);
            expired(state, state.sa.take_events(), now, &mut news);
        }
        entries.states.retain(|_, state| {
            let is_over = state.sa.is_expired();
            if is_over {
                self.table.remove(state.sa.id());
            }
            !is_over
        });
        for wanted in self.table.take_wanted() {
            news.extend(entries.acquire(&wanted, now));
        }
        news
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (states, policies) = self.counts();
        f.debug_struct("Door").field("sas", &states).field("policies", &policies).finish()
    }
}

impl Entries {
    /// Asks for an SA for a packet of a policy that has none (`XFRM_MSG_ACQUIRE`); once in a while
    /// for each policy.
    fn acquire(&mut self, wanted: &Wanted, now: u64) -> Option<Notification> {
        if self.asked.contains_key(&wanted.reqid) {
            return None;
        }
        let is_for = |((direction, selector), held): &(&policies::Key, &Held)| {
            *direction == XFRM_POLICY_OUT
                && held.reqid() == Some(wanted.reqid)
                && selector.contains(&wanted.flow)
        };
        let (_, held) = self.policies.iter().find(is_for)?;
        let template = held.template?;
        self.asked.insert(wanted.reqid, now + ACQUIRE_SECONDS);
        self.acquires = self.acquires.wrapping_add(1).max(1);
        let acquire = UserAcquire {
            id: Id { spi: 0, ..template.id },
            saddr: template.saddr,
            selector: of_flow(&wanted.flow),
            policy: held.info,
            aalgos: template.aalgos,
            ealgos: template.ealgos,
            calgos: template.calgos,
            seq: self.acquires,
        };
        let attributes = attributes(&[XfrmAttrs::Template(vec![template])]);
        let bytes = notification(XFRM_MSG_ACQUIRE, &[&bytes(&acquire), &attributes]);
        Some(Notification { group: XFRMNLGRP_ACQUIRE, bytes })
    }

    /// The direction of an SA that a message adds. XFRM's messages don't have one.
    pub(crate) fn direction(&self, (destination, spi): states::Key, source: IpAddr) -> Direction {
        let known = self.removed.iter().rev().find(|(removed, _)| *removed == spi);
        match known {
            Some((_, direction)) => *direction,
            None if self.locals.contains(&destination) && !self.locals.contains(&source) => {
                Direction::Inbound
            }
            None => Direction::Outbound,
        }
    }

    /// Selectors of the packets that an inbound SA may carry: those of its policies, as the kernel
    /// checks the policies of decapsulated packets (`__xfrm_policy_check`).
    pub(crate) fn allowed(&self, direction: Direction, reqid: u32) -> Option<Vec<ipsec::Selector>> {
        if direction != Direction::Inbound {
            return None;
        }
        let is_of = |((direction, _), held): &(&policies::Key, &Held)| {
            *direction == XFRM_POLICY_IN && held.reqid() == Some(reqid)
        };
        Some(self.policies.iter().filter(is_of).map(|((_, selector), _)| *selector).collect())
    }

    /// Restricts the inbound SAs of a reqid to its present policies.
    pub(crate) fn restrict(&self, reqid: u32) {
        let allowed = self.allowed(Direction::Inbound, reqid);
        for sa in self.inbound().filter(|sa| sa.reqid() == reqid) {
            sa.set_allowed(allowed.clone());
        }
    }

    /// Time of the last packet of a policy's SAs, in the table's seconds; 0 if there was none.
    pub(crate) fn last_use(&self, held: &Held) -> u64 {
        let direction = match held.info.direction {
            XFRM_POLICY_OUT => Direction::Outbound,
            _ => Direction::Inbound,
        };
        let reqid = held.reqid();
        let is_its = |sa: &&Arc<Sa>| sa.direction() == direction && Some(sa.reqid()) == reqid;
        let sas = self.states.values().map(|state| &state.sa).filter(is_its);
        sas.map(|sa| sa.statistics().used).max().unwrap_or(0)
    }

    fn inbound(&self) -> impl Iterator<Item = &Arc<Sa>> {
        let sas = self.states.values().map(|state| &state.sa);
        sas.filter(|sa| sa.direction() == Direction::Inbound)
    }

    pub(crate) fn note_removed(&mut self, sa: &Sa) {
        self.removed.retain(|(spi, _)| *spi != sa.spi());
        if self.removed.len() == REMOVED_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back((sa.spi(), sa.direction()));
    }
}

/// The notifications of an SA's events.
fn expired(state: &State, events: Events, now: u64, news: &mut Vec<Notification>) {
    for (is_so, hard) in [(events.soft, 0), (events.hard, 1)] {
        if is_so {
            let expire = UserExpire { state: states::current(&state.info, &state.sa, now), hard };
            let bytes = notification(XFRM_MSG_EXPIRE, &[&bytes(&expire)]);
            news.push(Notification { group: XFRMNLGRP_EXPIRE, bytes });
        }
    }
    if events.mapping {
        news.extend(mapping(state));
    }
}

/// The notification that the peer's UDP address is another one.
fn mapping(state: &State) -> Option<Notification> {
    let (address, port) = state.sa.statistics().peer?;
    let info = &state.info;
    let id = UserSaId {
        daddr: info.id.daddr,
        spi: info.id.spi,
        family: info.family,
        proto: info.id.proto,
    };
    let map = UserMapping {
        id,
        reqid: info.reqid,
        old_saddr: info.saddr,
        new_saddr: Address::from_ip(&address),
        old_sport: state.sa.encapsulation().map_or(0, |it| it.source_port),
        new_sport: port,
    };
    let bytes = notification(XFRM_MSG_MAPPING, &[&bytes(&map)]);
    Some(Notification { group: XFRMNLGRP_MAPPING, bytes })
}

/// The selector of exactly this flow.
fn of_flow(flow: &Flow) -> Selector {
    let (source, destination) = flow.addresses();
    let len = if flow.is_v6 { 128 } else { 32 };
    Selector {
        daddr: Address::from_ip(&destination),
        saddr: Address::from_ip(&source),
        dport: flow.destination_port,
        dport_mask: u16::MAX,
        sport: flow.source_port,
        sport_mask: u16::MAX,
        family: if flow.is_v6 { AF_INET6 } else { AF_INET },
        prefixlen_d: len,
        prefixlen_s: len,
        proto: flow.protocol,
        ..Selector::default()
    }
}

/// Seconds between two requests for an SA of one policy (`net.core.xfrm_acq_expires`).
pub(crate) const ACQUIRE_SECONDS: u64 = 30;
/// Removed SAs whose directions are remembered.
const REMOVED_MAX: usize = 256;
