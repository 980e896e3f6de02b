//! Port kinds as configuration knows them: their options, and how a device is made of them.

mod afxdp;
pub(crate) mod bond;
mod generator;
mod mac;
mod packet;
mod pair;
mod pcap;
mod sink;
mod tap;
mod vhost_user;

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use towpath_bpf::suggest;
use towpath_document::Problem;
use towpath_document::typed;
use towpath_engine::port::Device;

use crate::layers;
use crate::state::PortState;

/// A kind of port.
#[derive(Debug)]
pub struct Kind {
    /// Its name in configuration.
    pub name: &'static str,
    /// What it is, in a few words.
    pub summary: &'static str,
    /// The keys it has beside those that all ports have.
    pub options: &'static [OptionDoc],
    /// Finds what is wrong with options.
    pub check: fn(&PortState) -> Result<(), Problem>,
    /// Opens devices: one for a port alone, two for a port and its peer. What the kernel has not
    /// let go of yet is waited for, for at most so long.
    pub open: fn(&[&PortState], patience: Duration) -> Opened,
    /// Whether ports come in twos, and an option `peer` names the other.
    pub has_peer: bool,
    /// What becomes of a device that is of no more use.
    pub comeback: Comeback,
    /// Whether an interface can be opened again before an old device on it is closed.
    pub is_shared: bool,
    /// Whether the kernel gets all frames' memory, and so needs all of its pages at once.
    pub pins_frames: bool,
}

impl Kind {
    /// A kind whose ports are alone, and whose devices don't go by themselves.
    const fn new(
        name: &'static str,
        summary: &'static str,
        options: &'static [OptionDoc],
        check: fn(&PortState) -> Result<(), Problem>,
        open: fn(&[&PortState], patience: Duration) -> Opened,
    ) -> Kind {
        Kind {
            name,
            summary,
            options,
            check,
            open,
            has_peer: false,
            comeback: Comeback::Never,
            is_shared: false,
            pins_frames: false,
        }
    }
}

/// How a port works again by itself whose device is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comeback {
    /// Devices of this kind don't go.
    Never,
    /// Its interface has come back under its name.
    WithInterface,
    /// Its interface is made anew.
    AtOnce,
}

/// The interface that a port is on: its network namespace and its name.
pub(crate) fn interface(port: &PortState) -> Option<(Option<&str>, &str)> {
    let comeback = find(&port.kind).map_or(Comeback::Never, |kind| kind.comeback);
    let text = |key: &str| port.options.get(key).and_then(Json::as_str);
    let named = || (text("netns"), text("interface").unwrap_or(&port.name));
    (comeback != Comeback::Never).then(named)
}

/// Devices in the order of their ports, or why there are none.
pub type Opened = Result<Vec<Box<dyn Device>>, String>;

/// A key of a kind.
#[derive(Debug)]
pub struct OptionDoc {
    /// Its name.
    pub key: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What it means, with the unit.
    pub text: &'static str,
}

const fn doc(key: &'static str, default: &'static str, text: &'static str) -> OptionDoc {
    OptionDoc { key, default, text }
}

/// Of kinds that need an interface of the host's.
const INTERFACE: OptionDoc = doc("interface", "the port's name", "name of the interface");
/// As [`INTERFACE`].
const NETNS: OptionDoc = doc("netns", "ours", "its network namespace: a name or a path");

/// All kinds there are.
pub static KINDS: &[&Kind] = &[
    &afxdp::KIND,
    &bond::KIND,
    &generator::KIND,
    &packet::KIND,
    &pair::KIND,
    &pcap::KIND,
    &sink::KIND,
    &tap::KIND,
    &vhost_user::KIND,
];

/// The kind of that name.
///
/// # Errors
///
/// Which kinds there are.
pub fn find(name: &str) -> Result<&'static Kind, Problem> {
    let found = KINDS.iter().find(|kind| kind.name == name);
    found.copied().ok_or_else(|| {
        let hint = suggest::among(name, KINDS.iter().map(|kind| kind.name));
        Problem::new("kind", format!("no port kind \"{name}\"{hint}"))
    })
}

/// The port a port goes together with.
pub fn peer(port: &PortState) -> Option<&str> {
    find(&port.kind).ok().filter(|kind| kind.has_peer)?;
    port.options.get("peer")?.as_str()
}

/// A port as people write it: the keys that all ports have and those of its kind in one table.
///
/// # Errors
///
/// The first key or value that is none, by its path in the table.
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

/// Checks a port that came as data.
///
/// # Errors
///
/// What is wrong, by its path in the port.
pub fn check(port: &PortState) -> Result<(), Problem> {
    let kind = find(&port.kind)?;
    (kind.check)(port).map_err(|problem| problem.inside("options"))?;
    layers::check(port)
}

/// A kind's options as its type.
fn options<T: DeserializeOwned>(port: &PortState) -> Result<T, Problem> {
    typed(Json::Object(port.options.clone())).map_err(|problem| explained(port, problem))
}

/// With what the key means, which says what is allowed.
fn explained(port: &PortState, problem: Problem) -> Problem {
    let options = find(&port.kind).map_or(&[][..], |kind| kind.options);
    match options.iter().find(|option| option.key == problem.path) {
        Some(option) => {
            let message = format!("{} ({})", problem.message, option.text);
            Problem::new(problem.path, message)
        }
        None => problem,
    }
}

/// The same for kinds that need an interface of the host's: the port's name is its name if nothing
/// else is said. `null` says nothing.
fn interface_options<T: DeserializeOwned>(port: &PortState) -> Result<T, Problem> {
    let mut options = port.options.clone();
    options.retain(|_, value| !value.is_null());
    options.entry("interface").or_insert_with(|| port.name.clone().into());
    typed(Json::Object(options)).map_err(|problem| explained(port, problem))
}

/// Refuses a number that is not in the range.
fn within<T: PartialOrd + Copy>(
    key: &str,
    number: Option<T>,
    range: std::ops::RangeInclusive<T>,
    said: impl Into<String>,
) -> Result<(), Problem> {
    match number {
        Some(number) if !range.contains(&number) => Err(Problem::new(key, said)),
        _ => Ok(()),
    }
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
