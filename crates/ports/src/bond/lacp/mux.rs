//! Mux machine: decides when a port may collect and distribute the bond's frames.
//!
//! IEEE 802.1AX-2020 section 6.4.15, coupled and independent control. `ad_mux_machine`

use super::Lacp;
use super::pdu::State;
use super::port::{Port, TICKS};
use super::state::Mux;

/// Ticks that a port waits for others, so that all ports of an aggregate start together.
const AGGREGATE_WAIT: u16 = 2 * TICKS;

impl Lacp {
    pub(super) fn tick_mux(&mut self, index: usize) {
        let is_active = self.is_in_active(index);
        let next = self.next_mux(index, is_active);
        let passes_without_partner =
            self.aggregator_of(index).is_some_and(|one| one.active && !one.has_partner());
        let port = &mut self.ports[index];
        if next != port.mux {
            port.enter_mux(next, is_active, passes_without_partner);
        }
        if is_active && port.link.up {
            let may_send = matches!(port.mux, Mux::Distributing | Mux::CollectingDistributing);
            port.collecting |= may_send || port.mux == Mux::Collecting;
            port.distributing |= may_send;
        }
    }

    fn next_mux(&mut self, index: usize, is_active: bool) -> Mux {
        let port = &mut self.ports[index];
        let partner_in_sync = port.partner.state.has(State::SYNCHRONISATION);
        let in_sync = partner_in_sync && port.actor.state.has(State::SYNCHRONISATION);
        let may_stay = port.selected && in_sync;
        let partner_collects = port.partner.state.has(State::COLLECTING);
        match port.mux {
            _ if port.begin => Mux::Detached,
            Mux::Detached if port.selected => Mux::Waiting,
            Mux::Waiting | Mux::Attached if !port.selected => Mux::Detached,
            Mux::Waiting => {
                port.mux_ticks = port.mux_ticks.saturating_sub(1);
                port.ready |= port.mux_ticks == 0;
                let is_over = port.mux_ticks == 0 && self.is_aggregate_ready(index);
                if is_over { Mux::Attached } else { Mux::Waiting }
            }
            Mux::Attached if partner_in_sync && self.hold_off_ticks == 0 && is_active => {
                if self.config.coupled { Mux::CollectingDistributing } else { Mux::Collecting }
            }
            Mux::Attached => {
                if is_active && !port.actor.state.has(State::SYNCHRONISATION) {
                    port.actor.state.set(State::SYNCHRONISATION, true);
                    port.need_transmit = true;
                }
                Mux::Attached
            }
            Mux::CollectingDistributing | Mux::Collecting if !may_stay => Mux::Attached,
            Mux::Collecting if partner_collects => Mux::Distributing,
            Mux::Distributing if !(may_stay && partner_collects) => Mux::Collecting,
            same => same,
        }
    }
}

impl Port {
    fn enter_mux(&mut self, state: Mux, is_active: bool, passes_without_partner: bool) {
        self.mux = state;
        let (collecting, distributing) = match state {
            Mux::Detached | Mux::Waiting | Mux::Attached => (false, false),
            Mux::Collecting => (true, false),
            Mux::Distributing | Mux::CollectingDistributing => (true, true),
        };
        if state == Mux::Waiting {
            self.mux_ticks = AGGREGATE_WAIT;
            return;
        }
        let in_sync = collecting || state == Mux::Attached && is_active;
        self.actor.state.set(State::SYNCHRONISATION, in_sync);
        self.actor.state.set(State::COLLECTING, collecting);
        self.actor.state.set(State::DISTRIBUTING, distributing);
        self.ready &= state != Mux::Detached;
        self.need_transmit |= state != Mux::Distributing;
        if !passes_without_partner {
            self.collecting &= collecting;
            self.distributing &= distributing;
        }
    }
}
