//! Reconciliation of the guests of ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_guest::{Channel, Guest};

use super::Live;
use super::edge::{LiveGuest, PortEdge};
use super::report::Report;
use crate::model::failure::FailureCode;
use crate::model::offload::OffloadState;
use crate::model::state::State;

impl Live {
    /// Opens and closes guest channels as wanted. A guest's objects stay as long as its port.
    pub(super) fn set_guests(&mut self, wanted: &State, report: &mut Report) {
        let wanted_ports = wanted.ports_by_name();
        let state_of = |name: &str| wanted_ports.get(name).and_then(|port| port.offload.as_ref());
        let ports = &self.ports;
        let is_there = |name: &str, guest: &LiveGuest| {
            ports.get(name).is_some_and(|port| port.kind == guest.kind)
        };
        let stays =
            |name: &String, guest: &LiveGuest| state_of(name).is_some() && is_there(name, guest);
        let gone = self.guests.extract_if(.., |name, guest| !stays(name, guest));
        for (name, mut guest) in gone.collect::<Vec<_>>() {
            guest.channel = None;
            guest.guest.reset("offload is not offered any more");
            report.change(format!("port {name}: offers its guest nothing any more"));
        }
        for port in &wanted.ports {
            let (Some(state), Some(live)) = (&port.offload, self.ports.get(&port.name)) else {
                continue;
            };
            if self.guests.get(&port.name).is_some_and(|guest| guest.is_as(state)) {
                continue;
            }
            let kind = live.kind.clone();
            match self.set_guest(&port.name, &kind, state) {
                Ok(()) => report.change(format!("port {}: offers its guest offload", port.name)),
                Err(why) => report.fail(
                    FailureCode::PortOffload,
                    format!("port {}: offload", port.name),
                    why,
                ),
            }
        }
    }

    fn set_guest(&mut self, name: &str, kind: &str, state: &OffloadState) -> Result<(), String> {
        let limits = state.limits().map_err(|problem| problem.to_string())?;
        let endpoint = state.endpoint().map_err(|problem| problem.to_string())?;
        let guest = self.guests.entry(name.to_owned()).or_insert_with(|| {
            let edge = Arc::new(PortEdge::new(name, &self.engine, &self.news));
            let workers = self.engine.workers();
            let guest = Guest::new(name, workers, limits.clone(), Arc::clone(&edge) as _);
            LiveGuest {
                state: OffloadState::default(),
                kind: kind.to_owned(),
                guest: Arc::new(guest),
                edge,
                channel: None,
            }
        });
        guest.guest.set_limits(limits);
        guest.edge.set_targets(state).map_err(|error| error.to_string())?;
        let is_same = guest.state.endpoint().is_ok_and(|before| before == endpoint);
        if guest.channel.is_none() || !is_same {
            // The old channel may occupy the same socket.
            guest.channel = None;
            let channel = Channel::start(&guest.guest, &endpoint);
            guest.channel = Some(channel.map_err(|error| format!("its channel: {error}"))?);
        }
        guest.state = state.clone();
        Ok(())
    }

    /// Guests by the names of their ports.
    pub(super) fn seen_guests(&self) -> BTreeMap<String, Arc<Guest>> {
        let guests = self.guests.iter();
        guests.map(|(name, live)| (name.clone(), Arc::clone(&live.guest))).collect()
    }
}
