//! The description of a port kind, and the parsing of its options.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use towpath_document::{Problem, typed};
use towpath_engine::port::Device;

use crate::model::state::PortState;

/// A kind of port.
#[derive(Debug)]
pub struct Kind {
    /// The kind's name in configuration.
    pub name: &'static str,
    /// A description in a few words.
    pub summary: &'static str,
    /// The kind's keys, besides those of all ports.
    pub options: &'static [OptionDoc],
    /// Checks a port's options.
    pub check: fn(&PortState) -> Result<(), Problem>,
    /// Opens devices: one for a port alone, two for a port and its peer. Waits for at most
    /// `patience` where the kernel has not yet released an old device.
    pub open: fn(&[&PortState], patience: Duration) -> Opened,
    /// Whether ports come in pairs, in which the option `peer` names the other port.
    pub has_peer: bool,
    /// Recovery of a port whose device is gone.
    pub reopening: Reopening,
    /// Whether an interface can be opened again before an old device on it is closed.
    pub is_shared: bool,
    /// Whether the kernel pins the memory of all frames, and so needs all of its pages at once.
    pub pins_frames: bool,
}

impl Kind {
    /// A kind whose ports have no peer, and whose devices do not disappear by themselves.
    pub(super) const fn new(
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
            reopening: Reopening::Never,
            is_shared: false,
            pins_frames: false,
        }
    }
}

/// Recovery of a port whose device is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reopening {
    /// None is needed: devices of this kind do not disappear.
    Never,
    /// The port reopens when its interface reappears under the same name.
    WithInterface,
    /// The port reopens at once, and thereby creates its interface again.
    AtOnce,
}

/// Devices in the order of their ports, or the reason why none was opened.
pub type Opened = Result<Vec<Box<dyn Device>>, String>;

/// Documentation of a key of a kind.
#[derive(Debug)]
pub struct OptionDoc {
    /// The key.
    pub key: &'static str,
    /// The default, as shown to the user.
    pub default: &'static str,
    /// The key's meaning, with its unit.
    pub text: &'static str,
}

pub(super) const fn doc(key: &'static str, default: &'static str, text: &'static str) -> OptionDoc {
    OptionDoc { key, default, text }
}

/// The key `interface` of kinds that need an interface of the host.
pub(super) const INTERFACE: OptionDoc =
    doc("interface", "the port's name", "name of the interface");

/// The key `netns` of kinds that need an interface of the host.
pub(super) const NETNS: OptionDoc =
    doc("netns", "the daemon's", "network namespace of the interface: a name or a path");

/// Deserializes a port's options into the kind's type.
pub(super) fn options<T: DeserializeOwned>(kind: &Kind, port: &PortState) -> Result<T, Problem> {
    typed(Json::Object(port.options.clone())).map_err(|problem| explained(kind, problem))
}

/// Appends the meaning of the key to a problem, because it says which values are allowed.
fn explained(kind: &Kind, problem: Problem) -> Problem {
    match kind.options.iter().find(|option| option.key == problem.path) {
        Some(option) => {
            let message = format!("{} ({})", problem.message, option.text);
            Problem::new(problem.path, message)
        }
        None => problem,
    }
}

/// Deserializes options of a kind that needs an interface of the host: `interface` defaults to the
/// port's name. `null` counts as absent.
pub(super) fn interface_options<T: DeserializeOwned>(
    kind: &Kind,
    port: &PortState,
) -> Result<T, Problem> {
    let mut options = port.options.clone();
    options.retain(|_, value| !value.is_null());
    options.entry("interface").or_insert_with(|| port.name.clone().into());
    typed(Json::Object(options)).map_err(|problem| explained(kind, problem))
}

/// Longest path of a socket: `sockaddr_un.sun_path` has 108 bytes, with a NUL at the end.
pub(super) const SOCKET_PATH_MAX: usize = 107;
const _: () = assert!(SOCKET_PATH_MAX < 108, "sun_path ends with a zero");

/// Refuses a number outside the range.
pub(super) fn within<T: PartialOrd + Copy>(
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
