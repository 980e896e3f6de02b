//! One member's port: its state, and the machines that concern it alone.
//!
//! IEEE 802.1AX-2020 section 6.4, in the kernel's form: time passes in ticks, and each machine
//! takes at most one step a tick.

use super::config::{Config, Link};
use super::pdu::{Lacpdu, PortInfo, State};
use super::state::{Churn, Mux, Periodic, Receive, Stats};

/// Ticks in a second.
pub(super) const TICKS: u16 = 10;

const FAST_PERIODIC: u16 = TICKS;
const SLOW_PERIODIC: u16 = 30 * TICKS;
const SHORT_TIMEOUT: u16 = 3 * TICKS;
const LONG_TIMEOUT: u16 = 90 * TICKS;
const CHURN_DETECTION: u16 = 60 * TICKS;
/// Ticks between two LACPDUs: at most three a second.
const SEND_EVERY: u16 = TICKS / 3;
const _: () = assert!(
    SHORT_TIMEOUT == 3 * FAST_PERIODIC && LONG_TIMEOUT == 3 * SLOW_PERIODIC,
    "three PDUs may be lost"
);
const _: () = assert!(SEND_EVERY > 0 && 3 * SEND_EVERY <= TICKS, "three PDUs a second");

#[derive(Debug, Clone)]
pub(super) struct Port {
    pub(super) member: u32,
    /// The member's own address, from which it sends.
    pub(super) address: [u8; 6],
    pub(super) link: Link,
    /// Information about this end.
    pub(super) actor: PortInfo,
    /// The partner's information, reported or assumed.
    pub(super) partner: PortInfo,
    /// Owner of the aggregator that the port is in.
    pub(super) aggregator: Option<u16>,

    /// All machines start again at the next tick.
    pub(super) begin: bool,
    /// Full duplex: the link can be aggregated at all.
    lacp_enabled: bool,
    /// The aggregator is the right one.
    pub(super) selected: bool,
    /// The port has waited long enough for others to join.
    pub(super) ready: bool,
    /// A LACPDU is to be sent: "need to transmit".
    pub(super) need_transmit: bool,
    churned: bool,

    pub(super) receive: Receive,
    receive_ticks: u16,
    pub(super) periodic: Periodic,
    periodic_ticks: u16,
    pub(super) mux: Mux,
    pub(super) mux_ticks: u16,
    send_ticks: u16,
    pub(super) actor_churn: ChurnDetector,
    pub(super) partner_churn: ChurnDetector,

    /// Frames that arrive here are the bond's.
    pub(super) collecting: bool,
    /// The bond's frames may leave here.
    pub(super) distributing: bool,
    /// `collecting` and `distributing` as in the last event.
    pub(super) told: (bool, bool),
    pub(super) stats: Stats,
}

/// The effect of a LACPDU.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It was recorded.
    Recorded,
    /// It was ignored: the link is down or half duplex.
    Ignored,
    /// It came from this system itself.
    Loopback,
}

impl Port {
    pub(super) fn new(member: u32, number: u16, priority: u16, address: [u8; 6]) -> Port {
        Port {
            member,
            address,
            link: Link::down(),
            actor: PortInfo { port: number, port_priority: priority, ..PortInfo::default() },
            partner: DEFAULT_PARTNER,
            aggregator: None,
            begin: true,
            lacp_enabled: true,
            selected: false,
            ready: false,
            need_transmit: false,
            churned: false,
            receive: Receive::PortDisabled,
            receive_ticks: 0,
            periodic: Periodic::None,
            periodic_ticks: 0,
            mux: Mux::Detached,
            mux_ticks: 0,
            send_ticks: SEND_EVERY,
            actor_churn: ChurnDetector::default(),
            partner_churn: ChurnDetector::default(),
            collecting: false,
            distributing: false,
            told: (false, false),
            stats: Stats::default(),
        }
    }

    /// Changes the settings; a different identity restarts all machines.
    pub(super) fn configure(&mut self, config: &Config) {
        let key = config.user_key << KEY_LINK_BITS | self.link.key();
        let identity = (config.system, config.system_priority, key);
        if identity != (self.actor.system, self.actor.system_priority, self.actor.key) {
            (self.actor.system, self.actor.system_priority, self.actor.key) = identity;
            self.begin = true;
        }
        let mut state = self.actor.state.with(State::AGGREGATION);
        state.set(State::ACTIVITY, config.active);
        state.set(State::SHORT_TIMEOUT, config.fast);
        self.need_transmit |= state != self.actor.state;
        self.actor.state = state;
    }

    /// Updates the link (`ad_update_actor_keys`).
    pub(super) fn set_link(&mut self, link: Link) {
        let key = self.actor.key >> KEY_LINK_BITS << KEY_LINK_BITS | link.key();
        // A key without speed and duplex does not count as a change: the key changes again when the
        // link is back.
        if key != self.actor.key {
            self.lacp_enabled = link.up && link.full_duplex;
            self.begin |= link.up;
        }
        self.actor.key = key;
        self.link = link;
    }

    pub(super) fn lacpdu(&self) -> Lacpdu {
        Lacpdu { actor: self.actor, partner: self.partner }
    }

    /// Receive machine (section 6.4.12) without a LACPDU.
    pub(super) fn tick_receive(&mut self) {
        if self.begin {
            self.lacp_enabled = self.link.full_duplex;
            self.selected = false;
            self.record_default();
            self.actor.state.set(State::EXPIRED, false);
            self.churned = true;
            self.enter_receive(Receive::PortDisabled);
        } else if !self.link.up {
            if self.receive != Receive::PortDisabled {
                self.enter_receive(Receive::PortDisabled);
            }
        } else if self.receive_ticks > 0 {
            self.receive_ticks -= 1;
            match (self.receive_ticks, self.receive) {
                (0, Receive::Expired) => self.enter_receive(Receive::Defaulted),
                (0, Receive::Current) => self.enter_receive(Receive::Expired),
                _ => {}
            }
        } else if self.receive == Receive::PortDisabled {
            let is_able = self.lacp_enabled;
            self.enter_receive(if is_able { Receive::Expired } else { Receive::LacpDisabled });
        }
    }

    fn enter_receive(&mut self, state: Receive) {
        self.receive = state;
        self.receive_ticks = 0;
        match state {
            Receive::PortDisabled => self.partner.state.set(State::SYNCHRONISATION, false),
            Receive::Expired => {
                self.partner.state.set(State::SYNCHRONISATION, false);
                self.partner.state.set(State::SHORT_TIMEOUT, true);
                self.receive_ticks = SHORT_TIMEOUT;
                self.actor.state.set(State::EXPIRED, true);
                self.churned = true;
            }
            Receive::Defaulted => {
                self.selected &= is_same_partner(&self.partner, &DEFAULT_PARTNER);
                self.record_default();
                self.actor.state.set(State::EXPIRED, false);
            }
            Receive::LacpDisabled => {
                self.selected = false;
                self.record_default();
                self.partner.state.set(State::AGGREGATION, false);
                self.actor.state.set(State::EXPIRED, false);
            }
            Receive::Current => {
                let is_short = self.actor.state.has(State::SHORT_TIMEOUT);
                self.receive_ticks = if is_short { SHORT_TIMEOUT } else { LONG_TIMEOUT };
                self.actor.state.set(State::EXPIRED, false);
            }
        }
    }

    fn record_default(&mut self) {
        self.partner = DEFAULT_PARTNER;
        self.actor.state.set(State::DEFAULTED, true);
    }

    /// Receive machine with a LACPDU.
    pub(super) fn hear(&mut self, pdu: &Lacpdu) -> Heard {
        let listens =
            matches!(self.receive, Receive::Expired | Receive::Defaulted | Receive::Current);
        if self.begin || !self.link.up || !listens {
            return Heard::Ignored;
        }
        if pdu.actor.system == self.actor.system {
            return Heard::Loopback;
        }
        self.churned |= self.receive != Receive::Current;
        self.selected &= is_same_partner(&pdu.actor, &self.partner);
        self.need_transmit |= !self.is_known_as(&pdu.partner, SEEN_BITS);
        self.record(pdu);
        self.enter_receive(Receive::Current);
        Heard::Recorded
    }

    fn record(&mut self, pdu: &Lacpdu) {
        let is_individual = !pdu.actor.state.has(State::AGGREGATION);
        let is_matched = is_individual || self.is_known_as(&pdu.partner, State::AGGREGATION);
        self.partner = pdu.actor;
        let in_sync = is_matched && pdu.actor.state.has(State::SYNCHRONISATION);
        self.partner.state.set(State::SYNCHRONISATION, in_sync);
        self.actor.state.set(State::DEFAULTED, false);
    }

    /// Whether the partner's view of this end is up to date.
    fn is_known_as(&self, view: &PortInfo, bits: State) -> bool {
        is_same_identity(view, &self.actor) && view.state.agrees(self.actor.state, bits)
    }

    /// Periodic transmission machine (section 6.4.13).
    pub(super) fn tick_periodic(&mut self) {
        let is_quiet =
            !self.actor.state.has(State::ACTIVITY) && !self.partner.state.has(State::ACTIVITY);
        let partner_is_short = self.partner.state.has(State::SHORT_TIMEOUT);
        if self.begin || !self.lacp_enabled || !self.link.up || is_quiet {
            self.enter_periodic(Periodic::None);
        } else if self.periodic_ticks > 0 {
            self.periodic_ticks -= 1;
            match self.periodic {
                _ if self.periodic_ticks == 0 => self.enter_periodic(Periodic::Transmit),
                Periodic::Fast if !partner_is_short => self.enter_periodic(Periodic::Slow),
                Periodic::Slow if partner_is_short => self.enter_periodic(Periodic::Transmit),
                _ => {}
            }
        } else {
            let slow = self.periodic == Periodic::Transmit && !partner_is_short;
            self.enter_periodic(if slow { Periodic::Slow } else { Periodic::Fast });
        }
    }

    fn enter_periodic(&mut self, state: Periodic) {
        self.periodic = state;
        // One tick passes in the state that transmits.
        self.periodic_ticks = match state {
            Periodic::None | Periodic::Transmit => 0,
            Periodic::Fast => FAST_PERIODIC - 1,
            Periodic::Slow => SLOW_PERIODIC - 1,
        };
        self.need_transmit |= state == Periodic::Transmit;
    }

    /// Transmit machine (section 6.4.16): whether a LACPDU is to be sent now.
    pub(super) fn tick_transmit(&mut self) -> bool {
        if self.periodic == Periodic::None {
            // A passive port without a partner to answer is silent.
            self.need_transmit = false;
        }
        self.send_ticks -= 1;
        if self.send_ticks > 0 {
            return false;
        }
        self.send_ticks = SEND_EVERY;
        std::mem::take(&mut self.need_transmit)
    }

    /// Churn detection machines (section 6.4.17).
    pub(super) fn tick_churn(&mut self) {
        if std::mem::take(&mut self.churned) {
            self.actor_churn.restart();
            self.partner_churn.restart();
            return;
        }
        self.actor_churn.tick(self.actor.state.has(State::SYNCHRONISATION));
        self.partner_churn.tick(self.partner.state.has(State::SYNCHRONISATION));
    }
}

/// Detects whether an end of the link fails to get into an aggregate.
#[derive(Debug, Clone, Default)]
pub(super) struct ChurnDetector {
    pub(super) state: Churn,
    ticks: u16,
    /// Number of failures.
    pub(super) count: u32,
}

impl ChurnDetector {
    fn restart(&mut self) {
        self.state = Churn::Monitoring;
        self.ticks = CHURN_DETECTION;
    }

    fn tick(&mut self, in_sync: bool) {
        if self.ticks == 0 {
            return;
        }
        self.ticks -= 1;
        if self.ticks == 0 {
            self.state = if in_sync { Churn::None } else { Churn::Churned };
            self.count += u32::from(!in_sync);
        }
    }
}

/// Whether the fields that identify a port and its aggregate are equal.
fn is_same_identity(one: &PortInfo, other: &PortInfo) -> bool {
    let nameless = |info: &PortInfo| PortInfo { state: State::default(), ..*info };
    nameless(one) == nameless(other)
}

fn is_same_partner(one: &PortInfo, other: &PortInfo) -> bool {
    is_same_identity(one, other) && one.state.agrees(other.state, State::AGGREGATION)
}

/// Bits of this end's state that the partner must know.
const SEEN_BITS: State = State(
    State::ACTIVITY.0 | State::SHORT_TIMEOUT.0 | State::SYNCHRONISATION.0 | State::AGGREGATION.0,
);

/// Assumptions about a silent partner.
const DEFAULT_PARTNER: PortInfo = PortInfo {
    system_priority: 0xffff,
    system: [0; 6],
    key: 1,
    port_priority: 0xff,
    port: 1,
    state: State(0),
};

/// Number of key bits below the user's part.
const KEY_LINK_BITS: u32 = 6;
