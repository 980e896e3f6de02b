//! Requests and answers: plain data, shared by the daemon and its client.

pub mod bonds;
mod guests;
mod history;
mod ipsec;
mod profile;
mod queues;
mod requests;
mod workers;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use crate::model::authors::{Author, Overridden};
use crate::model::failure::Failure;
use crate::model::state::{BridgeState, HookState, PortState};
pub use guests::{GuestLimitView, GuestObjectView, GuestProgramView, GuestView};
pub use history::{HistoryView, TrafficPast, WorkerPast};
pub use ipsec::{PolicyView, SaStatus, SaView};
pub use profile::{ProfileLine, ProfileView};
pub use queues::{DequeueView, QueueView};
pub use requests::{
    AttachMode, EntryRequest, LinkRequest, LoadRequest, MapRequest, PinRequest, ProgramRequest,
    RunRequest,
};
pub use workers::{FlowView, PolledView, ProgramShare, WorkerView};

/// A port.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PortView {
    /// The port's wanted state.
    #[serde(flatten)]
    pub state: PortState,
    /// Authors of the port: `file`, `api`, `saved`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// The port's ifindex; 0 until the port is open.
    pub index: u32,
    /// The port's Ethernet address.
    pub mac: String,
    /// Number of receive queues.
    pub queues: u32,
    /// Largest payload that the port sends now, in bytes.
    pub mtu_now: u32,
    /// Whether frames can leave and arrive now.
    pub link: bool,
    /// Why the port is unusable, if it is.
    pub failure: Option<String>,
    /// The last error in sending; the frames were dropped with reason `tx_error`.
    pub tx_error: Option<String>,
    /// Whether all queues have ended, as at the end of a capture file.
    pub finished: bool,
    /// The bond that the port is a member of.
    pub master: Option<String>,
    /// The bond whose programs this port runs.
    pub delegated_by: Option<String>,
    /// Further properties, specific to the kind.
    pub details: BTreeMap<String, String>,
}

/// A program, with bpftool's keys and some more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProgramView {
    /// The program's id.
    pub id: u32,
    /// `xdp`
    pub r#type: String,
    /// The program's name, at most 15 characters.
    pub name: String,
    /// The first 8 bytes of the hash of the instructions.
    pub tag: String,
    /// Whether the program's licence allows GPL-only helpers.
    pub gpl_compatible: bool,
    /// Load time, in seconds since 1970.
    pub loaded_at: u64,
    /// The uid of the user that loaded the program.
    pub uid: u32,
    /// Size of the instructions in bytes.
    pub bytes_xlated: usize,
    /// Whether the program runs as machine code.
    pub jited: bool,
    /// Size of the machine code in bytes.
    pub bytes_jited: usize,
    /// Memory of the instructions in bytes, in whole pages.
    #[serde(default)]
    pub bytes_memlock: usize,
    /// Ids of the program's maps.
    pub map_ids: Vec<u32>,
    /// Id of the program's BTF; 0 for none.
    pub btf_id: u32,
    /// Paths of the program's pins.
    pub pinned: Vec<String>,
    /// The program's C function.
    pub function: String,
    /// The program's key in the state; unset if only a pin or another program's map keeps it.
    pub key: Option<String>,
    /// Authors of the program: `file`, `api`, `saved`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// Path of the object file that the program came from.
    pub object: Option<String>,
    /// SHA-256 of the object file.
    pub sha256: Option<String>,
    /// The port that the program is bound to (`BPF_F_XDP_DEV_BOUND_ONLY`); empty if it is gone.
    pub bound_to: Option<String>,
    /// Whether the program accepts frames of several buffers.
    pub frags: bool,
    /// Number of instructions.
    pub insns: usize,
    /// Current execution: `interp`, `jit`, `llvm`.
    pub exec: String,
    /// Why the program is not executed as requested, if so.
    pub fallback: Option<String>,
    /// The measurement that decided between the compiler's tiers, if there was one.
    pub measured: Option<String>,
}

/// Result of a test run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    /// Return value of the last run; 0 for live frames.
    pub retval: u32,
    /// Metadata and packet after the last run, in hex; empty for live frames.
    pub data_out: String,
    /// Size of the metadata in bytes.
    pub metadata: u32,
    /// End of the packet's first buffer, as an offset in bytes.
    pub linear_end: u32,
    /// Average duration of a run in nanoseconds.
    pub duration_ns: u64,
    /// For a called program: the context as it left it, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// A program on a hook.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// The link's id.
    pub id: u32,
    /// `xdp`
    pub r#type: String,
    /// The port; empty if the link was detached and only a pin is left.
    pub port: String,
    /// Authors of the attachment: `file`, `api`, `saved`. Empty if it was made through `bpf(2)`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// The port's ifindex; 0 if the link was detached.
    pub ifindex: u32,
    /// The hook.
    pub hook: HookState,
    /// The program's id.
    pub prog_id: u32,
    /// The program's name.
    pub name: String,
    /// The program's tag.
    pub tag: String,
    /// Priority: programs with smaller values run earlier.
    pub prio: u32,
    /// Verdicts after which the next program runs.
    pub actions: Vec<String>,
    /// Paths of the link's pins.
    pub pinned: Vec<String>,
    /// Current execution of the program: `interp`, `jit`, `llvm`.
    pub exec: String,
    /// Why the program is not executed as requested, if so.
    pub fallback: Option<String>,
    /// The measurement that decided between the compiler's tiers, if there was one.
    pub measured: Option<String>,
    /// Frames that the program judged.
    pub runs: u64,
    /// Frames by verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// Runs that broke a rule which verified programs cannot break.
    pub faults: u64,
}

/// A map, with bpftool's keys and some more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MapView {
    /// The map's id.
    pub id: u32,
    /// The map's type.
    pub r#type: String,
    /// The map's name, at most 15 characters.
    pub name: String,
    /// Flags, `BPF_F_*`.
    pub flags: u32,
    /// Size of a key in bytes.
    pub bytes_key: u32,
    /// Size of a value in bytes.
    pub bytes_value: u32,
    /// Capacity in entries.
    pub max_entries: u32,
    /// Memory of the map in bytes.
    #[serde(default)]
    pub bytes_memlock: u64,
    /// Whether the owner programs of the map are machine code; only for maps with owners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_jited: Option<bool>,
    /// Current number of entries, for map types that count them.
    pub entries: Option<u64>,
    /// Percentage of the entries' memory that has been populated in the background. Unset for map
    /// types that allocate memory with each entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub populated_percent: Option<u8>,
    /// Whether the map is read-only for users (`BPF_MAP_FREEZE`).
    pub frozen: bool,
    /// Id of the map's BTF; 0 for none.
    pub btf_id: u32,
    /// Paths of the map's pins.
    pub pinned: Vec<String>,
    /// Ids of the programs that use the map.
    pub prog_ids: Vec<u32>,
    /// Level of a ring buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<RingView>,
}

/// A bridge.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BridgeView {
    /// The bridge's name.
    pub name: String,
    /// Seconds without traffic after which an address is forgotten.
    pub ageing: u64,
    /// Authors of the bridge: `file`, `api`, `saved`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// Ports with this bridge as their upper.
    pub ports: Vec<String>,
    /// Number of addresses known, including expired ones.
    pub addresses: usize,
}

/// An entry of a bridge's forwarding database.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FdbView {
    /// The Ethernet address.
    pub mac: String,
    /// VLAN of the address; 0 for untagged.
    pub vlan: u16,
    /// The port behind which the address is.
    pub port: String,
    /// Seconds since the last frame from the address; unset for permanent entries.
    pub age: Option<f64>,
}

/// A pin.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PinView {
    /// The pin's path.
    pub path: String,
    /// `prog`, `map` or `link`.
    pub kind: String,
    /// The object's id.
    pub id: u32,
}

/// An element of a map.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EntryView {
    /// The key, formatted through its type.
    #[schema(value_type = Object)]
    pub key: Json,
    /// The value, formatted through its type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub value: Option<Json>,
    /// Values by CPU, for per-CPU maps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>)]
    pub values: Option<Vec<Json>>,
    /// Raw bytes of the entry, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<BytesView>,
}

/// Result of loading a map from a file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LoadView {
    /// Distinct keys in the file.
    pub rows: usize,
    /// Rows that a later row with the same key replaced.
    pub duplicates: usize,
    /// Rows that were written to the map.
    pub written: usize,
    /// Rows that the map already had.
    pub unchanged: usize,
    /// Entries absent from the file that were deleted or zeroed.
    pub deleted: usize,
}

/// An element's bytes, in hex.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct BytesView {
    /// Bytes of the key; empty for queues and stacks.
    pub key: String,
    /// Bytes of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Bytes of the values, by CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
    /// Key and value formatted as bpftool does; unset without BTF.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub formatted: Option<Json>,
}

/// The key that follows another one.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NextView {
    /// The key, formatted through its type.
    #[schema(value_type = Object)]
    pub key: Json,
    /// Bytes of the key, in hex.
    pub bytes: String,
    /// Bytes of the key that was given; unset for the first key.
    pub after: Option<String>,
}

/// An uploaded object file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UploadView {
    /// SHA-256 of the file.
    pub sha256: String,
}

/// Status of the daemon: ports, links, and everything around them.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// Ports.
    pub ports: Vec<PortView>,
    /// Bridges.
    pub bridges: Vec<BridgeState>,
    /// Programs on hooks, in the order in which they run.
    pub links: Vec<LinkView>,
    /// Packet queues.
    #[serde(default)]
    pub queues: Vec<QueueView>,
    /// Ports with dequeue programs.
    #[serde(default)]
    pub dequeues: Vec<DequeueView>,
    /// Virtual machines with programs in the host.
    #[serde(default)]
    pub guests: Vec<GuestView>,
    /// Parts of the wanted state that could not be established.
    pub failures: Vec<Failure>,
    /// Lines of the log that could not be written since the daemon started.
    #[serde(default)]
    pub log_lines_lost: u64,
    /// Probable mistakes in the current state.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Things of the configuration file that the API changed or removed.
    #[serde(default)]
    pub overridden: Vec<Overridden>,
    /// Wanted changes that take effect at the next start of the daemon.
    #[serde(default)]
    pub restart: Vec<String>,
    /// Changes that would be lost if the daemon ended, if there are any.
    pub not_saved: Option<String>,
    /// Address of the web page, if one is served.
    pub page: Option<String>,
    /// Version of the daemon.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Number of workers.
    pub workers: usize,
    /// Load of each worker.
    #[serde(default)]
    pub worker_loads: Vec<WorkerView>,
    /// Number of frames for which there is memory.
    #[serde(default)]
    pub frames: usize,
    /// Whether that memory is in huge pages.
    #[serde(default)]
    pub huge_pages: bool,
    /// Population of map memory in the background; absent when it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub population: Option<PopulationView>,
}

/// Map memory that is being populated in the background, so that no packet waits for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PopulationView {
    /// Maps whose memory is not completely populated.
    pub maps: usize,
    /// Bytes of these maps that are populated.
    pub bytes_done: u64,
    /// Size of these maps in bytes.
    pub bytes: u64,
}

/// Counters of all ports and queues.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct StatsView {
    /// Time of reading, in seconds since 1970.
    pub time: f64,
    /// Ports by name.
    pub ports: BTreeMap<String, PortStats>,
    /// Sums over ports that count each frame once: bonds are left out, because their members count
    /// the frames, and pairs, whose frames come from other ports, unless there are only pairs.
    /// Drops are summed over all ports.
    #[serde(default)]
    pub total: TrafficView,
    /// Accounting of all frames.
    pub frames: FrameStats,
    /// Packet queues.
    #[serde(default)]
    pub queues: Vec<QueueView>,
    /// Ports with dequeue programs.
    #[serde(default)]
    pub dequeues: Vec<DequeueView>,
}

/// Traffic of one port, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficView {
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames dropped for any reason, or missed.
    pub drops: u64,
}

impl TrafficView {
    /// Adds the counts of received and sent frames, without drops.
    pub(crate) fn add_frames(&mut self, other: &TrafficView) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
    }
}

/// Counters of a port.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct PortStats {
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames that were lost before reception.
    pub rx_missed: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Verdicts on received frames.
    pub verdicts: BTreeMap<String, u64>,
    /// Received frames that were dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Frames for transmission that were not sent, by reason.
    pub tx_drops: BTreeMap<String, u64>,
}

impl PortStats {
    /// Sums of the port's frames and drops.
    pub(crate) fn traffic(&self) -> TrafficView {
        let dropped = self.drops.values().chain(self.tx_drops.values());
        TrafficView {
            rx_packets: self.rx_packets,
            rx_bytes: self.rx_bytes,
            tx_packets: self.tx_packets,
            tx_bytes: self.tx_bytes,
            drops: dropped.sum::<u64>() + self.rx_missed,
        }
    }
}

/// Accounting of all frames: received + created = delivered + dropped + freed + in flight + held +
/// missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrameStats {
    /// Frames taken out of a receive queue.
    pub received: u64,
    /// Frames made by the daemon.
    pub created: u64,
    /// Frames taken by a transmitter.
    pub delivered: u64,
    /// Frames dropped for any reason.
    pub dropped: u64,
    /// Frames freed without being dropped.
    pub freed: u64,
    /// Frames waiting for another worker.
    pub in_flight: u64,
    /// Frames held by workers that have been busy with one burst for more than 5 ms.
    #[serde(default)]
    pub held: u64,
    /// Frames unaccounted for: 0 unless a worker panicked or the daemon has a bug.
    pub missing: i64,
}

/// Features of a port, by the names of the kernel's flags.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FeaturesView {
    /// The port.
    pub port: String,
    /// The port's kind.
    pub kind: String,
    /// Flags in the kernel's order.
    pub features: Vec<FeatureView>,
}

/// A feature flag.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FeatureView {
    /// The flag's name, such as `NETDEV_XDP_ACT_BASIC`.
    pub name: String,
    /// Whether the port has it.
    pub supported: bool,
    /// The flag's meaning here, or why the port lacks it.
    pub note: String,
}

/// An event in the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Sequence number; a gap means that events were missed.
    pub number: u64,
    /// Time in seconds since 1970.
    pub time: f64,
    /// `change`, `failure`, `recovery` or `warning`.
    pub kind: String,
    /// Text for the operator.
    pub text: String,
    /// The failure that began or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// A line printed by a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PrintedLine {
    /// Sequence number, which also counts lost lines.
    pub number: u64,
    /// Time in seconds since the machine started, as in the kernel's trace.
    pub time: f64,
    /// The worker that ran the program.
    pub worker: u32,
    /// The program's C function.
    pub program: String,
    /// The printed text.
    pub text: String,
}

/// Text that a program printed to a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StreamText {
    /// Any number of lines; the first and last may be parts of lines.
    pub text: String,
}

/// Marker for lost lines, prints or records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LostView {
    /// Number of lost lines, prints or records.
    pub lost: u64,
    /// The CPU, for perf event arrays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
}

/// A record of a ring buffer, or a sample of a perf event array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecordView {
    /// Sequence number.
    pub number: u64,
    /// Time of reading, in seconds since 1970.
    pub time: f64,
    /// The CPU that sent the sample, for perf event arrays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Bytes of the record, in hex.
    pub data: String,
    /// The record formatted through the requested type; unset if it is too short.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub value: Option<Json>,
}

/// Level of a ring buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RingView {
    /// Capacity in bytes.
    pub size: u64,
    /// Bytes of records that have not been consumed.
    pub used: u64,
    /// Records lost because the buffer was full.
    pub lost: u64,
}

/// Result of a change of the whole state.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ReportView {
    /// Descriptions of the changes made.
    pub changes: Vec<String>,
    /// Parts of the wanted state that could not be established.
    pub failures: Vec<Failure>,
    /// Wanted changes that take effect at the next start of the daemon.
    #[serde(default)]
    pub restart: Vec<String>,
}

/// Links that a request made.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct AttachedView {
    /// Probable mistakes, such as a program that keeps its bond from working.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The new links.
    pub links: Vec<LinkView>,
}

/// AF_XDP sockets.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct XskStatus {
    /// Path of the unix socket by which applications create AF_XDP sockets.
    pub socket: String,
    /// Existing sockets, by number.
    pub sockets: Vec<XskView>,
}

/// An AF_XDP socket.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct XskView {
    /// The socket's number in maps.
    pub id: u32,
    /// The port that the socket is bound to; unset if it is unbound or the port is gone.
    pub port: Option<String>,
    /// The queue that the socket is bound to.
    pub queue: Option<u32>,
    /// Whether frames are received into the socket's memory without a copy.
    pub zero_copy: bool,
    /// RX ring: received packets that the application has not read.
    pub rx: Option<XskRing>,
    /// TX ring: packets to be sent.
    pub tx: Option<XskRing>,
    /// Fill ring: chunks for reception.
    pub fill: Option<XskRing>,
    /// Completion ring: chunks of sent packets that the application has not taken back.
    pub completion: Option<XskRing>,
    /// Map entries that refer to the socket, such as `xsks_map[0]`.
    pub maps: Vec<String>,
    /// UDP addresses and ports whose datagrams the socket receives, such as `10.0.0.1:4433`. Those
    /// of a QUIC server end with the first bytes of its connection IDs: `10.0.0.1:4433 (server ID
    /// 070102)`, or `(server ID 070102, draining)` if it takes no new connections.
    #[serde(default)]
    pub udp: Vec<String>,
    /// Counters named as in `struct xdp_statistics`, and some more.
    pub statistics: BTreeMap<String, u64>,
}

/// A ring of an AF_XDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct XskRing {
    /// Capacity in entries.
    pub entries: u32,
    /// Entries in the ring.
    pub level: u32,
}
