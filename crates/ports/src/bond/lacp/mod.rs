//! LACP: negotiation of which members of a bond form one logical link with a partner.
//!
//! It does no I/O: time and frames are inputs, frames and decisions are outputs. The machines are
//! those of IEEE 802.1AX-2020 section 6.4, in the form of the kernel's bonding driver, so that both
//! do the same at the same time: a tick is 100 ms, and each machine takes one step per tick.
//!
//! ```
//! use std::time::Duration;
//! use towpath_ports::bond::lacp::{Config, Lacp, Link};
//!
//! let mut lacp = Lacp::new(Config::new([2, 0, 0, 0, 0, 1]));
//! lacp.add(0, [2, 0, 0, 0, 0, 0x10], 255, Link::up(10_000));
//! lacp.tick(Duration::ZERO);
//! // Without a partner a member passes traffic all the same.
//! assert_eq!(lacp.usable(), [0]);
//! ```
//!
//! It is stricter than the kernel in two points: a passive port with a passive partner sends
//! nothing (section 6.4.16), and ports of an aggregate that is no longer in use tell their partner
//! so.

mod aggregator;
mod config;
mod mux;
pub mod pdu;
mod port;
mod state;
#[cfg(test)]
mod tests;

pub use config::{AdSelect, Config, Link, NoSuchSelect};
pub use state::{AggregatorState, Churn, Event, MemberState, Mux, Periodic, Receive, Stats};

use std::time::Duration;

use aggregator::Aggregator;
use pdu::{FRAME_BYTES, Pdu, State};
use port::{Heard, Port};

/// Time between two steps of the machines.
pub const TICK: Duration = Duration::from_millis(100);

/// A frame to be sent from a member's own port, whatever the member's state.
pub type Outgoing = (u32, [u8; FRAME_BYTES]);

/// LACP of one bond.
#[derive(Debug)]
pub struct Lacp {
    config: Config,
    /// Ports, in the order in which members joined.
    ports: Vec<Port>,
    /// Aggregators, one for each port.
    aggregators: Vec<Aggregator>,
    aggregator_id_last: u16,
    /// Ticks before any port is used, because links come up one after the other.
    hold_off_ticks: u16,
    next_tick: Option<Duration>,
    carrier: bool,
    told_aggregator: Option<u16>,
    frames: Vec<Outgoing>,
    events: Vec<Event>,
}

impl Lacp {
    /// A bond without members, just opened.
    pub fn new(config: Config) -> Lacp {
        Lacp {
            config,
            ports: Vec::new(),
            aggregators: Vec::new(),
            aggregator_id_last: 0,
            hold_off_ticks: 1,
            next_tick: None,
            carrier: false,
            told_aggregator: None,
            frames: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Changes the settings. A different system or key restarts all members.
    pub fn configure(&mut self, config: Config) {
        self.config = config;
        for port in &mut self.ports {
            port.configure(&self.config);
        }
        self.select_active();
        self.publish();
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds a member, at the end of the order; a known member is restarted.
    ///
    /// `member` is the caller's number. `address` is the member's own MAC address, from which its
    /// LACPDUs come; `priority` is `ad_actor_port_prio`, 255 in the kernel.
    pub fn add(&mut self, member: u32, address: [u8; 6], priority: u16, link: Link) {
        self.remove(member);
        let number = self.ports.last().map_or(1, |port| port.actor.port.wrapping_add(1));
        let mut port = Port::new(member, number, priority, address);
        port.set_link(link);
        port.configure(&self.config);
        self.ports.push(port);
        self.aggregator_id_last = self.aggregator_id_last.wrapping_add(1);
        self.aggregators.push(Aggregator::new(self.aggregator_id_last, member));
    }

    /// Removes a member; its partner is told.
    pub fn remove(&mut self, member: u32) {
        let Some(index) = self.index(member) else { return };
        self.leave(index);
        let mut port = self.ports.remove(index);
        // All of these bits are cleared, or the partner would go on sending here while the link is
        // up.
        port.actor.state.set(USABLE_BITS, false);
        self.frames.push((member, pdu::build(port.address, &port.lacpdu())));
        self.remove_aggregator(member);
        self.publish();
    }

    /// Updates a member's link: up or down, speed, duplex.
    pub fn link(&mut self, member: u32, link: Link) {
        let Some(index) = self.index(member) else { return };
        let port = &mut self.ports[index];
        if port.link == link {
            return;
        }
        port.set_link(link);
        if !link.up {
            (port.collecting, port.distributing) = (false, false);
        }
        self.select_active();
        self.publish();
    }

    /// Processes a frame that arrived at a member, from its Ethernet header on.
    ///
    /// Returns whether it was a frame of LACP, which no other receiver may get.
    pub fn receive(&mut self, member: u32, frame: &[u8]) -> bool {
        let Some(pdu) = pdu::parse(frame) else { return false };
        let Some(index) = self.index(member) else { return false };
        let port = &mut self.ports[index];
        match pdu {
            Pdu::Lacp(lacpdu) => {
                port.stats.lacpdu_rx += 1;
                if port.hear(&lacpdu) == Heard::Loopback {
                    port.stats.loopback_rx += 1;
                    self.events.push(Event::Loopback { member });
                }
            }
            Pdu::Marker(marker) => {
                port.stats.marker_rx += 1;
                port.stats.marker_response_tx += 1;
                self.frames.push((member, pdu::build_marker_response(port.address, marker)));
            }
            Pdu::MarkerResponse => port.stats.marker_response_rx += 1,
            Pdu::MarkerUnknown => port.stats.marker_unknown_rx += 1,
        }
        true
    }

    /// Advances the time; to be called when [`Lacp::next_tick`] has come, or more often.
    ///
    /// `now` counts from any fixed moment, and never decreases. A late call does up to a second's
    /// steps at once; time beyond that is ignored, so that a process that was suspended does not
    /// give up its partners.
    pub fn tick(&mut self, now: Duration) {
        let mut next = self.next_tick.unwrap_or(now);
        for _ in 0..CATCH_UP_TICKS {
            if now < next {
                break;
            }
            self.step();
            next += TICK;
        }
        self.next_tick = Some(if now < next { next } else { now + TICK });
    }

    /// Time of the machines' next step; `None` before the first one.
    pub fn next_tick(&self) -> Option<Duration> {
        self.next_tick
    }

    fn step(&mut self) {
        if self.ports.is_empty() {
            return;
        }
        if self.hold_off_ticks > 0 {
            self.hold_off_ticks -= 1;
            if self.hold_off_ticks == 0 {
                self.select_active();
            }
        }
        for index in 0..self.ports.len() {
            self.ports[index].tick_receive();
            self.ports[index].tick_periodic();
            self.select_aggregator(index);
            self.tick_mux(index);
            let port = &mut self.ports[index];
            if port.tick_transmit() {
                port.stats.lacpdu_tx += 1;
                self.frames.push((port.member, pdu::build(port.address, &port.lacpdu())));
            }
            port.tick_churn();
            port.begin = false;
        }
        self.publish();
    }

    /// Frames to send, in order, since the last call.
    pub fn take_frames(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.frames)
    }

    /// Changes since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Members that the bond's frames may leave by, in the order in which they joined:
    /// `usable_slaves`.
    pub fn usable(&self) -> Vec<u32> {
        let usable = (0..self.ports.len()).filter(|index| self.distributes_at(*index));
        usable.map(|index| self.ports[index].member).collect()
    }

    /// Whether frames that arrive at a member are the bond's.
    pub fn collects(&self, member: u32) -> bool {
        self.index(member).is_some_and(|index| self.collects_at(index))
    }

    /// Whether the bond as a whole is up.
    pub fn carrier(&self) -> bool {
        self.carrier
    }

    /// All members as they are now, in the order in which they joined.
    pub fn members(&self) -> impl Iterator<Item = MemberState> + '_ {
        self.ports.iter().enumerate().map(|(index, port)| MemberState {
            member: port.member,
            aggregator: port.aggregator,
            actor: port.actor,
            partner: port.partner,
            receive: port.receive,
            periodic: port.periodic,
            mux: port.mux,
            actor_churn: port.actor_churn.state,
            actor_churned: port.actor_churn.count,
            partner_churn: port.partner_churn.state,
            partner_churned: port.partner_churn.count,
            collecting: self.collects_at(index),
            distributing: self.distributes_at(index),
            stats: port.stats,
        })
    }

    fn collects_at(&self, index: usize) -> bool {
        let port = &self.ports[index];
        port.collecting && port.link.up && self.is_in_active(index)
    }

    fn distributes_at(&self, index: usize) -> bool {
        let port = &self.ports[index];
        port.distributing && port.link.up && self.is_in_active(index)
    }

    fn index(&self, member: u32) -> Option<usize> {
        self.ports.iter().position(|port| port.member == member)
    }

    fn port(&self, member: u32) -> Option<&Port> {
        self.ports.iter().find(|port| port.member == member)
    }
}

/// State bits without which a partner does not use a member.
const USABLE_BITS: State = State(
    State::AGGREGATION.0 | State::SYNCHRONISATION.0 | State::COLLECTING.0 | State::DISTRIBUTING.0,
);

/// Most steps made up for by a late call: one second.
const CATCH_UP_TICKS: u32 = 10;
const _: () =
    assert!(TICK.as_millis() * port::TICKS as u128 == 1000, "ticks are parts of a second");
const _: () =
    assert!(CATCH_UP_TICKS < 3 * port::TICKS as u32, "a late worker times no partner out");
