//! Ports and bridges: closing, opening, and setting what can be set while frames flow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use towpath_engine::port::Device;
use towpath_engine::{Config, Error, PortId, PortOptions, UpperName};

use super::{Live, LiveLink, LivePort, Report};
use crate::kinds;
use crate::layers;
use crate::state::{BridgeState, PortState, State};

impl Live {
    /// Takes away what is not wanted any more, or must be opened anew. A port goes with its peer.
    pub(super) fn close_ports(&mut self, wanted: &State, report: &mut Report) {
        let goes = |name: &str, port: &LivePort| {
            wanted.port(name).is_none_or(|wanted| !is_same_device(&port.state, wanted))
        };
        let mut gone: BTreeSet<String> = BTreeSet::new();
        for (name, port) in &self.ports {
            if goes(name, port) {
                gone.insert(name.clone());
                gone.extend(kinds::peer(&port.state).map(str::to_owned));
            }
        }
        gone.retain(|name| self.ports.contains_key(name));
        let bridges: Vec<String> = self
            .bridges
            .keys()
            .filter(|name| wanted.bridges.iter().all(|bridge| bridge.name != **name))
            .cloned()
            .collect();
        if gone.is_empty() && bridges.is_empty() {
            return;
        }
        gone.iter().for_each(|name| self.remove_shadow(name, report));
        let ids: Vec<PortId> = gone.iter().map(|name| self.ports[name].id).collect();
        let removed = self.engine.change(|config| {
            let all: Vec<PortId> = config.ports().collect();
            for id in all {
                let UpperName::Named(upper) = config.upper(id)? else { continue };
                if ids.contains(&id) || gone.contains(upper) || bridges.contains(upper) {
                    config.set_upper(id, UpperName::None)?;
                }
            }
            ids.iter().try_for_each(|&id| config.remove_port(id))?;
            bridges.iter().try_for_each(|name| config.remove_bridge(name))
        });
        if let Err(error) = removed {
            report.fail("removing ports", error.to_string());
            return;
        }
        for name in gone {
            self.bonds.remove(&name);
            if let Some(port) = self.ports.remove(&name) {
                self.xsk.forget_port(port.ifindex);
                self.registry.device_removed(port.ifindex);
            }
            let goes = |link: &mut LiveLink| link.attach.port == name;
            self.links.extract_if(.., goes).for_each(|link| link.object.detach());
            report.change(format!("port {name}: removed"));
        }
        for name in bridges {
            self.bridges.remove(&name);
            report.change(format!("bridge {name}: removed"));
        }
        self.tell_ifindexes();
    }

    /// Makes bridges, and anew those whose ageing changed: their ports stay where they are.
    pub(super) fn make_bridges(&mut self, wanted: &State, report: &mut Report) {
        for bridge in &wanted.bridges {
            let is_there = self.bridges.get(&bridge.name);
            if is_there == Some(bridge) {
                continue;
            }
            let is_new = is_there.is_none();
            match self.engine.change(|config| make_bridge(config, bridge, is_new)) {
                Ok(()) => {
                    self.bridges.insert(bridge.name.clone(), bridge.clone());
                    let what = if is_new { "added" } else { "changed" };
                    report.change(format!("bridge {}: {what}", bridge.name));
                }
                Err(error) => report.fail(format!("bridge {}", bridge.name), error.to_string()),
            }
        }
    }

    /// Opens what is wanted and not there. New ports are down until they have their programs.
    pub(super) fn open_ports(&mut self, wanted: &State, report: &mut Report) {
        for port in &wanted.ports {
            if self.ports.contains_key(&port.name) {
                continue;
            }
            let peer = kinds::peer(port).and_then(|peer| wanted.port(peer));
            let both: Vec<&PortState> = std::iter::once(port).chain(peer).collect();
            // A pair is opened, or reported, once: with the first of the two.
            if peer.is_some_and(|peer| {
                let place = |name: &str| wanted.ports.iter().position(|it| it.name == name);
                place(&peer.name) < place(&port.name)
            }) {
                continue;
            }
            match self.open_together(&both) {
                Ok(()) => {
                    let names = both.iter().map(|port| port.name.as_str());
                    let names = names.collect::<Vec<_>>().join(" and ");
                    report.change(format!("port {names}: added, kind {}", port.kind));
                }
                Err(why) => report.fail(format!("port {}", port.name), why),
            }
        }
        self.tell_ifindexes();
    }

    fn open_together(&mut self, ports: &[&PortState]) -> Result<(), String> {
        if let Some(wanted) = kinds::bond::wanted(ports[0]) {
            let wanted = wanted.map_err(|problem| problem.to_string())?;
            return self.make_bond(ports[0], &wanted);
        }
        let kind = kinds::find(&ports[0].kind).map_err(|problem| problem.to_string())?;
        let devices = (kind.open)(ports)?;
        let mut opened: Vec<PortId> = Vec::new();
        for (port, device) in ports.iter().zip(devices) {
            let wrapped = layers::wrap(port, device);
            match wrapped.and_then(|device| self.open(port, device).map_err(|e| e.to_string())) {
                Ok(id) => opened.push(id),
                Err(error) => {
                    for id in opened {
                        // It has no upper and is nobody's.
                        let _removed = self.engine.remove_port(id);
                    }
                    ports.iter().for_each(|port| {
                        self.ports.remove(&port.name);
                    });
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, port: &PortState, device: Box<dyn Device>) -> Result<PortId, Error> {
        let id = self.engine.add_port(port_options(port), device)?;
        self.note_opened(port, id);
        Ok(id)
    }

    pub(super) fn note_opened(&mut self, port: &PortState, id: PortId) {
        let ifindex = self.engine.read(|_, snapshot| snapshot.port(id).map(|slot| slot.ifindex));
        // What is set later is not yet as it is wanted.
        let state = PortState { up: false, upper: None, ..port.clone() };
        let live = LivePort { state, id, ifindex: ifindex.unwrap_or_default() };
        self.ports.insert(port.name.clone(), live);
    }

    /// Uppers, MTU, linearization, up and down: all at once, and only if something differs.
    pub(super) fn set_ports(
        &mut self,
        wanted: &State,
        incomplete: &BTreeMap<String, String>,
        report: &mut Report,
    ) {
        let mut changed: Vec<(String, PortState)> = Vec::new();
        for port in &wanted.ports {
            let Some(live) = self.ports.get(&port.name) else { continue };
            let mut next = port.clone();
            if let Some(upper) = &port.upper
                && !self.ports.contains_key(upper)
                && !self.bridges.contains_key(upper)
            {
                report.fail(format!("port {}", port.name), format!("its upper {upper} is missing"));
                next.upper = None;
            }
            if let Some(missing) = incomplete.get(&port.name)
                && port.up
                && !live.state.up
            {
                let why = format!("it stays down until it has its programs: {missing}");
                report.fail(format!("port {}", port.name), why);
                next.up = false;
            }
            if next != live.state {
                changed.push((port.name.clone(), next));
            }
        }
        if changed.is_empty() {
            return;
        }
        let live = &self.ports;
        let result = self.engine.change(|config| {
            changed.iter().try_for_each(|(name, next)| set_port(config, &live[name], next))
        });
        match result {
            Ok(()) => {
                for (name, next) in changed {
                    let Some(live) = self.ports.get_mut(&name) else { continue };
                    report.changes.extend(told(&live.state, &next));
                    live.state = next;
                }
            }
            Err(error) => report.fail("ports", error.to_string()),
        }
    }

    pub(super) fn tell_ifindexes(&self) {
        self.known.set_ifindexes(self.ports.values().map(|port| port.ifindex).collect());
    }
}

/// How a port is opened: down, until it has its programs.
pub(super) fn port_options(port: &PortState) -> PortOptions {
    PortOptions {
        name: port.name.clone(),
        ifindex: port.ifindex,
        mtu: port.mtu,
        linearize: port.linearize,
        workers: port.workers.clone(),
        up: false,
    }
}

/// Whether a change from one to the other needs no new device.
fn is_same_device(one: &PortState, other: &PortState) -> bool {
    let PortState {
        name: _,
        kind,
        upper: _,
        up: _,
        mtu: _,
        linearize: _,
        ifindex,
        workers,
        fault,
        limit,
        record,
        trace,
        shadow: _,
        options,
    } = one;
    *kind == other.kind
        && (fault, limit) == (&other.fault, &other.limit)
        && (record, trace) == (&other.record, &other.trace)
        && *ifindex == other.ifindex
        && *workers == other.workers
        && (*options == other.options || kinds::bond::is_same(one, other))
}

fn make_bridge(config: &mut Config, bridge: &BridgeState, is_new: bool) -> Result<(), Error> {
    let named = UpperName::Named(bridge.name.clone());
    let ids: Vec<PortId> = config.ports().collect();
    let mut below = Vec::new();
    if !is_new {
        for id in ids {
            if *config.upper(id)? == named {
                below.push(id);
                config.set_upper(id, UpperName::None)?;
            }
        }
        config.remove_bridge(&bridge.name)?;
    }
    config.add_bridge(&bridge.name, Duration::from_secs(bridge.ageing))?;
    below.into_iter().try_for_each(|id| config.set_upper(id, named.clone()))
}

fn set_port(config: &mut Config, live: &LivePort, next: &PortState) -> Result<(), Error> {
    if next.upper != live.state.upper {
        let upper = next.upper.clone().map_or(UpperName::None, UpperName::Named);
        config.set_upper(live.id, upper)?;
    }
    if next.mtu != live.state.mtu {
        config.set_mtu(live.id, next.mtu)?;
    }
    if next.linearize != live.state.linearize {
        config.set_linearize(live.id, next.linearize)?;
    }
    if next.up != live.state.up {
        config.set_up(live.id, next.up)?;
    }
    Ok(())
}

/// What a change of settings is, for the log.
fn told(before: &PortState, next: &PortState) -> Vec<String> {
    let name = &next.name;
    let mut lines = Vec::new();
    if before.upper != next.upper {
        let upper = next.upper.as_deref().unwrap_or("nothing");
        lines.push(format!("port {name}: upper is {upper}"));
    }
    if before.mtu != next.mtu {
        let mtu = next.mtu.map_or("the device's".to_owned(), |mtu| mtu.to_string());
        lines.push(format!("port {name}: mtu is {mtu}"));
    }
    if before.linearize != next.linearize {
        let on = if next.linearize { "on" } else { "off" };
        lines.push(format!("port {name}: linearize is {on}"));
    }
    if before.up != next.up {
        lines.push(format!("port {name}: {}", if next.up { "up" } else { "down" }));
    }
    lines
}
