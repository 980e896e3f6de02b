//! Aggregators: the ports that form one logical link, and selection of the aggregate in use.
//!
//! As in the kernel there is one for each member, most of them empty, and at most one is in use.

use super::Lacp;
use super::config::AdSelect;
use super::pdu::State;
use super::port::Port;
use super::state::{AggregatorState, Event};

#[derive(Debug, Clone)]
pub(super) struct Aggregator {
    pub(super) id: u16,
    /// The member with which it is added and removed.
    pub(super) owner: u32,
    /// Members whose ports are in it, the latest first.
    ports: Vec<u32>,
    pub(super) active: bool,
    /// Half duplex: no other port may join.
    is_individual: bool,
    key: u16,
    partner: [u8; 6],
    partner_priority: u16,
    partner_key: u16,
}

impl Aggregator {
    pub(super) fn new(id: u16, owner: u32) -> Aggregator {
        Aggregator {
            id,
            owner,
            ports: Vec::new(),
            active: false,
            is_individual: false,
            key: 0,
            partner: [0; 6],
            partner_priority: 0,
            partner_key: 0,
        }
    }

    pub(super) fn has_partner(&self) -> bool {
        self.partner != [0; 6]
    }

    /// Whether a port belongs to this aggregator.
    fn suits(&self, port: &Port) -> bool {
        let ours = (self.key, self.partner, self.partner_priority, self.partner_key);
        let partner = &port.partner;
        let its = (port.actor.key, partner.system, partner.system_priority, partner.key);
        ours == its && self.has_partner() && !self.is_individual
    }

    fn found(&mut self, port: &Port) {
        self.is_individual = !port.link.full_duplex;
        self.key = port.actor.key;
        self.partner = port.partner.system;
        self.partner_priority = port.partner.system_priority;
        self.partner_key = port.partner.key;
    }
}

/// Sort key of aggregates, the most important first; more is better.
type Rank = (bool, bool, u64, u64, u64);

impl Lacp {
    /// Selection logic (IEEE 802.1AX-2020 section 6.4.14) for a port that is in no aggregate, or
    /// in the wrong one. `ad_port_selection_logic`
    pub(super) fn select_aggregator(&mut self, index: usize) {
        if self.ports[index].selected {
            return;
        }
        self.leave(index);
        let port = &self.ports[index];
        let suits =
            |aggregator: &&mut Aggregator| !aggregator.ports.is_empty() && aggregator.suits(port);
        let existing = self.aggregators.iter_mut().find(suits);
        let chosen = match existing {
            Some(aggregator) => Some(aggregator),
            None => self.aggregators.iter_mut().find(|aggregator| aggregator.ports.is_empty()),
        };
        // There are as many aggregators as ports, and this port is in none: one is free.
        let Some(aggregator) = chosen else { return };
        if aggregator.ports.is_empty() {
            aggregator.found(port);
        }
        aggregator.ports.insert(0, port.member);
        let port = &mut self.ports[index];
        port.aggregator = Some(aggregator.id);
        port.selected = true;
        self.select_active();
        if !self.is_in_active(index) {
            self.ports[index].actor.state.set(State::SYNCHRONISATION, false);
        }
    }

    /// Takes a port out of its aggregate.
    pub(super) fn leave(&mut self, index: usize) {
        let port = &mut self.ports[index];
        (port.collecting, port.distributing) = (false, false);
        let (member, Some(id)) = (port.member, port.aggregator.take()) else { return };
        let Some(aggregator) = self.aggregators.iter_mut().find(|one| one.id == id) else {
            return;
        };
        aggregator.ports.retain(|other| *other != member);
        if aggregator.ports.is_empty() {
            *aggregator = Aggregator::new(id, aggregator.owner);
        }
    }

    /// Removes the aggregator of a member that left; its other ports move to a free one.
    pub(super) fn remove_aggregator(&mut self, owner: u32) {
        let Some(at) = self.aggregators.iter().position(|one| one.owner == owner) else { return };
        let gone = self.aggregators.remove(at);
        let free = self.aggregators.iter_mut().find(|one| one.ports.is_empty());
        if let Some(free) = free.filter(|_| !gone.ports.is_empty()) {
            *free = Aggregator { id: free.id, owner: free.owner, ..gone };
            let id = free.id;
            for port in self.ports.iter_mut().filter(|port| port.aggregator == Some(gone.id)) {
                port.aggregator = Some(id);
            }
        }
        self.select_active();
    }

    /// Selects the aggregate in use (`ad_agg_selection_logic`).
    pub(super) fn select_active(&mut self) {
        let before = self.aggregators.iter().position(|one| one.active);
        let ranks: Vec<Option<Rank>> =
            self.aggregators.iter().map(|aggregator| self.rank(aggregator)).collect();
        let mut best = before.filter(|index| ranks[*index].is_some());
        for (index, rank) in ranks.iter().enumerate().filter(|(_, rank)| rank.is_some()) {
            if best.is_none_or(|best| *rank > ranks[best]) {
                best = Some(index);
            }
        }
        if self.config.select == AdSelect::Stable
            && let (Some(active), Some(found)) = (before, best)
            && ranks[active].is_some()
            && self.is_good_enough(active, found)
        {
            best = Some(active);
        }
        for (index, aggregator) in self.aggregators.iter_mut().enumerate() {
            aggregator.active = Some(index) == best;
        }
        if best != before {
            self.retire(before);
        }
        if let Some(best) = best.filter(|best| !self.aggregators[*best].has_partner()) {
            // A member without a partner sends anyway, so that a switch without LACP works.
            let id = self.aggregators[best].id;
            for port in self.ports.iter_mut().filter(|port| port.aggregator == Some(id)) {
                (port.collecting, port.distributing) = (port.link.up, port.link.up);
            }
        }
    }

    /// Tells the partners of the ports of an aggregate that it is no longer in use.
    fn retire(&mut self, before: Option<usize>) {
        let id = before.map(|index| self.aggregators[index].id);
        for port in self.ports.iter_mut().filter(|port| id.is_some() && port.aggregator == id) {
            (port.collecting, port.distributing) = (false, false);
            port.need_transmit |= port.actor.state.has(State::SYNCHRONISATION);
            port.actor.state.set(State::SYNCHRONISATION, false);
        }
    }

    /// `ad_select stable`: whether the active aggregate stays although `best` ranks higher.
    fn is_good_enough(&self, active: usize, best: usize) -> bool {
        let (active, best) = (&self.aggregators[active], &self.aggregators[best]);
        let has_keys = active.key != 0 || best.key == 0;
        (active.has_partner() || !best.has_partner()) && has_keys
    }

    /// The rank of an aggregate; `None` if no port's link is up, so that it cannot be used.
    fn rank(&self, aggregator: &Aggregator) -> Option<Rank> {
        let ports = || {
            let all = aggregator.ports.iter().filter_map(|member| self.port(*member));
            all.filter(|port| port.link.up)
        };
        let count = ports().count() as u64;
        let bandwidth = count * u64::from(ports().next()?.link.speed_mbps);
        let priorities = || ports().map(|port| u64::from(port.actor.port_priority)).sum();
        let (first, second) = match self.config.select {
            AdSelect::Stable | AdSelect::Bandwidth => (0, 0),
            AdSelect::Count => (0, count),
            AdSelect::ActorPortPriority => (priorities(), count),
        };
        Some((!aggregator.is_individual, aggregator.has_partner(), first, second, bandwidth))
    }

    pub(super) fn aggregator_of(&self, index: usize) -> Option<&Aggregator> {
        let id = self.ports[index].aggregator?;
        self.aggregators.iter().find(|aggregator| aggregator.id == id)
    }

    pub(super) fn is_in_active(&self, index: usize) -> bool {
        self.aggregator_of(index).is_some_and(|aggregator| aggregator.active)
    }

    /// Whether all ports of a port's aggregate have waited long enough for others.
    pub(super) fn is_aggregate_ready(&self, index: usize) -> bool {
        let id = self.ports[index].aggregator;
        id.is_some()
            && self.ports.iter().filter(|port| port.aggregator == id).all(|port| port.ready)
    }

    /// The aggregate in use; `None` while no member can be used.
    pub fn active(&self) -> Option<AggregatorState> {
        let aggregator = self.aggregators.iter().find(|aggregator| aggregator.active)?;
        let up = |member: &&u32| self.port(**member).is_some_and(|port| port.link.up);
        Some(AggregatorState {
            id: aggregator.id,
            ports: aggregator.ports.iter().filter(up).count(),
            actor_key: aggregator.key,
            partner_key: aggregator.partner_key,
            partner: aggregator.partner,
        })
    }

    /// Emits events for changes since the last call.
    pub(super) fn publish(&mut self) {
        let active = self.active();
        let id = active.map(|active| active.id);
        if id != self.told_aggregator {
            self.told_aggregator = id;
            self.events.push(Event::Aggregator(id));
        }
        for index in 0..self.ports.len() {
            let now = (self.collects_at(index), self.distributes_at(index));
            let port = &mut self.ports[index];
            if now != port.told {
                port.told = now;
                let (collecting, distributing) = now;
                self.events.push(Event::Member { member: port.member, collecting, distributing });
            }
        }
        let usable =
            if self.config.strict { self.usable().len() } else { active.map_or(0, |a| a.ports) };
        let carrier = usable >= usize::max(1, self.config.min_links as usize);
        if carrier != self.carrier {
            self.carrier = carrier;
            self.events.push(Event::Carrier(carrier));
        }
    }
}
