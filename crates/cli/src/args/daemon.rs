//! Arguments of the daemon and of the commands that talk to it.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCompleter;
use towpath_daemon::state::HookState;
use towpath_document::parse_duration;

use super::Selection;
use crate::complete;
use crate::daemon::AsType;

/// The daemon.
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
    /// Configuration file [default: a daemon without ports]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The API's socket [default: the configuration's]
    #[arg(long, value_name = "PATH", env = "TOWPATH_SOCKET")]
    pub socket: Option<PathBuf>,
    /// End after this time: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub runs_for: Option<std::time::Duration>,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Arguments of commands that take only the daemon's socket.
#[derive(Debug, Args)]
pub(crate) struct PlainArgs {
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `reload`.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
    /// Accept a configuration without ports, which removes all ports
    #[arg(long)]
    pub allow_empty: bool,
    /// Exit with 0 once the daemon has accepted the configuration, even if parts of it failed
    #[arg(long)]
    pub accept_failures: bool,
}

/// Arguments of commands about one port or all ports.
#[derive(Debug, Args)]
pub(crate) struct PortArgs {
    /// Port [default: all]
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: Option<String>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The port and the daemon.
    #[command(flatten)]
    pub port: PortArgs,
    /// Exit with 1 if the actual state differs from the wanted one
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
    /// The program of each object.
    #[command(flatten)]
    pub selection: Selection,
    /// Priority: programs with smaller numbers run first [default: the object's, else 50]
    #[arg(short = 'P', long, value_name = "PRIO")]
    pub prio: Option<u32>,
    /// Verdicts after which the next program runs, separated by commas [default: the object's, else
    /// XDP_PASS]
    #[arg(short = 'A', long, visible_alias = "proceed-on", value_name = "ACTIONS")]
    #[arg(value_delimiter = ',')]
    pub actions: Option<Vec<String>>,
    /// Hook: frames that arrive (rx), frames that leave (tx), or the next packet of a queue
    /// (dequeue)
    #[arg(long, value_enum, default_value = "rx")]
    pub hook: HookArg,
    /// Replace an attached program, and take over its maps and priority: without a value, the
    /// hook's only program or the one with the same name; else the program with this id, or all
    #[arg(long, value_name = "ID|all", num_args = 0..=1, require_equals = true)]
    pub replace: Option<Option<Replaced>>,
    /// Fail if a program is already attached
    #[arg(long, conflicts_with = "replace")]
    pub exclusive: bool,
    /// Mode, for xdp-loader's command lines: programs always run natively
    #[arg(short, long, value_enum, value_name = "MODE")]
    pub mode: Option<ModeArg>,
    /// Set a global variable: an integer, true, false, or hex:BYTES
    #[arg(long = "set", value_name = "VAR=VALUE")]
    pub set: Vec<super::Assignment>,
    /// Set the size of a map that the object leaves to its loader (max_entries 0)
    #[arg(long = "map-size", value_name = "NAME=N")]
    pub map_sizes: Vec<super::MapSize>,
    /// Fill the program's maps from this file
    #[arg(long, value_name = "FILE")]
    pub map_init: Option<PathBuf>,
    /// Use an existing map, named by its id or the path of its pin
    #[arg(long = "map", value_name = "NAME=ID|PIN")]
    pub shared_maps: Vec<super::SharedMap>,
    /// With --replace: start with empty maps, instead of the previous program's
    #[arg(long, requires = "replace")]
    pub fresh_maps: bool,
    /// With --replace: copy or drop the entries of a map whose definition changed
    #[arg(long, value_name = "NAME=copy|drop", requires = "replace")]
    pub map_migrate: Vec<super::Migration>,
    /// With --replace: give map NEW the entries of the previous program's map OLD
    #[arg(long, value_name = "OLD=NEW", requires = "replace")]
    pub map_rename: Vec<super::Rename>,
    /// With --replace: allow the loss of entries that have no room or no map in the new program
    #[arg(long, requires = "replace")]
    pub lossy: bool,
    /// Bind the programs to the port, so that they can read receive hints (xdpmeta_dev)
    #[arg(long)]
    pub dev_bound: bool,
    /// The daemon.
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
    /// The choice of the next packet that leaves a queue.
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
    /// In the driver: the mode of all programs in Towpath.
    Native,
    /// The best available mode, which is native.
    Unspecified,
    /// After the driver, on socket buffers (not available).
    #[value(alias = "generic")]
    Skb,
    /// In the device (not available).
    Hw,
}

/// Arguments of `net`.
#[derive(Debug, Subcommand)]
pub(crate) enum NetCommand {
    /// List programs on arriving frames of ports
    #[command(visible_alias = "list")]
    Show(PortArgs),
    /// Names the command that attaches programs: `load`
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
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `prog load`.
#[derive(Debug, Args)]
pub(crate) struct ProgLoadArgs {
    /// Object file
    #[arg(value_name = "OBJ")]
    pub object: PathBuf,
    /// Path of the pin
    #[arg(value_name = "PATH")]
    pub path: String,
    /// In bpftool's words: `type xdp`, `type syscall`, `map name NAME WHICH` for an existing map
    #[arg(value_name = "WORDS", num_args = 0..)]
    pub words: Vec<String>,
    /// The program of the object.
    #[command(flatten)]
    pub selection: Selection,
    /// Set a global variable: an integer, true, false, or hex:BYTES
    #[arg(long = "set", value_name = "VAR=VALUE")]
    pub set: Vec<super::Assignment>,
    /// Set the size of a map that the object leaves to its loader (max_entries 0)
    #[arg(long = "map-size", value_name = "NAME=N")]
    pub map_sizes: Vec<super::MapSize>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The program that a new one replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// The program or link with this id.
    Id(u32),
    /// All programs on the hook.
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
    /// Hook to detach from [default: all]
    #[arg(long, value_enum)]
    pub hook: Option<HookArg>,
    /// All programs of the port
    #[arg(short, long, conflicts_with = "id")]
    pub all: bool,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Seconds between two queries of the daemon
    #[arg(short, long, value_name = "SEC", default_value = "1", value_parser = parse_seconds)]
    pub interval: f64,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Port [default: all]
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: Option<String>,
    /// Show rates every SEC seconds until interrupted; with --json, a line for each interval
    #[arg(short, long, value_name = "SEC", value_parser = parse_seconds)]
    pub interval: Option<f64>,
    /// End after N intervals
    #[arg(long, value_name = "N", requires = "interval")]
    pub count: Option<u64>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `events`.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// End after N events
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The commands under `port`.
#[derive(Debug, Subcommand)]
pub(crate) enum PortCommand {
    /// Add a port: KEY=VALUE as in the configuration
    ///
    /// e.g. `towpath port add p0 kind=pair peer=p1 upper=br0`, which also creates the peer p1.
    Add(PortKeysArgs),
    /// Remove a port, with its peer and its programs
    #[command(visible_alias = "delete")]
    Del(PortNameArgs),
    /// Change a port: KEY=VALUE sets a value, KEY= removes it
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
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A port.
#[derive(Debug, Args)]
pub(crate) struct PortNameArgs {
    /// Port
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: String,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A program, map or link, as bpftool names it: `id 7`, `name NAME`, or just one of them.
#[derive(Debug, Args)]
pub(crate) struct ObjectArgs {
    /// The object: id N, name NAME, tag TAG, pinned PATH, or the id or name itself [default: all]
    #[arg(value_name = "WHICH", num_args = 0..=2)]
    #[arg(add = ArgValueCompleter::new(complete::objects))]
    pub which: Vec<String>,
    /// The daemon.
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
    /// Restore a virtual machine's objects from a file; it must have none
    Restore(GuestFileArgs),
    /// Free all objects of a virtual machine
    Reset(GuestArgs),
}

/// A virtual machine.
#[derive(Debug, Args)]
pub(crate) struct GuestArgs {
    /// The virtual machine's port
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: String,
    /// The daemon.
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
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The commands under `bridge`.
#[derive(Debug, Subcommand)]
pub(crate) enum BridgeCommand {
    /// List bridges, with their ports
    #[command(visible_alias = "list")]
    Show(PlainArgs),
    /// List the addresses that a bridge has learnt, each with its port
    Fdb(BridgeArgs),
    /// Create a bridge; `port set PORT upper=BRIDGE` puts a port into it
    Add(BridgeKeysArgs),
    /// Change a bridge
    Set(BridgeKeysArgs),
    /// Remove a bridge that has no ports
    #[command(visible_alias = "delete")]
    Del(BridgeArgs),
}

/// A bridge.
#[derive(Debug, Args)]
pub(crate) struct BridgeArgs {
    /// Bridge
    #[arg(value_name = "BRIDGE")]
    pub bridge: String,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A bridge and its keys.
#[derive(Debug, Args)]
pub(crate) struct BridgeKeysArgs {
    /// Bridge
    #[arg(value_name = "BRIDGE")]
    pub bridge: String,
    /// Seconds after which the bridge forgets an address that sends no frames
    #[arg(value_name = "ageing=SECONDS")]
    pub keys: Vec<String>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// An object, and the path of its pin.
#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// e.g. id 7 firewall, or name limits fw/limits; paths are below the daemon's own /sys/fs/bpf
    #[arg(value_name = "WHICH PATH", required = true, num_args = 2..=3)]
    pub words: Vec<String>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A pin.
#[derive(Debug, Args)]
pub(crate) struct UnpinArgs {
    /// Path of the pin
    #[arg(value_name = "PATH")]
    pub path: String,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The commands under `map`.
#[derive(Debug, Subcommand)]
pub(crate) enum MapCommand {
    /// List maps of loaded programs
    #[command(visible_alias = "list")]
    Show(ObjectArgs),
    /// Show all elements of a map
    Dump(MapDumpArgs),
    /// Create a map and pin it: PATH type KIND key BYTES value BYTES entries N name NAME [flags F]
    ///
    /// The map exists until its pin is removed or the daemon ends.
    Create(ElementArgs),
    /// Look an element up: MAP key KEY
    Lookup(ElementArgs),
    /// Show the key after a key, or the first one: MAP [key KEY]
    Getnext(ElementArgs),
    /// Show the next value of a queue or stack: MAP
    Peek(ElementArgs),
    /// Remove and show the next value of a queue or stack: MAP
    #[command(visible_alias = "dequeue")]
    Pop(ElementArgs),
    /// Add a value to a queue or stack: MAP value VALUE
    #[command(visible_alias = "enqueue")]
    Push(ElementArgs),
    /// Store an element: MAP key KEY value VALUE [any|exist|noexist]
    Update(ElementArgs),
    /// Delete an element: MAP key KEY
    Delete(ElementArgs),
    /// Store the rows of a file in a map, all of them or none: MAP FILE
    Load(MapLoadArgs),
    /// Pin a map, which keeps it alive: MAP PATH
    Pin(PinArgs),
    /// Remove a pin
    Unpin(UnpinArgs),
    /// Show records of a ring buffer or perf event array, as programs send them
    ///
    /// A map has one reader at a time. If the reader is too slow, records are lost and counted: a
    /// full ring buffer gives the program an error, as in the kernel. The command ends when
    /// interrupted.
    #[command(name = "event_pipe", visible_alias = "event-pipe")]
    EventPipe(EventPipeArgs),
}

/// Arguments of `map dump`.
#[derive(Debug, Args)]
pub(crate) struct MapDumpArgs {
    /// The map and the daemon.
    #[command(flatten)]
    pub object: ObjectArgs,
    /// Show the key, or FIELD (key.source, value.address), as an IPv4 address, or a number in
    /// network order: ipv4, be16, be32
    #[arg(long = "as", value_name = "[FIELD=]TYPE")]
    pub as_types: Vec<AsType>,
    /// Write rows in a format that `map load` reads
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
    /// Remove elements that the file does not have, so that the map equals the file
    #[arg(long)]
    pub replace: bool,
    /// Format of the file [default: by its extension (.csv, .bin), else json]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<RowFormat>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RowFormat {
    /// An object of key and value in each line, or a list of them, as `map dump --json` writes it
    Json,
    /// Cells below a line that names the columns (key, value, key.FIELD, value.FIELD, cpu0)
    Csv,
    /// The bytes of key and value, without separators; per-CPU kinds have a value for each CPU
    Packed,
}

impl RowFormat {
    /// The format's name in the API.
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
    /// The map: id N, name NAME, pinned PATH, or the id or name itself; then `cpu N` for one slot
    /// of a perf event array
    #[arg(value_name = "MAP", required = true, num_args = 1..)]
    #[arg(add = ArgValueCompleter::new(complete::objects))]
    pub words: Vec<String>,
    /// Show records as this structure of the object's types (BTF) [default: in hex]
    #[arg(long, value_name = "STRUCT")]
    pub r#type: Option<String>,
    /// End after N records
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `prog tracelog`.
#[derive(Debug, Args)]
pub(crate) struct TracelogArgs {
    /// A program's stream: stdout PROG or stderr PROG [default: bpf_printk lines of all programs]
    #[arg(value_name = "STREAM", num_args = 0..=3)]
    pub words: Vec<String>,
    /// Wait for more output of the stream, until interrupted or the program is freed
    #[arg(short, long)]
    pub follow: bool,
    /// End after N lines, or N pieces of a stream
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// The daemon.
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
    /// The daemon.
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
    /// Pin a link, which keeps it alive: LINK PATH
    Pin(PinArgs),
    /// Remove a pin
    Unpin(UnpinArgs),
}

/// Arguments of `exec`.
#[derive(Debug, Subcommand)]
pub(crate) enum ExecCommand {
    /// Run the daemon, as `towpath up` does
    Up(UpArgs),
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = parse_duration(text)?.as_secs_f64();
    if seconds < 0.01 { Err("at least 10ms".to_owned()) } else { Ok(seconds) }
}
