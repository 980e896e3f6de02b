//! What is wanted: plain, versioned data.
//!
//! Nothing here knows the engine. Names are the identity of ports and bridges, keys that of
//! programs (`thing.rs`); who wants what is beside it (`authors.rs`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use towpath_host::tables::HostState;
use utoipa::ToSchema;

use crate::model::around::{FaultState, HashState, LimitState, TimestampState, VlanState};
use crate::model::offload::OffloadState;

/// Everything that is wanted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// Version of this format: 1.
    pub version: u32,
    /// Threads that move frames. Fixed while the daemon runs.
    pub workers: Vec<WorkerState>,
    /// Frames there are, 4096 bytes each. Fixed while the daemon runs.
    pub frames: Option<usize>,
    /// Milliseconds after which a program is stopped that does not return. Fixed while the daemon
    /// runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_ms: Option<u64>,
    /// The host that programs see in place of the running one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostState>,
    /// Bridges.
    pub bridges: Vec<BridgeState>,
    /// Ports.
    pub ports: Vec<PortState>,
    /// Programs that are loaded.
    pub programs: Vec<ProgramState>,
    /// Where they run.
    pub attachments: Vec<AttachState>,
    /// The programs' object files in hex, by their SHA-256, in a document that goes to another
    /// daemon.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<String, String>,
}

/// A worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerState {
    /// The core it stays on.
    pub cpu: Option<usize>,
    /// How it waits for frames.
    pub mode: WorkerMode,
}

/// How a worker waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerMode {
    /// Spins for a while, then sleeps.
    #[default]
    Adaptive,
    /// Never sleeps.
    Busy,
}

/// A learning bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BridgeState {
    /// Its name.
    pub name: String,
    /// Seconds after which an address is forgotten that was not heard of.
    #[serde(default = "default_ageing")]
    pub ageing: u64,
}

/// A port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortState {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: String,
    /// Where passed frames go: a port or a bridge.
    pub upper: Option<String>,
    /// Whether it sends and receives.
    #[serde(default = "yes")]
    pub up: bool,
    /// Largest payload it sends, in bytes; what the device says when not given.
    pub mtu: Option<u32>,
    /// Whether frames of several buffers are made linear for programs without frags support.
    #[serde(default = "yes")]
    pub linearize: bool,
    /// Its ifindex; that of the interface behind it, or one of our own, when not given.
    pub ifindex: Option<u32>,
    /// Workers that poll its queues, in turn; when empty, the daemon chooses, and may move them.
    #[serde(default)]
    pub workers: Vec<usize>,
    /// Whether several workers run its programs: those of `workers`, or all there are when that is
    /// empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<SpreadState>,
    /// Faults of its wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultState>,
    /// Frames a second that it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitState>,
    /// The hash that programs are told of a frame, where its device tells none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_hash: Option<HashState>,
    /// What becomes of a frame's outer VLAN tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_vlan: Option<VlanState>,
    /// When programs are told that a frame arrived, where its device tells nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<TimestampState>,
    /// File that everything it receives and sends is captured in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// File that gets a line of text for each frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// An interface of the host's that stands for it: `true` for one of its name, or a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowState>,
    /// What the guest behind it may have its host run, and how it asks for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<OffloadState>,
    /// What ports of this kind have beside.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub options: Map<String, Json>,
}

/// Which workers run the programs of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpreadState {
    /// The one that polls a queue, on what comes by it.
    #[default]
    Off,
    /// Each flow has one, whichever polls the queue: both directions the same.
    Flow,
}

/// A shadow netdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected true, false, or the name of an interface")]
pub enum ShadowState {
    /// One of the port's name, or none.
    Is(bool),
    /// One of this name.
    Named(String),
}

/// A program and what it is linked with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramState {
    /// What attachments call it.
    pub key: String,
    /// What its attachment is called in the configuration, if it has a name there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where the object file came from.
    pub object: String,
    /// SHA-256 of the object file, in hex.
    pub sha256: String,
    /// Its C function; not needed when the object has only one program.
    pub program: Option<String>,
    /// Or its section.
    pub section: Option<String>,
    /// Values of global variables.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Sizes of maps (`max_entries`) that the object leaves to its loader.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map_sizes: BTreeMap<String, u32>,
    /// What its maps hold when it is loaded, in the format of map files.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub maps: Option<Map<String, Json>>,
    /// Maps that are there already and stand for its own, by name: their ids or the paths of their
    /// pins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared_maps: BTreeMap<String, String>,
    /// Starts with maps of its own when it takes the place of another program, whose maps it keeps
    /// otherwise.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fresh_maps: bool,
    /// What becomes of the entries of maps that the program before had with another shape.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map_migrate: BTreeMap<String, MigrateState>,
    /// Maps of the program before that have other names in this one: new names by old ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map_rename: BTreeMap<String, String>,
    /// Entries of maps that it has no room for, or no map, may go.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lossy: bool,
    /// The program whose maps it keeps, if it isn't the one that had its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maps_of: Option<String>,
    /// How it is executed; the best there is when not given.
    pub exec: Option<ExecState>,
    /// How far the verifier is trusted.
    #[serde(default)]
    pub trust: TrustState,
    /// The port that it is bound to (`BPF_F_XDP_DEV_BOUND_ONLY`), if it is: it runs there only, and
    /// may ask for receive hints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<String>,
    /// Another number loads it anew, from the same bytes.
    #[serde(default)]
    pub generation: u64,
}

impl ProgramState {
    /// What was asked for, for messages: `firewall.o:firewall`. The key may be of what it replaces.
    pub(crate) fn file_and_program(&self) -> String {
        let file = self.object.rsplit('/').next().unwrap_or_default();
        match self.program.as_ref().or(self.section.as_ref()) {
            Some(program) => format!("{file}:{program}"),
            None if file.is_empty() => self.key.clone(),
            None => file.to_owned(),
        }
    }
}

/// What becomes of a map's entries when its shape changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MigrateState {
    /// They are copied: the parts of keys and values that both shapes have, by name.
    Copy,
    /// They go.
    Drop,
}

/// How a program is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecState {
    /// By the interpreter.
    Interp,
    /// As machine code of tier 1.
    Jit,
    /// As machine code of tier 1, then tier 2.
    Llvm,
}

/// How far the verifier is trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrustState {
    /// No access of machine code is checked again.
    #[default]
    Verified,
    /// Every access is checked as the program runs, and its time is limited.
    Checked,
    /// The same, and it is verified by the kernel's rules for programs without `CAP_PERFMON`: no
    /// address leaves it.
    Guest,
}

/// A program on a hook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachState {
    /// The program's key.
    pub program: String,
    /// The port.
    pub port: String,
    /// The hook.
    #[serde(default)]
    pub hook: HookState,
    /// Smaller runs earlier; what the object says, else 50, when not given.
    pub prio: Option<u32>,
    /// Verdicts after which the next program runs; what the object says, else XDP_PASS, when not
    /// given.
    pub actions: Option<Vec<String>>,
    /// What becomes of frames while its program isn't there.
    #[serde(default, skip_serializing_if = "OnFailure::is_drop")]
    pub on_failure: OnFailure,
}

/// What becomes of a port's frames while a program that it is to have isn't there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// All are dropped, and counted as `no_program`.
    #[default]
    Drop,
    /// The port goes on without the program.
    Pass,
}

impl OnFailure {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_drop(&self) -> bool {
        *self == OnFailure::Drop
    }
}

/// A hook.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum HookState {
    /// What arrives.
    #[default]
    Rx,
    /// What leaves.
    Tx,
    /// Which packet of a queue leaves next.
    Dequeue,
}

/// As configuration has it.
impl fmt::Display for HookState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl HookState {
    /// In which section its program is looked for where nothing is said: an object may have
    /// programs for several hooks.
    pub(crate) fn section(self, program: Option<&str>, section: Option<&str>) -> Option<String> {
        let is_said = program.is_some() || section.is_some();
        let own = (self == HookState::Dequeue && !is_said).then_some(DEQUEUE_SECTION);
        section.or(own).map(str::to_owned)
    }
}

const DEQUEUE_SECTION: &str = "dequeue";

impl PortState {
    /// The name of the interface that stands for this port, if one is wanted.
    pub fn shadow(&self) -> Option<&str> {
        match self.shadow.as_ref()? {
            ShadowState::Is(false) => None,
            ShadowState::Is(true) => Some(&self.name),
            ShadowState::Named(name) => Some(name),
        }
    }
}

impl State {
    /// Nothing, in this version of the format.
    pub fn new() -> State {
        State { version: VERSION, ..State::default() }
    }

    /// The port of that name.
    pub fn port(&self, name: &str) -> Option<&PortState> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// All ports by name, for whoever looks for many of them.
    pub(crate) fn ports_by_name(&self) -> HashMap<&str, &PortState> {
        // The first of a name counts, as in [`State::port`].
        self.ports.iter().rev().map(|port| (port.name.as_str(), port)).collect()
    }

    /// Removes programs that are attached nowhere.
    pub fn forget_unused_programs(&mut self) {
        let used: HashSet<&str> = self.attachments.iter().map(|at| at.program.as_str()).collect();
        self.programs.retain(|program| used.contains(program.key.as_str()));
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !value
}

fn yes() -> bool {
    true
}

fn default_ageing() -> u64 {
    AGEING_SECONDS
}

/// Version of the format.
pub const VERSION: u32 = 1;
/// Linux's default.
const AGEING_SECONDS: u64 = 300;
const _: () = assert!(VERSION > 0, "a document without one is not ours");

/// The hash of an object file that couldn't be read.
pub const UNREAD: &str = "0000000000000000000000000000000000000000000000000000000000000000";
