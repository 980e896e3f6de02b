//! What is known of a port kind, and how its options are read.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use towpath_document::{Problem, typed};
use towpath_engine::port::Device;

use crate::model::state::PortState;

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

pub(super) const fn doc(key: &'static str, default: &'static str, text: &'static str) -> OptionDoc {
    OptionDoc { key, default, text }
}

/// Of kinds that need an interface of the host's.
pub(super) const INTERFACE: OptionDoc =
    doc("interface", "the port's name", "name of the interface");

/// As [`INTERFACE`].
pub(super) const NETNS: OptionDoc = doc("netns", "ours", "its network namespace: a name or a path");

/// A kind's options as its type.
pub(super) fn options<T: DeserializeOwned>(kind: &Kind, port: &PortState) -> Result<T, Problem> {
    typed(Json::Object(port.options.clone())).map_err(|problem| explained(kind, problem))
}

/// With what the key means, which says what is allowed.
fn explained(kind: &Kind, problem: Problem) -> Problem {
    match kind.options.iter().find(|option| option.key == problem.path) {
        Some(option) => {
            let message = format!("{} ({})", problem.message, option.text);
            Problem::new(problem.path, message)
        }
        None => problem,
    }
}

/// The same for kinds that need an interface of the host's: the port's name is its name if nothing
/// else is said. `null` says nothing.
pub(super) fn interface_options<T: DeserializeOwned>(
    kind: &Kind,
    port: &PortState,
) -> Result<T, Problem> {
    let mut options = port.options.clone();
    options.retain(|_, value| !value.is_null());
    options.entry("interface").or_insert_with(|| port.name.clone().into());
    typed(Json::Object(options)).map_err(|problem| explained(kind, problem))
}

/// Refuses a number that is not in the range.
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
