//! Port kinds as configuration knows them: their options, and the functions that open devices.

mod afxdp;
pub(crate) mod bond;
mod generator;
pub(crate) mod ipsec;
mod kind;
mod mac;
mod packet;
mod pair;
mod pcap;
mod sink;
mod tap;
mod vhost_user;

use serde_json::{Map, Value as Json};
use towpath_bpf::suggest;
use towpath_document::Problem;
use towpath_document::typed;

use crate::model::layers;
use crate::model::state::PortState;
pub use kind::{Kind, Opened, OptionDoc, Reopening};

/// The host interface that a port is on: its network namespace and its name.
pub(crate) fn interface(port: &PortState) -> Option<(Option<&str>, &str)> {
    let reopening = find(&port.kind).map_or(Reopening::Never, |kind| kind.reopening);
    let text = |key: &str| port.options.get(key).and_then(Json::as_str);
    let named = || (text("netns"), text("interface").unwrap_or(&port.name));
    (reopening != Reopening::Never).then(named)
}

/// All port kinds.
pub static KINDS: &[&Kind] = &[
    &afxdp::KIND,
    &bond::KIND,
    &generator::KIND,
    &ipsec::KIND,
    &packet::KIND,
    &pair::KIND,
    &pcap::KIND,
    &sink::KIND,
    &tap::KIND,
    &vhost_user::KIND,
];

/// Finds a kind by its name.
///
/// # Errors
///
/// Fails if there is no such kind; the message suggests a similar one.
pub fn find(name: &str) -> Result<&'static Kind, Problem> {
    let found = KINDS.iter().find(|kind| kind.name == name);
    found.copied().ok_or_else(|| {
        let hint = suggest::among(name, KINDS.iter().map(|kind| kind.name));
        Problem::new("kind", format!("no port kind \"{name}\"{hint}"))
    })
}

/// The name of the port's peer, if its kind has peers.
pub fn peer(port: &PortState) -> Option<&str> {
    find(&port.kind).ok().filter(|kind| kind.has_peer)?;
    port.options.get("peer")?.as_str()
}

/// The name of the port at which frames arrive that are sent by this one: its peer, or the port
/// itself; `None` if they leave the daemon or end.
pub(crate) fn arrival(port: &PortState) -> Option<&str> {
    let returns = port.kind == ipsec::NAME;
    peer(port).or_else(|| returns.then_some(&*port.name))
}

/// Parses a port as users write it: one table with the keys of all ports and those of its kind.
///
/// # Errors
///
/// Fails with the first invalid key or value, by its path in the table.
pub fn port_from_table(mut table: Map<String, Json>) -> Result<PortState, Problem> {
    let Some(Json::String(name)) = table.get("kind") else {
        let message = "a port needs a kind, e.g. kind = \"pair\"";
        return Err(Problem::new("kind", message));
    };
    let kind = find(name)?;
    let keys: Vec<String> = table.keys().cloned().collect();
    let mut options = Map::new();
    for key in keys {
        if COMMON_KEYS.contains(&key.as_str()) {
            continue;
        }
        if !kind.options.iter().any(|option| option.key == key) {
            let known = kind.options.iter().map(|option| option.key).chain(COMMON_KEYS);
            let hint = suggest::among(&key, known);
            let message = format!("a port of kind \"{}\" has no such key{hint}", kind.name);
            return Err(Problem::new(key, message));
        }
        if let Some(value) = table.remove(&key) {
            options.insert(key, value);
        }
    }
    let mut port: PortState = typed(Json::Object(table))?;
    port.options = options;
    (kind.check)(&port)?;
    layers::check(&port)?;
    Ok(port)
}

/// Checks a port that was received as data.
///
/// # Errors
///
/// Fails with the first problem, by its path in the port.
pub fn check(port: &PortState) -> Result<(), Problem> {
    let kind = find(&port.kind)?;
    (kind.check)(port).map_err(|problem| problem.inside("options"))?;
    layers::check(port)
}

/// The keys that ports of every kind have.
pub const COMMON_KEYS: [&str; 18] = [
    "name",
    "kind",
    "upper",
    "up",
    "mtu",
    "linearize",
    "ifindex",
    "workers",
    "spread",
    "fault",
    "limit",
    "rx_hash",
    "rx_vlan",
    "timestamp",
    "record",
    "shadow",
    "trace",
    "offload",
];
