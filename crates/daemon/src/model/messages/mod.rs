//! Requests and answers: plain data, the same for both ends.

pub mod bonds;
mod guests;
mod history;
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
    /// What is wanted of it.
    #[serde(flatten)]
    pub state: PortState,
    /// Who wants it: `file`, `api`, `saved`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// Its ifindex; 0 as long as it could not be opened.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: String,
    /// Receive queues.
    pub queues: u32,
    /// Largest payload it sends.
    pub mtu_now: u32,
    /// Whether frames can leave and arrive now.
    pub link: bool,
    /// Why it is of no more use, if it is not.
    pub failure: Option<String>,
    /// What went wrong last when sending; frames were dropped as `tx_error`.
    pub tx_error: Option<String>,
    /// All its queues came to their end: a capture was read to the end.
    pub finished: bool,
    /// The bond it is a member of.
    pub master: Option<String>,
    /// The bond whose programs run here, delegated.
    pub delegated_by: Option<String>,
    /// What else its kind has to say.
    pub details: BTreeMap<String, String>,
}

/// A program, with bpftool's keys, and some more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProgramView {
    /// Its id.
    pub id: u32,
    /// `xdp`
    pub r#type: String,
    /// Its name, at most 15 characters.
    pub name: String,
    /// First 8 bytes of the hash of its instructions.
    pub tag: String,
    /// Whether its licence allows GPL-only helpers.
    pub gpl_compatible: bool,
    /// When it was loaded, seconds since 1970.
    pub loaded_at: u64,
    /// The user that loaded it.
    pub uid: u32,
    /// Bytes of its instructions.
    pub bytes_xlated: usize,
    /// Whether it runs as machine code.
    pub jited: bool,
    /// Bytes of machine code.
    pub bytes_jited: usize,
    /// Bytes of memory its instructions take, in whole pages.
    #[serde(default)]
    pub bytes_memlock: usize,
    /// Ids of its maps.
    pub map_ids: Vec<u32>,
    /// The id of its types, 0 for none.
    pub btf_id: u32,
    /// Paths of its pins.
    pub pinned: Vec<String>,
    /// Its C function.
    pub function: String,
    /// What the state calls it; nothing when nobody wants it but a pin or another program's map.
    pub key: Option<String>,
    /// Who wants it to run somewhere: `file`, `api`, `saved`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// Where its object file came from.
    pub object: Option<String>,
    /// SHA-256 of the object file.
    pub sha256: Option<String>,
    /// The port it is bound to (`BPF_F_XDP_DEV_BOUND_ONLY`); empty when that is gone.
    pub bound_to: Option<String>,
    /// Takes frames of several buffers.
    pub frags: bool,
    /// Instructions.
    pub insns: usize,
    /// How it is executed now: `interp`, `jit`, `llvm`.
    pub exec: String,
    /// Why not as it was meant to be.
    pub fallback: Option<String>,
    /// What made the choice between the compiler's tiers, where they were measured.
    pub measured: Option<String>,
}

/// What came of a test run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    /// What the last run returned; 0 of live frames.
    pub retval: u32,
    /// Metadata and packet as the last run left them, in hex; nothing of live frames.
    pub data_out: String,
    /// Bytes of metadata.
    pub metadata: u32,
    /// Where the packet's first buffer ends.
    pub linear_end: u32,
    /// Nanoseconds of one run, on average.
    pub duration_ns: u64,
}

/// A program on a hook.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// Its id.
    pub id: u32,
    /// `xdp`
    pub r#type: String,
    /// The port; empty when it was detached and only a pin is left.
    pub port: String,
    /// Who wants the program here; nobody, when it came through `bpf(2)`: `file`, `api`, `saved`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// The port's ifindex, 0 when it was detached.
    pub ifindex: u32,
    /// The hook.
    pub hook: HookState,
    /// The program's id.
    pub prog_id: u32,
    /// The program's name.
    pub name: String,
    /// The program's tag.
    pub tag: String,
    /// Smaller runs earlier.
    pub prio: u32,
    /// Verdicts after which the next program runs.
    pub actions: Vec<String>,
    /// Paths of its pins.
    pub pinned: Vec<String>,
    /// How the program is executed now.
    pub exec: String,
    /// Why not as it was meant to be.
    pub fallback: Option<String>,
    /// What made the choice between the compiler's tiers, where they were measured.
    pub measured: Option<String>,
    /// Frames it judged.
    pub runs: u64,
    /// Its verdicts.
    pub verdicts: BTreeMap<String, u64>,
    /// Runs that did what no verified program can do.
    pub faults: u64,
}

/// A map, with bpftool's keys, and some more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MapView {
    /// Its id.
    pub id: u32,
    /// Its kind.
    pub r#type: String,
    /// Its name, at most 15 characters.
    pub name: String,
    /// `BPF_F_*`
    pub flags: u32,
    /// Bytes of a key.
    pub bytes_key: u32,
    /// Bytes of a value.
    pub bytes_value: u32,
    /// Capacity.
    pub max_entries: u32,
    /// Bytes of memory it takes.
    #[serde(default)]
    pub bytes_memlock: u64,
    /// Of maps of programs that have one: whether all of them are machine code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_jited: Option<bool>,
    /// Elements now, for kinds that count.
    pub entries: Option<u64>,
    /// How much of the memory that its entries will take is there, in percent: it is made be there
    /// in the background. Nothing for kinds whose memory comes with their entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub populated_percent: Option<u8>,
    /// Whether users may not write any more.
    pub frozen: bool,
    /// The id of its types, 0 for none.
    pub btf_id: u32,
    /// Paths of its pins.
    pub pinned: Vec<String>,
    /// Programs that use it.
    pub prog_ids: Vec<u32>,
    /// How full it is, of a ring buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<RingView>,
}

/// A bridge.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BridgeView {
    /// Its name.
    pub name: String,
    /// Seconds after which an address is forgotten.
    pub ageing: u64,
    /// Who wants it: `file`, `api`, `saved`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// Ports whose upper it is.
    pub ports: Vec<String>,
    /// Addresses it knows, old ones too.
    pub addresses: usize,
}

/// An address that a bridge knows.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FdbView {
    /// The address.
    pub mac: String,
    /// Its VLAN, 0 for untagged.
    pub vlan: u16,
    /// The port it is behind.
    pub port: String,
    /// Seconds since it was heard of; nothing for one that stays.
    pub age: Option<f64>,
}

/// A pin.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PinView {
    /// Its path.
    pub path: String,
    /// `prog`, `map` or `link`.
    pub kind: String,
    /// The object's id.
    pub id: u32,
}

/// An element of a map.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EntryView {
    /// Its key, through its type.
    #[schema(value_type = Object)]
    pub key: Json,
    /// Its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub value: Option<Json>,
    /// Its values by CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>)]
    pub values: Option<Vec<Json>>,
    /// Its bytes, when they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<BytesView>,
}

/// What became of a map that was loaded from a file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LoadView {
    /// Rows of the file, each key once.
    pub rows: usize,
    /// Rows of which another one with the same key came after.
    pub duplicates: usize,
    /// Rows that were written.
    pub written: usize,
    /// Rows that were there already.
    pub unchanged: usize,
    /// Elements that were not in the file and went, or became zero.
    pub deleted: usize,
}

/// An element's bytes, in hex.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct BytesView {
    /// Of its key; nothing for queues and stacks.
    pub key: String,
    /// Of its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Of its values, by CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
    /// Key and value through their types, as bpftool shows them; nothing without types.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub formatted: Option<Json>,
}

/// The key behind another one.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NextView {
    /// The key, through its type.
    #[schema(value_type = Object)]
    pub key: Json,
    /// Its bytes, in hex.
    pub bytes: String,
    /// Those of the key that was asked for; nothing without one.
    pub after: Option<String>,
}

/// An object that was uploaded.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UploadView {
    /// SHA-256 of its bytes.
    pub sha256: String,
}

/// A port, its links, and what there is beside.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// Ports.
    pub ports: Vec<PortView>,
    /// Bridges.
    pub bridges: Vec<BridgeState>,
    /// Programs on hooks, in the order they run.
    pub links: Vec<LinkView>,
    /// Queues of packets.
    #[serde(default)]
    pub queues: Vec<QueueView>,
    /// Ports that take packets out of them.
    #[serde(default)]
    pub dequeues: Vec<DequeueView>,
    /// Virtual machines that have programs run.
    #[serde(default)]
    pub guests: Vec<GuestView>,
    /// What is wanted and is not there.
    pub failures: Vec<Failure>,
    /// Lines of the log that could not be written since the daemon started.
    #[serde(default)]
    pub log_lines_lost: u64,
    /// What is there and probably not what was meant.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What isn't as the configuration file has it, since the API changed or removed it.
    #[serde(default)]
    pub overridden: Vec<Overridden>,
    /// What is wanted and comes when the daemon is started again.
    #[serde(default)]
    pub restart: Vec<String>,
    /// What would be lost with the daemon, if anything.
    pub not_saved: Option<String>,
    /// Where the page for people is, if it is served.
    pub page: Option<String>,
    /// Version of the daemon.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Workers.
    pub workers: usize,
    /// What each of them does.
    #[serde(default)]
    pub worker_loads: Vec<WorkerView>,
    /// Frames that there is memory for.
    #[serde(default)]
    pub frames: usize,
    /// Whether that memory is in huge pages.
    #[serde(default)]
    pub huge_pages: bool,
    /// Memory of maps that is still being made; absent where all is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub population: Option<PopulationView>,
}

/// Memory of maps that is being made in the background, so that no packet waits for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PopulationView {
    /// Maps whose memory is not all there yet.
    pub maps: usize,
    /// Bytes of these maps that are there.
    pub bytes_done: u64,
    /// Bytes that these maps have in all.
    pub bytes: u64,
}

/// Counters of everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct StatsView {
    /// Seconds since 1970 when it was read.
    pub time: f64,
    /// Ports by name.
    pub ports: BTreeMap<String, PortStats>,
    /// All ports together, each frame once: without bonds, whose frames are their members', and
    /// without pairs, whose frames come from other ports, where there are others. Drops are those
    /// of all.
    #[serde(default)]
    pub total: TrafficView,
    /// What became of all frames.
    pub frames: FrameStats,
    /// Queues of packets.
    #[serde(default)]
    pub queues: Vec<QueueView>,
    /// Ports that take packets out of them.
    #[serde(default)]
    pub dequeues: Vec<DequeueView>,
}

/// Frames of one port, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficView {
    /// Frames received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames dropped, for whatever reason, or missed.
    pub drops: u64,
}

impl TrafficView {
    /// Adds frames received and sent, and no drops.
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
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames lost before they could be received.
    pub rx_missed: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Verdicts on what arrived.
    pub verdicts: BTreeMap<String, u64>,
    /// Frames that arrived here and were dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Frames on their way out that were not taken, by reason.
    pub tx_drops: BTreeMap<String, u64>,
}

impl PortStats {
    /// Its frames, and all that it dropped.
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

/// Counts of all frames: received + created = delivered + dropped + freed + in flight + held +
/// missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrameStats {
    /// Taken out of a receive queue.
    pub received: u64,
    /// Made here.
    pub created: u64,
    /// Taken by a transmitter.
    pub delivered: u64,
    /// Dropped for some reason.
    pub dropped: u64,
    /// Used up without being dropped.
    pub freed: u64,
    /// Waiting for another worker.
    pub in_flight: u64,
    /// In the hands of workers that are at one burst for more than 5 ms.
    #[serde(default)]
    pub held: u64,
    /// Lost: 0, unless a worker panicked, or there is a fault in the daemon.
    pub missing: i64,
}

/// What a port can do, by the names of the kernel's feature flags.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FeaturesView {
    /// The port.
    pub port: String,
    /// Its kind.
    pub kind: String,
    /// Flags in the kernel's order.
    pub features: Vec<FeatureView>,
}

/// One flag.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FeatureView {
    /// Its name, e.g. `NETDEV_XDP_ACT_BASIC`.
    pub name: String,
    /// Whether the port has it.
    pub supported: bool,
    /// What it means here, or why it is missing.
    pub note: String,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Counts up by one; a gap means that events were missed.
    pub number: u64,
    /// Seconds since 1970.
    pub time: f64,
    /// `change`, `failure`, `recovery` or `warning`.
    pub kind: String,
    /// What happened.
    pub text: String,
    /// The failure that began or is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// A line that a program printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PrintedLine {
    /// Counts up by one, with those that were lost.
    pub number: u64,
    /// Seconds since the machine was started, as in the kernel's trace.
    pub time: f64,
    /// The worker that ran the program.
    pub worker: u32,
    /// The program's C function.
    pub program: String,
    /// What it printed.
    pub text: String,
}

/// What a program printed to a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StreamText {
    /// Any number of lines, and parts of them.
    pub text: String,
}

/// That something was lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LostView {
    /// Lines, prints or records.
    pub lost: u64,
    /// Of a perf event array: where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
}

/// A record of a ring buffer, or a sample of a perf event array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecordView {
    /// Counts up by one.
    pub number: u64,
    /// Seconds since 1970 when it was taken out.
    pub time: f64,
    /// Of a perf event array: the CPU it was sent from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Its bytes, in hex.
    pub data: String,
    /// Through the type that was asked for; nothing when there are too few bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub value: Option<Json>,
}

/// How full a ring buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RingView {
    /// Bytes that there is room for.
    pub size: u64,
    /// Bytes of records that nobody has taken yet.
    pub used: u64,
    /// Records that there was no room for.
    pub lost: u64,
}

/// What a change of everything did.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ReportView {
    /// What changed.
    pub changes: Vec<String>,
    /// What is wanted and is not there.
    pub failures: Vec<Failure>,
    /// What is wanted and comes when the daemon is started again.
    #[serde(default)]
    pub restart: Vec<String>,
}

/// Ids of links that were made.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct AttachedView {
    /// What is probably not meant: a program that keeps its bond from working.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The links.
    pub links: Vec<LinkView>,
}

/// AF_XDP sockets.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct XskStatus {
    /// Where applications get one: the path of a unix socket.
    pub socket: String,
    /// The sockets there are, by number.
    pub sockets: Vec<XskView>,
}

/// An AF_XDP socket.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct XskView {
    /// Its number in maps.
    pub id: u32,
    /// The port it is bound to; nothing before that, and when the port is gone.
    pub port: Option<String>,
    /// The queue it is bound to.
    pub queue: Option<u32>,
    /// Whether frames lie in its memory from the start.
    pub zero_copy: bool,
    /// Packets received that the application has not taken yet.
    pub rx: Option<XskRing>,
    /// Packets that wait to be sent.
    pub tx: Option<XskRing>,
    /// Chunks to receive into.
    pub fill: Option<XskRing>,
    /// Chunks of sent packets that the application has not taken back yet.
    pub completion: Option<XskRing>,
    /// Entries of maps that lead to it, like `xsks_map[0]`.
    pub maps: Vec<String>,
    /// What it counted; the names of `struct xdp_statistics`, and more.
    pub statistics: BTreeMap<String, u64>,
}

/// A ring of an AF_XDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct XskRing {
    /// Entries there is room for.
    pub entries: u32,
    /// Entries in it.
    pub level: u32,
}
