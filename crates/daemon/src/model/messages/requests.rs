//! What clients ask for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use crate::model::state::{HookState, MigrateState, ProgramState};

/// Programs to attach.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkRequest {
    /// The port.
    pub port: String,
    /// The hook.
    pub hook: HookState,
    /// The programs.
    pub programs: Vec<ProgramRequest>,
    /// How they stand to what is attached already.
    pub mode: AttachMode,
    /// With mode `replace`: the program or link whose place is taken, by id. Without it that is the
    /// only one on the hook, or for each program the one of its name.
    pub expected: Option<u32>,
}

/// A program to attach.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProgramRequest {
    /// SHA-256 of an object that was uploaded.
    pub sha256: String,
    /// Where it came from.
    pub object: String,
    /// Its C function.
    pub program: Option<String>,
    /// Or its section.
    pub section: Option<String>,
    /// Smaller runs earlier; what the object says when not given.
    pub prio: Option<u32>,
    /// Verdicts after which the next program runs; what the object says when not given.
    pub actions: Option<Vec<String>>,
    /// Binds it to the port (`BPF_F_XDP_DEV_BOUND_ONLY`): it may ask for receive hints.
    pub dev_bound: bool,
    /// Values of global variables.
    pub set: BTreeMap<String, String>,
    /// Sizes of maps (`max_entries`) that the object leaves to its loader.
    pub map_sizes: BTreeMap<String, u32>,
    /// What its maps hold.
    #[schema(value_type = Object)]
    pub maps: Option<serde_json::Map<String, Json>>,
    /// Maps that are there already and stand for its own, by name: their ids or the paths of their
    /// pins.
    pub shared_maps: BTreeMap<String, String>,
    /// Starts with maps of its own when it takes the place of another program, whose maps it keeps
    /// otherwise.
    pub fresh_maps: bool,
    /// What becomes of the entries of maps that the program before had with another shape.
    pub map_migrate: BTreeMap<String, MigrateState>,
    /// Maps of the program before that have other names in this one: new names by old ones.
    pub map_rename: BTreeMap<String, String>,
    /// Entries of maps that it has no room for, or no map, may go.
    pub lossy: bool,
}

/// How a program stands to what is attached already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttachMode {
    /// It joins what is there; the same program at the same priority is refused.
    #[default]
    Add,
    /// Nothing may be there (`XDP_FLAGS_UPDATE_IF_NOEXIST`).
    Exclusive,
    /// It takes the place of the program that it is a new version of (`XDP_FLAGS_REPLACE`).
    Replace,
    /// It takes the place of everything on the hook.
    #[serde(rename = "replace-all")]
    ReplaceAll,
}

/// A program to be loaded and pinned, on no port yet.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoadRequest {
    /// The program; what is about attaching is left out.
    pub program: ProgramRequest,
    /// Where it is pinned: that keeps it alive.
    pub path: String,
}

/// A map to be created.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MapRequest {
    /// Its kind, as bpftool names it.
    pub r#type: String,
    /// Its name.
    pub name: String,
    /// Bytes of a key.
    pub key: u32,
    /// Bytes of a value.
    pub value: u32,
    /// Its capacity.
    pub entries: u32,
    /// `BPF_F_*`
    pub flags: u32,
    /// Where it is pinned: that keeps it alive.
    pub path: String,
}

/// An element to be looked up, put or deleted.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryRequest {
    /// Its key, as in map files; nothing for queues and stacks.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub key: Json,
    /// Its value: for all CPUs of a per-CPU map.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub value: Option<Json>,
    /// `any`, `noexist` or `exist`.
    pub flags: Option<String>,
    /// Asks for the bytes, too.
    #[serde(default)]
    pub bytes: bool,
}

/// A pin to be made: a name that keeps an object alive.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinRequest {
    /// `prog`, `map` or `link`.
    pub kind: String,
    /// The object's id.
    pub id: u32,
    /// Where, below `/sys/fs/bpf` of the daemon's own; a relative path begins there.
    pub path: String,
}

/// What a program is to be run on, apart from traffic (`BPF_PROG_TEST_RUN`).
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunRequest {
    /// Metadata and the packet behind it, in hex.
    pub data: String,
    /// Bytes of metadata.
    pub metadata: u32,
    /// The port that it seems to come from.
    pub port: Option<String>,
    /// That port's receive queue.
    pub rx_queue: u32,
    /// How often it runs; 0 is once.
    pub repeat: u32,
    /// Whether each run is a frame that then goes where the program says
    /// (`BPF_F_TEST_XDP_LIVE_FRAMES`).
    pub live: bool,
    /// Live frames that are judged before all of them are sent, 1 to 256; 64 when not given.
    pub batch_size: Option<u32>,
}

impl LinkRequest {
    /// One of its programs, as it is wanted.
    pub(crate) fn program_state(&self, program: &ProgramRequest, key: String) -> ProgramState {
        let bound_to = program.dev_bound.then(|| self.port.clone());
        let section = self.hook.section(program.program.as_deref(), program.section.as_deref());
        ProgramState { bound_to, section, ..program.state(key) }
    }
}

impl ProgramRequest {
    /// The program as it is wanted, bound to nothing.
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
