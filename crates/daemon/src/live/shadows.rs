//! Shadow interfaces: host interfaces that represent ports, and are their uppers.

use std::collections::BTreeMap;

use towpath_ports::shadow::{Options, Shadow};

use super::Live;
use super::parts::LiveShadow;
use super::report::Report;
use crate::model::failure::FailureCode;
use crate::model::state::State;

impl Live {
    /// Creates wanted shadows and removes the others. A port whose shadow cannot be created works
    /// without it.
    pub(super) fn set_shadows(&mut self, wanted: &State, report: &mut Report) {
        let ports = wanted.ports_by_name();
        let name = |port: &str| ports.get(port).and_then(|port| port.shadow());
        let stale = self
            .shadows
            .iter()
            .filter(|(port, live)| name(port) != Some(&live.name) || self.has_lost_shadow(live));
        let stale: Vec<String> = stale.map(|(port, _)| port.clone()).collect();
        stale.iter().for_each(|port| self.remove_shadow(port, report));
        for port in &wanted.ports {
            let Some(name) = port.shadow().filter(|_| !self.shadows.contains_key(&port.name))
            else {
                continue;
            };
            let Some(live) = self.ports.get(&port.name) else { continue };
            let options = Options { name: Some(name.to_owned()), ..Options::default() };
            match Shadow::add(&self.engine, live.id, &options) {
                Ok(shadow) => {
                    let shadow = LiveShadow { name: name.to_owned(), shadow };
                    self.shadows.insert(port.name.clone(), shadow);
                    report.change(format!("port {}: {name} is its shadow", port.name));
                }
                Err(error) => report.fail(
                    FailureCode::PortShadow,
                    format!("port {}", port.name),
                    chain(&error),
                ),
            }
        }
        self.note_ifindexes();
    }

    /// The host's interfaces that represent ports: names by ifindex.
    pub(super) fn shadow_interfaces(&self) -> BTreeMap<u32, String> {
        let interface = |(port, live): (&String, &LiveShadow)| {
            Some((self.ports.get(port)?.ifindex, live.name.clone()))
        };
        self.shadows.iter().filter_map(interface).collect()
    }

    /// Whether the interface was deleted by another process.
    pub(super) fn has_lost_shadow(&self, live: &LiveShadow) -> bool {
        live.shadow.tap().is_some_and(|tap| self.has_failed(tap))
    }

    /// Removes a port's shadow; called before the port itself is removed.
    pub(super) fn remove_shadow(&mut self, port: &str, report: &mut Report) {
        let Some(live) = self.shadows.remove(port) else { return };
        if let Some(port) = self.ports.get(port) {
            // AF_XDP sockets are on the interface that goes.
            self.xsk.forget_port(port.ifindex);
        }
        match live.shadow.remove(&self.engine) {
            Ok(()) => report.change(format!("port {port}: without its shadow {}", live.name)),
            Err(error) => report.fail(
                FailureCode::PortShadow,
                format!("port {port}: its shadow"),
                error.to_string(),
            ),
        }
    }

    /// Sets shadows up or down like their ports, with the same MTU.
    pub(super) fn follow_ports(&self, report: &mut Report) {
        for (port, live) in &self.shadows {
            if let Err(error) = live.shadow.follow(&self.engine) {
                report.fail(
                    FailureCode::PortShadow,
                    format!("port {port}: its shadow"),
                    chain(&error),
                );
            }
        }
    }

    /// Takes over the ifindexes of ports. AF_XDP sockets on an interface that no longer represents
    /// its port end: no frame would reach them.
    fn note_ifindexes(&mut self) {
        for port in self.ports.values_mut() {
            let now = self.engine.port(port.id).map_or(port.ifindex, |slot| slot.ifindex);
            let before = std::mem::replace(&mut port.ifindex, now);
            if before != now {
                self.xsk.forget_port(before);
            }
        }
        self.tell_ifindexes();
    }
}

/// Formats an error with its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
