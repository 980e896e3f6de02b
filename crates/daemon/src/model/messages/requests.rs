//! Requests of clients.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use crate::model::state::{HookState, MigrateState, ProgramState};

/// A request to attach programs to a port.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkRequest {
    /// The port.
    pub port: String,
    /// The hook.
    pub hook: HookState,
    /// The programs.
    pub programs: Vec<ProgramRequest>,
    /// The relation to programs that are attached already.
    pub mode: AttachMode,
    /// With mode `replace`: the id of the program or link to be replaced. Without an id, it is the
    /// only program on the hook, or for each new program the one of the same name.
    pub expected: Option<u32>,
}

/// A program to attach.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProgramRequest {
    /// SHA-256 of an uploaded object file.
    pub sha256: String,
    /// Path from which the object file was read.
    pub object: String,
    /// The C function of the program.
    pub program: Option<String>,
    /// The section of the program, instead of `program`.
    pub section: Option<String>,
    /// Priority: programs with smaller values run earlier. Defaults to the object's.
    pub prio: Option<u32>,
    /// Verdicts after which the next program runs. Defaults to the object's.
    pub actions: Option<Vec<String>>,
    /// Binds the program to the port (`BPF_F_XDP_DEV_BOUND_ONLY`), which allows receive hints.
    pub dev_bound: bool,
    /// Values of global variables, by name.
    pub set: BTreeMap<String, String>,
    /// Sizes of maps (`max_entries`) that the object leaves to its loader.
    pub map_sizes: BTreeMap<String, u32>,
    /// Initial contents of maps.
    #[schema(value_type = Object)]
    pub maps: Option<serde_json::Map<String, Json>>,
    /// Existing maps to be used in place of the program's own, by name: ids or pin paths.
    pub shared_maps: BTreeMap<String, String>,
    /// Starts with empty maps when the program replaces another one, whose maps are kept otherwise.
    pub fresh_maps: bool,
    /// Treatment of entries of the predecessor's maps that have another shape, by map.
    pub map_migrate: BTreeMap<String, MigrateState>,
    /// Old names of renamed maps, by their new names.
    pub map_rename: BTreeMap<String, String>,
    /// Allows the loss of entries for which the new program has no room or no map.
    pub lossy: bool,
}

/// Relation of new programs to those that are attached already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttachMode {
    /// Adds the program; the same program at the same priority is refused.
    #[default]
    Add,
    /// Requires an empty hook (`XDP_FLAGS_UPDATE_IF_NOEXIST`).
    Exclusive,
    /// Replaces the previous version of the program (`XDP_FLAGS_REPLACE`).
    Replace,
    /// Replaces all programs on the hook.
    #[serde(rename = "replace-all")]
    ReplaceAll,
}

/// A request to load and pin a program without attaching it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoadRequest {
    /// The program; its keys about attaching are ignored.
    pub program: ProgramRequest,
    /// Path of the pin, which keeps the program alive.
    pub path: String,
}

/// A request to create a map.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MapRequest {
    /// The map's type, as bpftool names it.
    pub r#type: String,
    /// The map's name.
    pub name: String,
    /// Size of a key in bytes.
    pub key: u32,
    /// Size of a value in bytes.
    pub value: u32,
    /// Capacity in entries.
    pub entries: u32,
    /// Flags, `BPF_F_*`.
    pub flags: u32,
    /// Path of the pin, which keeps the map alive.
    pub path: String,
}

/// An element to be looked up, updated or deleted.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryRequest {
    /// The key, as in map files; unset for queues and stacks.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub key: Json,
    /// The value; a single value applies to all CPUs of a per-CPU map.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub value: Option<Json>,
    /// Condition of an update: `any`, `noexist` or `exist`.
    pub flags: Option<String>,
    /// Whether the answer contains raw bytes, too.
    #[serde(default)]
    pub bytes: bool,
}

/// A request for a pin: a name that keeps an object alive.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinRequest {
    /// `prog`, `map` or `link`.
    pub kind: String,
    /// The object's id.
    pub id: u32,
    /// Path of the pin below the daemon's `/sys/fs/bpf`; a relative path begins there.
    pub path: String,
}

/// Input of a test run (`BPF_PROG_TEST_RUN`).
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunRequest {
    /// Metadata followed by the packet, in hex.
    pub data: String,
    /// Size of the metadata in bytes.
    pub metadata: u32,
    /// The port that the packet appears to arrive at.
    pub port: Option<String>,
    /// The receive queue that the packet appears to arrive at.
    pub rx_queue: u32,
    /// Number of runs; 0 means 1.
    pub repeat: u32,
    /// Whether each run gets a frame of its own, which is then sent according to the verdict
    /// (`BPF_F_TEST_XDP_LIVE_FRAMES`).
    pub live: bool,
    /// Number of live frames per burst, 1 to 256; defaults to 64.
    pub batch_size: Option<u32>,
    /// Calls a program in section `syscall`, with this context in hex; there is no packet then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl LinkRequest {
    /// The wanted state of one of the request's programs.
    pub(crate) fn program_state(&self, program: &ProgramRequest, key: String) -> ProgramState {
        let bound_to = program.dev_bound.then(|| self.port.clone());
        let section = self.hook.section(program.program.as_deref(), program.section.as_deref());
        ProgramState { bound_to, section, ..program.state(key) }
    }
}

impl ProgramRequest {
    /// The wanted state of the program, not bound to a port.
    pub(crate) fn state(&self, key: String) -> ProgramState {
        ProgramState {
            key,
            object: self.object.clone(),
            sha256: self.sha256.clone(),
            program: self.program.clone(),
            section: self.section.clone(),
            set: self.set.clone(),
            map_sizes: self.map_sizes.clone(),
            maps: self.maps.clone(),
            shared_maps: self.shared_maps.clone(),
            fresh_maps: self.fresh_maps,
            map_migrate: self.map_migrate.clone(),
            map_rename: self.map_rename.clone(),
            lossy: self.lossy,
            ..ProgramState::default()
        }
    }
}
