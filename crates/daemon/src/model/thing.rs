//! Identities of wanted things, shared by the saved state, messages and failures.

use std::fmt;

use serde::{Deserialize, Serialize};
use towpath_host::tables::HostState;

use crate::model::ipsec::{PolicyState, SaState};
use crate::model::state::{AttachState, BridgeState, HookState, PortState};
use crate::model::state::{ProgramState, State};

/// The identity of a wanted thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thing {
    /// The host tables that programs see.
    Host,
    /// A bridge, by its name.
    Bridge(String),
    /// A port or bond, by its name.
    Port(String),
    /// A program, by its key.
    Program(String),
    /// A program on a hook of a port.
    Attachment(Identity),
    /// A security association, by its name.
    Sa(String),
    /// A policy of IPsec, by its name.
    Policy(String),
}

/// The identity of an attachment, which does not depend on priority and actions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The port.
    pub port: String,
    /// The hook.
    pub hook: HookState,
    /// The program's key.
    pub program: String,
}

impl Thing {
    /// The identity of a port.
    pub(crate) fn port(name: &str) -> Thing {
        Thing::Port(name.to_owned())
    }
}

/// Formats the thing as failures, events and messages show it.
impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thing::Host => f.write_str("host"),
            Thing::Bridge(name) => write!(f, "bridge {name}"),
            Thing::Port(name) => write!(f, "port {name}"),
            Thing::Sa(name) => write!(f, "sa {name}"),
            Thing::Policy(name) => write!(f, "policy {name}"),
            Thing::Program(key) => write!(f, "program {key}"),
            Thing::Attachment(Identity { port, hook: HookState::Rx, program }) => {
                write!(f, "attachment of {program} to port {port}")
            }
            Thing::Attachment(Identity { port, hook, program }) => {
                write!(f, "attachment of {program} to port {port} ({hook})")
            }
        }
    }
}

impl AttachState {
    /// The attachment's identity.
    pub fn identity(&self) -> Identity {
        let AttachState { port, hook, program, .. } = self;
        Identity { port: port.clone(), hook: *hook, program: program.clone() }
    }
}

/// A part of a state that has an identity.
pub(crate) trait Identified {
    /// The identity.
    fn thing(&self) -> Thing;
}

impl Identified for HostState {
    fn thing(&self) -> Thing {
        Thing::Host
    }
}

impl Identified for BridgeState {
    fn thing(&self) -> Thing {
        Thing::Bridge(self.name.clone())
    }
}

impl Identified for PortState {
    fn thing(&self) -> Thing {
        Thing::port(&self.name)
    }
}

impl Identified for ProgramState {
    fn thing(&self) -> Thing {
        Thing::Program(self.key.clone())
    }
}

impl Identified for AttachState {
    fn thing(&self) -> Thing {
        Thing::Attachment(self.identity())
    }
}

impl Identified for SaState {
    fn thing(&self) -> Thing {
        Thing::Sa(self.name.clone())
    }
}

impl Identified for PolicyState {
    fn thing(&self) -> Thing {
        Thing::Policy(self.name.clone())
    }
}

impl State {
    /// The identities of all things in the state.
    pub(crate) fn things(&self) -> impl Iterator<Item = Thing> {
        let (host, bridges) = (things(self.host.as_slice()), things(&self.bridges));
        let (ports, programs) = (things(&self.ports), things(&self.programs));
        let ipsec = things(&self.sas).chain(things(&self.policies));
        let attachments = things(&self.attachments);
        host.chain(bridges).chain(ports).chain(programs).chain(attachments).chain(ipsec)
    }

    /// The thing that a problem's path leads to: `ports[2].mtu` leads to the third port.
    pub(crate) fn thing_at(&self, path: &str) -> Option<Thing> {
        let (list, at) = place(path)?;
        match list {
            "attachments" => things(&self.attachments).nth(at),
            "programs" => things(&self.programs).nth(at),
            "ports" => things(&self.ports).nth(at),
            "bridges" => things(&self.bridges).nth(at),
            "sas" => things(&self.sas).nth(at),
            "policies" => things(&self.policies).nth(at),
            _ => None,
        }
    }
}

fn things<T: Identified>(list: &[T]) -> impl Iterator<Item = Thing> {
    list.iter().map(T::thing)
}

/// The list and the index at the start of a path.
pub(crate) fn place(path: &str) -> Option<(&str, usize)> {
    let (list, rest) = path.split_once('[')?;
    Some((list, rest.split_once(']')?.0.parse().ok()?))
}
