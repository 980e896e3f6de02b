//! The wanted state: plain, versioned data.
//!
//! Nothing here depends on the engine. Ports and bridges are identified by name, programs by key
//! (`thing.rs`); the authors of each thing are kept separately (`authors.rs`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use towpath_host::tables::HostState;
use utoipa::ToSchema;

use crate::model::around::{FaultState, HashState, LimitState, TimestampState, VlanState};
use crate::model::ipsec::{PolicyState, SaState};
use crate::model::offload::OffloadState;

/// The whole wanted state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// Version of this format: 1.
    pub version: u32,
    /// Worker threads. Fixed while the daemon runs.
    pub workers: Vec<WorkerState>,
    /// Number of frames, 4160 bytes each. Fixed while the daemon runs.
    pub frames: Option<usize>,
    /// Milliseconds after which a program that does not return is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_ms: Option<u64>,
    /// The host whose tables programs see, in place of the running one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostState>,
    /// Bridges.
    pub bridges: Vec<BridgeState>,
    /// Ports.
    pub ports: Vec<PortState>,
    /// Programs that are loaded.
    pub programs: Vec<ProgramState>,
    /// Attachments of programs to ports.
    pub attachments: Vec<AttachState>,
    /// Security associations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sas: Vec<SaState>,
    /// Policies of IPsec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyState>,
    /// The programs' object files in hex, by SHA-256; only in documents for another daemon.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<String, String>,
}

/// A worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerState {
    /// The CPU to which the worker is pinned.
    pub cpu: Option<usize>,
    /// The way in which the worker waits for frames.
    pub mode: WorkerMode,
    /// How long an adaptive worker polls without frames before it sleeps, in microseconds: 0 to
    /// 10,000; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_us: Option<u64>,
}

/// The way in which a worker waits for frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerMode {
    /// Polls for a while, then sleeps.
    #[default]
    Adaptive,
    /// Never sleeps.
    Busy,
}

/// A learning bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BridgeState {
    /// The bridge's name.
    pub name: String,
    /// Seconds without traffic after which an address is forgotten.
    #[serde(default = "default_ageing")]
    pub ageing: u64,
}

/// A port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortState {
    /// The port's name.
    pub name: String,
    /// The port's kind.
    pub kind: String,
    /// Name of the port or bridge that receives frames with verdict XDP_PASS.
    pub upper: Option<String>,
    /// Whether the port sends and receives.
    #[serde(default = "yes")]
    pub up: bool,
    /// Largest payload in bytes; defaults to the device's.
    pub mtu: Option<u32>,
    /// Whether frames of several buffers are made linear for programs without frags support.
    #[serde(default = "yes")]
    pub linearize: bool,
    /// The port's ifindex; defaults to that of its host interface, or to one chosen by the daemon.
    pub ifindex: Option<u32>,
    /// Workers that poll the port's queues in turn; if empty, the daemon chooses and may move them.
    #[serde(default)]
    pub workers: Vec<usize>,
    /// How the port's programs are spread over workers: those of `workers`, or all if that is
    /// empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<SpreadState>,
    /// Faults of the port's wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultState>,
    /// Rate limits in frames per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitState>,
    /// Source of the hash hint, for devices that report none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_hash: Option<HashState>,
    /// Handling of a frame's outer VLAN tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_vlan: Option<VlanState>,
    /// Source of the timestamp hint, for devices that report none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<TimestampState>,
    /// Capture file for all frames received and sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// File for a line of text per frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Host interface that represents the port: `true` for one of the same name, or a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowState>,
    /// Offload channel and limits of the guest behind the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<OffloadState>,
    /// Options of the port's kind.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub options: Map<String, Json>,
}

/// Distribution of a port's frames over the workers that run its programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpreadState {
    /// Each worker runs the programs on the queues that it polls.
    #[default]
    Off,
    /// Each flow has one worker, whichever worker polls the queue; both directions share it.
    Flow,
}

/// A shadow interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected true, false, or the name of an interface")]
pub enum ShadowState {
    /// An interface with the port's name, or none.
    Is(bool),
    /// An interface with this name.
    Named(String),
}

/// A program, and the settings with which it is loaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramState {
    /// Key by which attachments refer to the program.
    pub key: String,
    /// Name of its attachment in the configuration, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path from which the object file was read.
    pub object: String,
    /// SHA-256 of the object file, in hex.
    pub sha256: String,
    /// The C function of the program; optional if the object has only one program.
    pub program: Option<String>,
    /// The section of the program, instead of `program`.
    pub section: Option<String>,
    /// Values of global variables, by name.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Sizes of maps (`max_entries`) that the object leaves to its loader.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map_sizes: BTreeMap<String, u32>,
    /// Initial contents of maps, in the format of map files.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub maps: Option<Map<String, Json>>,
    /// Existing maps to be used in place of the program's own, by name: ids or pin paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared_maps: BTreeMap<String, String>,
    /// Starts with empty maps when the program replaces another one, whose maps are kept otherwise.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fresh_maps: bool,
    /// Treatment of entries of the predecessor's maps that have another shape, by map.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map_migrate: BTreeMap<String, MigrateState>,
    /// Old names of renamed maps, by their new names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map_rename: BTreeMap<String, String>,
    /// Allows the loss of entries for which the new program has no room or no map.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lossy: bool,
    /// Key of the program whose maps are kept, if it is not the predecessor of the same key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maps_of: Option<String>,
    /// Way of execution; defaults to the fastest available.
    pub exec: Option<ExecState>,
    /// Trust in the verifier.
    #[serde(default)]
    pub trust: TrustState,
    /// Port that the program is bound to (`BPF_F_XDP_DEV_BOUND_ONLY`): it runs only there, and may
    /// use receive hints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<String>,
    /// A changed number loads the program again from the same bytes.
    #[serde(default)]
    pub generation: u64,
}

impl ProgramState {
    /// File and program for messages: `firewall.o:firewall`. The key may be the predecessor's.
    pub(crate) fn file_and_program(&self) -> String {
        let file = self.object.rsplit('/').next().unwrap_or_default();
        match self.program.as_ref().or(self.section.as_ref()) {
            Some(program) => format!("{file}:{program}"),
            None if file.is_empty() => self.key.clone(),
            None => file.to_owned(),
        }
    }
}

/// Treatment of a map's entries when its shape changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MigrateState {
    /// Copies the members of keys and values that both shapes have, by name.
    Copy,
    /// Deletes the entries.
    Drop,
}

/// Ways to execute a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecState {
    /// The interpreter.
    Interp,
    /// Machine code of tier 1.
    Jit,
    /// Machine code of tier 1, replaced by tier 2.
    Llvm,
}

/// Trust in the verifier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrustState {
    /// Full: machine code contains no checks of accesses.
    #[default]
    Verified,
    /// Little: every access is checked at run time, and run time is limited.
    Checked,
    /// As `Checked`, and programs are verified by the kernel's rules for those without
    /// `CAP_PERFMON`: no address leaks.
    Guest,
}

/// A program on a hook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachState {
    /// Key of the program.
    pub program: String,
    /// The port.
    pub port: String,
    /// The hook.
    #[serde(default)]
    pub hook: HookState,
    /// Priority: smaller values run earlier. Defaults to the object's, else to 50.
    pub prio: Option<u32>,
    /// Verdicts after which the next program runs. Defaults to the object's, else to XDP_PASS.
    pub actions: Option<Vec<String>>,
    /// Treatment of frames while the program is missing.
    #[serde(default, skip_serializing_if = "OnFailure::is_drop")]
    pub on_failure: OnFailure,
}

/// Treatment of a port's frames while a wanted program is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// All frames are dropped, and counted as `no_program`.
    #[default]
    Drop,
    /// The port works without the program.
    Pass,
}

impl OnFailure {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_drop(&self) -> bool {
        *self == OnFailure::Drop
    }
}

/// A hook of a port.
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
    /// Received frames.
    #[default]
    Rx,
    /// Frames to be sent.
    Tx,
    /// Choice of the next packet of a packet queue.
    Dequeue,
}

/// Formats the hook as in configuration.
impl fmt::Display for HookState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl HookState {
    /// The section to look for the program in. Defaults to `dequeue` for dequeue programs, since an
    /// object may have programs for several hooks.
    pub(crate) fn section(self, program: Option<&str>, section: Option<&str>) -> Option<String> {
        let is_said = program.is_some() || section.is_some();
        let own = (self == HookState::Dequeue && !is_said).then_some(DEQUEUE_SECTION);
        section.or(own).map(str::to_owned)
    }
}

const DEQUEUE_SECTION: &str = "dequeue";

impl PortState {
    /// Name of the shadow interface, if one is wanted.
    pub fn shadow(&self) -> Option<&str> {
        match self.shadow.as_ref()? {
            ShadowState::Is(false) => None,
            ShadowState::Is(true) => Some(&self.name),
            ShadowState::Named(name) => Some(name),
        }
    }
}

impl State {
    /// An empty state in the current version of the format.
    pub fn new() -> State {
        State { version: VERSION, ..State::default() }
    }

    /// Finds a port by its name.
    pub fn port(&self, name: &str) -> Option<&PortState> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// All ports by name, for callers that look up many of them.
    pub(crate) fn ports_by_name(&self) -> HashMap<&str, &PortState> {
        // The first port of a name counts, as in [`State::port`].
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
/// Default ageing of bridges in seconds, as in Linux.
const AGEING_SECONDS: u64 = 300;
const _: () = assert!(VERSION > 0, "a document without one is not ours");

/// Stands for the hash of an object file that could not be read.
pub const UNREAD: &str = "0000000000000000000000000000000000000000000000000000000000000000";
