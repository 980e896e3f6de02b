//! Metrics of the current state: build information, ports that are up, levels of maps.

use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;
use towpath_engine::Port;
use towpath_objects::MapObject;

use super::encode::{Encoded, family};
use crate::control::Inner;

/// Encodes build information as labels of a metric that is always 1.
pub(super) fn build(encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("arch", std::env::consts::ARCH)];
    let help = "The version that runs, and what it was built for";
    family(encoder, "build_info", help, [(labels, ConstGauge::new(1_i64))])
}

/// Ports: name, whether the port is up, and whether it has a link.
#[derive(Debug)]
pub(super) struct PortStates(Vec<(String, bool, bool)>);

impl PortStates {
    pub(super) fn of(inner: &Inner) -> PortStates {
        let mut states = inner.live.engine.read(|_, snapshot| {
            let slots = snapshot.ports.iter().flatten();
            let state = |slot: &Arc<Port>| {
                let link = slot.up && slot.opened.device.link();
                (slot.name.to_string(), slot.up, link)
            };
            slots.map(state).collect::<Vec<_>>()
        });
        // Wanted ports that could not be opened count as down.
        let is_there = |name: &str| inner.live.ports.contains_key(name);
        let never = inner.wanted.state().ports.iter().filter(|port| !is_there(&port.name));
        states.extend(never.map(|port| (port.name.clone(), false, false)));
        PortStates(states)
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let of = |read: fn(&(String, bool, bool)) -> bool| {
            let gauge = move |port: &(String, bool, bool)| {
                ([("port", port.0.clone())], ConstGauge::new(i64::from(read(port))))
            };
            self.0.iter().map(gauge)
        };
        family(encoder, "port_up", "The port is set up (IFF_UP)", of(|it| it.1))?;
        family(encoder, "port_link", "Frames can arrive and leave", of(|it| it.2))
    }
}

/// The level of a map.
#[derive(Debug)]
pub(super) struct Fill {
    name: String,
    id: u32,
    entries: u64,
    max_entries: u32,
}

/// Levels of maps that count their elements. Arrays are left out, since they are always full.
pub(super) fn fills(inner: &Inner) -> Vec<Fill> {
    let fill = |object: &Arc<MapObject>| {
        let entries = object.map().count()?;
        let def = object.map().def();
        let is_array = def.kind.name().ends_with("array");
        (!is_array).then(|| Fill {
            name: object.name().to_string(),
            id: object.id(),
            entries,
            max_entries: def.max_entries,
        })
    };
    inner.session().maps().iter().filter_map(fill).collect()
}

pub(super) fn encode_fills(fills: &[Fill], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let of = |read: fn(&Fill) -> u64| {
        let gauge = move |it: &Fill| {
            let labels = [("map", it.name.clone()), ("id", it.id.to_string())];
            (labels, ConstGauge::new(read(it) as i64))
        };
        fills.iter().map(gauge)
    };
    family(encoder, "maps_entries", "Elements in a map", of(|it| it.entries))?;
    let help = "Elements that a map has room for";
    family(encoder, "maps_max_entries", help, of(|it| it.max_entries.into()))
}
