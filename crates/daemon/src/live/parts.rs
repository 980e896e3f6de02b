//! What the daemon holds of ports, programs and links, one value for each.

use std::sync::Arc;

use towpath_engine::{Link, PortId};
use towpath_host::Presence;
use towpath_objects::{LinkObject, MapObject, MapUse, ProgramObject};
use towpath_ports::shadow::Shadow;
use towpath_xdp::Program;

use crate::model::run_config::RunConfig;
use crate::model::state::{AttachState, PortState, ProgramState, State};

/// A port that is open.
#[derive(Debug, Clone)]
pub struct LivePort {
    /// Its kind.
    pub kind: String,
    /// What was wanted when its device was opened; nothing while that is closed. How the port is
    /// set, and everything else about it, the engine knows.
    pub opened: Option<PortState>,
    /// The interface that it is on, if that was there when it was opened.
    pub presence: Option<Presence>,
    /// Its number in the engine.
    pub id: PortId,
    /// Its ifindex.
    pub ifindex: u32,
}

/// A program that is loaded.
#[derive(Debug)]
pub struct LiveProgram {
    /// What was wanted.
    pub state: ProgramState,
    /// Its id, name, tag and maps, as everybody knows them.
    pub object: Arc<ProgramObject>,
    /// The program.
    pub program: Program,
    /// What its object says about priority and actions.
    pub run_config: RunConfig,
    /// Its maps are in use: an array of programs that nobody uses is emptied.
    pub(super) _uses: Vec<MapUse>,
}

impl LiveProgram {
    /// Its id.
    pub fn id(&self) -> u32 {
        self.object.id()
    }
}

/// A program on a hook.
#[derive(Debug, Clone)]
pub struct LiveLink {
    /// What was wanted.
    pub attach: AttachState,
    /// Its id. A replaced program leaves it as it is.
    pub id: u32,
    /// The program's id.
    pub program: u32,
    /// What its id, its pins and everybody's look at it belong to.
    pub object: Arc<LinkObject>,
    /// The engine's part: priority, actions, counters.
    pub link: Link,
}

/// A shadow that is there.
#[derive(Debug)]
pub(super) struct LiveShadow {
    /// The interface's name.
    pub(super) name: String,
    pub(super) shadow: Shadow,
}

/// An entry that is to lead to a port.
#[derive(Debug)]
pub(super) struct LostEntry {
    pub(super) map: Arc<MapObject>,
    pub(super) key: u32,
    pub(super) port: Target,
    /// What ran there.
    pub(super) program: Option<Arc<ProgramObject>>,
}

/// Where an entry is to lead to.
#[derive(Debug)]
pub(super) enum Target {
    /// It led to this port.
    Port(String),
    /// To whichever port has this ifindex, as configuration says.
    Device(u32),
}

impl Target {
    /// What configuration says of a map is wanted as long as that is there.
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
