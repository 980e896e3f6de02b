//! The values that the daemon holds for each port, program and link.

use std::sync::Arc;

use towpath_engine::{Link, PortId};
use towpath_host::Presence;
use towpath_objects::{LinkObject, MapObject, MapUse, ProgramObject};
use towpath_ports::shadow::Shadow;
use towpath_xdp::Program;

use crate::model::run_config::RunConfig;
use crate::model::state::{AttachState, PortState, ProgramState, State};

/// A port in the engine.
#[derive(Debug, Clone)]
pub struct LivePort {
    /// The port's kind.
    pub kind: String,
    /// The wanted state with which the device was opened; `None` while the device is closed.
    /// Current settings are in the engine.
    pub opened: Option<PortState>,
    /// The host interface at the time of opening, if it was known.
    pub presence: Option<Presence>,
    /// The port's id in the engine.
    pub id: PortId,
    /// The port's ifindex.
    pub ifindex: u32,
}

/// A loaded program.
#[derive(Debug)]
pub struct LiveProgram {
    /// The wanted state with which the program was loaded.
    pub state: ProgramState,
    /// The program in the object registry: id, name, tag and maps.
    pub object: Arc<ProgramObject>,
    /// The program.
    pub program: Program,
    /// The object file's settings for priority and actions.
    pub run_config: RunConfig,
    /// Keeps the program's maps in use: a program array without users is emptied.
    pub(super) _uses: Vec<MapUse>,
}

impl LiveProgram {
    /// The program's id.
    pub fn id(&self) -> u32 {
        self.object.id()
    }
}

/// A program on a hook.
#[derive(Debug, Clone)]
pub struct LiveLink {
    /// The wanted state of the attachment.
    pub attach: AttachState,
    /// The link's id, which stays when the program is replaced.
    pub id: u32,
    /// The program's id.
    pub program: u32,
    /// The link in the object registry, which owns the id and the pins.
    pub object: Arc<LinkObject>,
    /// The link in the engine: priority, actions, counters.
    pub link: Link,
}

/// An existing shadow interface.
#[derive(Debug)]
pub(super) struct LiveShadow {
    /// The interface's name.
    pub(super) name: String,
    pub(super) shadow: Shadow,
}

/// A map entry whose port is closed.
#[derive(Debug)]
pub(super) struct LostEntry {
    pub(super) map: Arc<MapObject>,
    pub(super) key: u32,
    pub(super) port: Target,
    /// The program of the entry, if it had one.
    pub(super) program: Option<Arc<ProgramObject>>,
}

/// The port that an entry refers to.
#[derive(Debug)]
pub(super) enum Target {
    /// The port that the entry referred to, by name.
    Port(String),
    /// The port with this ifindex, as configured.
    Device(u32),
}

impl Target {
    /// Whether the entry is still wanted. Configured entries are, as long as the map exists.
    pub(super) fn is_wanted(&self, wanted: &State) -> bool {
        match self {
            Target::Port(port) => wanted.port(port).is_some(),
            Target::Device(_) => true,
        }
    }

    pub(super) fn why_not(&self) -> String {
        match self {
            Target::Port(port) => {
                format!("it led to port {port}, which is not there: it is stored again with it")
            }
            Target::Device(ifindex) => format!(
                "it is to lead to the port with ifindex {ifindex}, which is not there: it is \
                 stored with it (ENODEV)"
            ),
        }
    }

    pub(super) fn word(&self) -> &'static str {
        match self {
            Target::Port(_) => "again",
            Target::Device(_) => "now",
        }
    }
}
