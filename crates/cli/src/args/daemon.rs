//! Arguments of the daemon and of the verbs that talk to it.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCompleter;
use towpath_daemon::state::HookState;
use towpath_document::parse_duration;

use super::Selection;
use crate::complete;
use crate::daemon::AsType;

/// Which daemon.
#[derive(Debug, Clone, Args)]
pub(crate) struct SocketArgs {
    /// The daemon's socket
    #[arg(long, value_name = "PATH", env = "TOWPATH_SOCKET")]
    #[arg(default_value = towpath_daemon::SOCKET)]
    pub socket: PathBuf,
}

/// Arguments of `up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Configuration; without one, a daemon without ports
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The socket of the API, instead of the configuration's
    #[arg(long, value_name = "PATH", env = "TOWPATH_SOCKET")]
    pub socket: Option<PathBuf>,
    /// End after this time: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub runs_for: Option<std::time::Duration>,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Configuration
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Arguments of verbs that need nothing but a daemon.
#[derive(Debug, Args)]
pub(crate) struct PlainArgs {
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `reload`.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
    /// Take a configuration without ports, and with it away all ports there are
    #[arg(long)]
    pub allow_empty: bool,
    /// Exit with 0 once the configuration is taken, although something of it isn't so yet
    #[arg(long)]
    pub accept_failures: bool,
}

/// Arguments of verbs about one port or all.
#[derive(Debug, Args)]
pub(crate) struct PortArgs {
    /// Port; all when not given
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: Option<String>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Which port, and which daemon.
    #[command(flatten)]
    pub port: PortArgs,
    /// Exit with 1 while something that is wanted is not there
    #[arg(long)]
    pub exit_status: bool,
}

/// Arguments of `load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Port
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: String,
    /// Object files; one program of each is attached
    #[arg(value_name = "OBJ", required = true)]
    pub objects: Vec<PathBuf>,
    /// Which program of each.
    #[command(flatten)]
    pub selection: Selection,
    /// Smaller runs earlier [default: the object's, else 50]
    #[arg(short = 'P', long, value_name = "PRIO")]
    pub prio: Option<u32>,
    /// Verdicts after which the next program runs, with commas between them [default: the object's,
    /// else XDP_PASS]
    #[arg(short = 'A', long, visible_alias = "proceed-on", value_name = "ACTIONS")]
    #[arg(value_delimiter = ',')]
    pub actions: Option<Vec<String>>,
    /// Hook: frames that arrive (rx), frames that leave (tx), or the next packet of a queue
    /// (dequeue)
    #[arg(long, value_enum, default_value = "rx")]
    pub hook: HookArg,
    /// Take the place of the program that this is a new version of, with its maps and priority:
    /// of the only one there, of the one with the same name, of that id, or of all
    #[arg(long, value_name = "ID|all", num_args = 0..=1, require_equals = true)]
    pub replace: Option<Option<Replaced>>,
    /// Only if nothing is attached yet
    #[arg(long, conflicts_with = "replace")]
    pub exclusive: bool,
    /// As xdp-loader has it. Programs run natively here, always
    #[arg(short, long, value_enum, value_name = "MODE")]
    pub mode: Option<ModeArg>,
    /// Set a global variable: an integer, true, false, or hex:BYTES
    #[arg(long = "set", value_name = "VAR=VALUE")]
    pub set: Vec<super::Assignment>,
    /// Give a map whose size the object leaves to its loader (max_entries 0) room for N elements
    #[arg(long = "map-size", value_name = "NAME=N")]
    pub map_sizes: Vec<super::MapSize>,
    /// Fill the program's maps from this file
    #[arg(long, value_name = "FILE")]
    pub map_init: Option<PathBuf>,
    /// Use a map that is there already, by its id or the path of its pin
    #[arg(long = "map", value_name = "NAME=ID|PIN")]
    pub shared_maps: Vec<super::SharedMap>,
    /// With --replace: start with empty maps, instead of the previous program's
    #[arg(long, requires = "replace")]
    pub fresh_maps: bool,
    /// With --replace: treatment of the entries of a map whose shape changed
    #[arg(long, value_name = "NAME=copy|drop", requires = "replace")]
    pub map_migrate: Vec<super::Migration>,
    /// With --replace: a map of the program before has another name in the new one
    #[arg(long, value_name = "OLD=NEW", requires = "replace")]
    pub map_rename: Vec<super::Rename>,
    /// With --replace: entries that the new program has no room or no map for may go
    #[arg(long, requires = "replace")]
    pub lossy: bool,
    /// Bind the programs to the port, so that they may ask for receive hints (xdpmeta_dev)
    #[arg(long)]
    pub dev_bound: bool,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A hook.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum HookArg {
    /// Frames that arrive.
    Rx,
    /// Frames that leave.
    Tx,
    /// Which packet of a queue leaves next.
    Dequeue,
}

impl From<HookArg> for HookState {
    fn from(hook: HookArg) -> HookState {
        match hook {
            HookArg::Rx => HookState::Rx,
            HookArg::Tx => HookState::Tx,
            HookArg::Dequeue => HookState::Dequeue,
        }
    }
}

/// Where an XDP program runs, in xdp-loader's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// In the driver, as all programs here.
    Native,
    /// The best there is, which is that.
    Unspecified,
    /// Behind the driver, on socket buffers.
    #[value(alias = "generic")]
    Skb,
    /// In the device.
    Hw,
}

/// Arguments of `net`.
#[derive(Debug, Subcommand)]
pub(crate) enum NetCommand {
    /// List programs on arriving frames of ports
    #[command(visible_alias = "list")]
    Show(PortArgs),
    /// Tells how programs are attached here: `load`
    #[command(hide = true)]
    Attach(ElementArgs),
    /// Detach all programs of a port: xdp dev PORT
    Detach(ElementArgs),
}

/// The commands under `btf`.
#[derive(Debug, Subcommand)]
pub(crate) enum BtfCommand {
    /// Show all types: of `file OBJ`, or of a daemon's `prog WHICH` or `map WHICH`
    Dump(BtfDumpArgs),
}

/// Arguments of `btf dump`.
#[derive(Debug, Args)]
pub(crate) struct BtfDumpArgs {
    /// e.g. file firewall.o, prog id 7, map name flows; `format raw` may follow
    #[arg(value_name = "WORDS", required = true, num_args = 1..)]
    pub words: Vec<String>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `prog load`.
#[derive(Debug, Args)]
pub(crate) struct ProgLoadArgs {
    /// Object file
    #[arg(value_name = "OBJ")]
    pub object: PathBuf,
    /// Where the program is pinned
    #[arg(value_name = "PATH")]
    pub path: String,
    /// In bpftool's words: `type xdp`, `map name NAME WHICH` for a map that is there already
    #[arg(value_name = "WORDS", num_args = 0..)]
    pub words: Vec<String>,
    /// Which program of the object.
    #[command(flatten)]
    pub selection: Selection,
    /// Set a global variable: an integer, true, false, or hex:BYTES
    #[arg(long = "set", value_name = "VAR=VALUE")]
    pub set: Vec<super::Assignment>,
    /// Give a map whose size the object leaves to its loader (max_entries 0) room for N elements
    #[arg(long = "map-size", value_name = "NAME=N")]
    pub map_sizes: Vec<super::MapSize>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Whose place a program takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// The place of the program or link with this id.
    Id(u32),
    /// The places of all programs on the hook.
    All,
}

impl FromStr for Replaced {
    type Err = String;

    fn from_str(text: &str) -> Result<Replaced, String> {
        match text {
            "all" => Ok(Replaced::All),
            id => id.parse().map(Replaced::Id).map_err(|_no| "expected an id, or all".to_owned()),
        }
    }
}

/// Arguments of `unload`.
#[derive(Debug, Args)]
pub(crate) struct UnloadArgs {
    /// Port
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: String,
    /// The program with this id [default: the port's only one]
    #[arg(short, long, value_name = "ID")]
    pub id: Option<u32>,
    /// Only from this hook [default: from each]
    #[arg(long, value_enum)]
    pub hook: Option<HookArg>,
    /// All programs of the port
    #[arg(short, long, conflicts_with = "id")]
    pub all: bool,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Ask the daemon once in so many seconds
    #[arg(short, long, value_name = "SEC", default_value = "1", value_parser = parse_seconds)]
    pub interval: f64,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Port; all when not given
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: Option<String>,
    /// Show rates of each of these many seconds until interrupted; with --json a line each
    #[arg(short, long, value_name = "SEC", value_parser = parse_seconds)]
    pub interval: Option<f64>,
    /// End after so many intervals
    #[arg(long, value_name = "N", requires = "interval")]
    pub count: Option<u64>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `events`.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// End after so many events
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The commands under `port`.
#[derive(Debug, Subcommand)]
pub(crate) enum PortCommand {
    /// Add a port: KEY=VALUE as in the configuration
    ///
    /// e.g. `towpath port add p0 kind=pair peer=p1 upper=br0`. A pair's peer is made with it.
    Add(PortKeysArgs),
    /// Take a port away, with its peer and its programs
    #[command(visible_alias = "delete")]
    Del(PortNameArgs),
    /// Change a port: KEY=VALUE; KEY= takes a value away
    Set(PortKeysArgs),
    /// Show ports
    #[command(visible_alias = "list")]
    Show(PortArgs),
}

/// A port and its keys.
#[derive(Debug, Args)]
pub(crate) struct PortKeysArgs {
    /// Port
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: String,
    /// Keys, as in the configuration
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub keys: Vec<String>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A port.
#[derive(Debug, Args)]
pub(crate) struct PortNameArgs {
    /// Port
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: String,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A program, map or link, as bpftool names it: `id 7`, `name NAME`, or just one of them.
#[derive(Debug, Args)]
pub(crate) struct ObjectArgs {
    /// Which one: id N, name NAME, tag TAG, pinned PATH, or the id or name itself; all when not
    /// given
    #[arg(value_name = "WHICH", num_args = 0..=2)]
    #[arg(add = ArgValueCompleter::new(complete::objects))]
    pub which: Vec<String>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The commands under `guest`.
#[derive(Debug, Subcommand)]
pub(crate) enum GuestCommand {
    /// Show programs and objects of each virtual machine
    #[command(visible_alias = "list")]
    Show(PortArgs),
    /// Write a virtual machine's objects to a file, while it runs
    Save(GuestFileArgs),
    /// Restore saved state into an empty VM
    Restore(GuestFileArgs),
    /// Take everything away that a virtual machine has
    Reset(GuestArgs),
}

/// A virtual machine.
#[derive(Debug, Args)]
pub(crate) struct GuestArgs {
    /// The virtual machine's port
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: String,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A virtual machine and a file.
#[derive(Debug, Args)]
pub(crate) struct GuestFileArgs {
    /// The virtual machine's port
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: String,
    /// The file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The commands under `bridge`.
#[derive(Debug, Subcommand)]
pub(crate) enum BridgeCommand {
    /// List bridges, with their ports
    #[command(visible_alias = "list")]
    Show(PlainArgs),
    /// List the addresses that a bridge knows, and the ports they are behind
    Fdb(BridgeArgs),
    /// Make a bridge; ports are put into it with `port set PORT upper=BRIDGE`
    Add(BridgeKeysArgs),
    /// Change a bridge
    Set(BridgeKeysArgs),
    /// Take a bridge away that no port is in
    #[command(visible_alias = "delete")]
    Del(BridgeArgs),
}

/// A bridge.
#[derive(Debug, Args)]
pub(crate) struct BridgeArgs {
    /// Bridge
    #[arg(value_name = "BRIDGE")]
    pub bridge: String,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A bridge and its keys.
#[derive(Debug, Args)]
pub(crate) struct BridgeKeysArgs {
    /// Bridge
    #[arg(value_name = "BRIDGE")]
    pub bridge: String,
    /// Seconds after which an address is forgotten that was not heard of
    #[arg(value_name = "ageing=SECONDS")]
    pub keys: Vec<String>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// An object and where it is to be pinned.
#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// e.g. id 7 firewall, or name limits fw/limits: below /sys/fs/bpf of the daemon's own
    #[arg(value_name = "WHICH PATH", required = true, num_args = 2..=3)]
    pub words: Vec<String>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A pin.
#[derive(Debug, Args)]
pub(crate) struct UnpinArgs {
    /// Where it is
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The commands under `map`.
#[derive(Debug, Subcommand)]
pub(crate) enum MapCommand {
    /// List maps of loaded programs
    #[command(visible_alias = "list")]
    Show(ObjectArgs),
    /// Show everything in a map
    Dump(MapDumpArgs),
    /// Create a map and pin it: PATH type KIND key BYTES value BYTES entries N name NAME [flags F]
    ///
    /// It lives as long as its pin, and ends with the daemon.
    Create(ElementArgs),
    /// Look an element up: MAP key KEY
    Lookup(ElementArgs),
    /// Show the key behind a key, or the first: MAP [key KEY]
    Getnext(ElementArgs),
    /// Show the next value of a queue or stack: MAP
    Peek(ElementArgs),
    /// Take the next value out of a queue or stack: MAP
    #[command(visible_alias = "dequeue")]
    Pop(ElementArgs),
    /// Put a value into a queue or stack: MAP value VALUE
    #[command(visible_alias = "enqueue")]
    Push(ElementArgs),
    /// Put an element: MAP key KEY value VALUE [any|exist|noexist]
    Update(ElementArgs),
    /// Delete an element: MAP key KEY
    Delete(ElementArgs),
    /// Put the rows of a file into a map, all of them or none: MAP FILE
    Load(MapLoadArgs),
    /// Keep a map alive, under a name: MAP PATH
    Pin(PinArgs),
    /// End a pin
    Unpin(UnpinArgs),
    /// Show records of a ring buffer or perf event array, as programs send them
    ///
    /// A record goes to one reader, so a map has one at a time. One that is too slow loses records,
    /// which are counted; programs find no room then, as in the kernel. Ends when interrupted.
    #[command(name = "event_pipe", visible_alias = "event-pipe")]
    EventPipe(EventPipeArgs),
}

/// Arguments of `map dump`.
#[derive(Debug, Args)]
pub(crate) struct MapDumpArgs {
    /// Which map, and which daemon.
    #[command(flatten)]
    pub object: ObjectArgs,
    /// Show the key, or FIELD (key.source, value.address), as an IPv4 address, or a number in
    /// network order: ipv4, be16, be32
    #[arg(long = "as", value_name = "[FIELD=]TYPE")]
    pub as_types: Vec<AsType>,
    /// Write rows that `map load` reads
    #[arg(long, value_name = "FORMAT", conflicts_with = "as_types")]
    pub format: Option<RowFormat>,
}

/// Arguments of `map load`.
#[derive(Debug, Args)]
pub(crate) struct MapLoadArgs {
    /// The map, then the file (-: standard input), e.g. routes table.csv, or id 7 -
    #[arg(value_name = "MAP FILE", required = true, num_args = 2..=3)]
    #[arg(add = ArgValueCompleter::new(complete::objects))]
    pub words: Vec<String>,
    /// Remove elements that the file does not have, so that both are equal afterwards
    #[arg(long)]
    pub replace: bool,
    /// Format of the file [default: by the end of its name (.csv, .bin), else json]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<RowFormat>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RowFormat {
    /// An object of key and value in each line, or a list of them, as `map dump --json` writes it
    Json,
    /// A first line that names columns (key, value, key.FIELD, value.FIELD, cpu0), then the cells
    Csv,
    /// The bytes of key and value, of per-CPU kinds a value for each CPU, and nothing else
    Packed,
}

impl RowFormat {
    /// As the API calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            RowFormat::Json => "json",
            RowFormat::Csv => "csv",
            RowFormat::Packed => "packed",
        }
    }
}

/// Arguments of `map event_pipe`.
#[derive(Debug, Args)]
pub(crate) struct EventPipeArgs {
    /// Which map: id N, name NAME, pinned PATH, or the id or name itself; then `cpu N` for one slot
    /// of a perf event array
    #[arg(value_name = "MAP", required = true, num_args = 1..)]
    #[arg(add = ArgValueCompleter::new(complete::objects))]
    pub words: Vec<String>,
    /// Show records through this structure of the object's types (BTF), not in hex
    #[arg(long, value_name = "STRUCT")]
    pub r#type: Option<String>,
    /// End after so many records
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `prog tracelog`.
#[derive(Debug, Args)]
pub(crate) struct TracelogArgs {
    /// A program's stream: stdout PROG or stderr PROG; without, lines of all programs by bpf_printk
    #[arg(value_name = "STREAM", num_args = 0..=3)]
    pub words: Vec<String>,
    /// Go on when all of a stream was read, until interrupted or the program goes
    #[arg(short, long)]
    pub follow: bool,
    /// End after so many lines, or pieces of a stream
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A map and an element, in bpftool's words.
///
/// KEY and VALUE are JSON through the map's types (7, '{"packets": 1}', 10.0.0.1), or bytes: hex 0a
/// 00 00 01. Programs and maps as values are: id N, name NAME, tag TAG, pinned PATH; entries of
/// device maps and cpumaps: N [prog WHICH].
#[derive(Debug, Args)]
pub(crate) struct ElementArgs {
    /// e.g. id 7 key 10.0.0.1 value 5, or name limits key hex 01 00 00 00
    #[arg(value_name = "WORDS", required = true, num_args = 1.., allow_negative_numbers = true)]
    #[arg(add = ArgValueCompleter::new(complete::objects))]
    pub words: Vec<String>,
    /// Show the key, or FIELD (key.source, value.address), as an IPv4 address, or a number in
    /// network order: ipv4, be16, be32
    #[arg(long = "as", value_name = "[FIELD=]TYPE")]
    pub as_types: Vec<AsType>,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The commands under `link`.
#[derive(Debug, Subcommand)]
pub(crate) enum LinkCommand {
    /// List programs on hooks
    #[command(visible_alias = "list")]
    Show(ObjectArgs),
    /// Detach a link
    Detach(ObjectArgs),
    /// Keep a link alive, under a name: LINK PATH
    Pin(PinArgs),
    /// End a pin
    Unpin(UnpinArgs),
}

/// Arguments of `exec`.
#[derive(Debug, Subcommand)]
pub(crate) enum ExecCommand {
    /// As `towpath up`
    Up(UpArgs),
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = parse_duration(text)?.as_secs_f64();
    if seconds < 0.01 { Err("at least 10ms".to_owned()) } else { Ok(seconds) }
}
