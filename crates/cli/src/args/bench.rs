//! Arguments of `bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ProgramArgs, RunExec, RunTrust, Selection};

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Object files, or folders of them [default: build/programs, maps filled from tests/data]
    #[arg(value_name = "OBJ")]
    pub objects: Vec<PathBuf>,
    /// Peer to compare with
    #[arg(long, value_enum, default_value_t = Peer::Interp)]
    pub against: Peer,
    /// Measure single helpers, kfuncs and map operations, with programs that do one thing many
    /// times [default: build/prices]
    #[arg(long)]
    #[arg(conflicts_with_all = ["map_init", "input", "flows", "cold", "report"])]
    pub helpers: bool,
    /// Executors of the programs; several are measured in the same rounds
    #[arg(long, value_enum, value_delimiter = ',', default_value = "jit")]
    pub exec: Vec<RunExec>,
    /// First contents of maps, JSON by map name [default: elements that fit the frames]
    #[arg(long, value_name = "M.json")]
    pub map_init: Option<PathBuf>,
    /// Choose the frame among those of a capture [default: among generated ones]
    #[arg(long = "in", value_name = "A.pcap")]
    pub input: Option<PathBuf>,
    /// Number of the frame [default: the frame that takes the program most work]
    #[arg(long, value_name = "N")]
    pub frame: Option<usize>,
    /// Number of flows: frames get this many different source addresses and ports. Each of several
    /// numbers is measured [default: 1,4096,1048576 beside the kernel, else 1,4096]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=FLOWS_MAX))]
    pub flows: Vec<u32>,
    /// Fill hash tables, so that they do not fit into the caches; the number of flows is then a
    /// million unless --flows is given
    #[arg(long)]
    pub cold: bool,
    /// Rounds; each measures the peer and every --exec once
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Length of one measurement in the kernel; other measurements take a quarter of it
    #[arg(long, value_name = "MS", default_value_t = 400)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub window: u32,
    /// Leave out a pass of the compiler; may be given several times
    #[arg(long, value_name = "PASS", value_delimiter = ',')]
    pub without: Vec<String>,
    /// Show the time that each C line takes; for --exec jit and llvm
    #[arg(long)]
    pub profile: bool,
    /// Trust in the verifier
    #[arg(long, value_enum, default_value_t = RunTrust::Verified)]
    pub trust: RunTrust,
    /// Write a report with charts to this file
    #[arg(long, value_name = "OUT.html")]
    pub report: Option<PathBuf>,
    /// The programs [default: all].
    #[command(flatten)]
    pub selection: Selection,
    /// Settings for linking.
    #[command(flatten)]
    pub program: ProgramArgs,
}

impl BenchArgs {
    /// Numbers of flows to measure with.
    pub(crate) fn flows(&self) -> &[u32] {
        match (self.flows.as_slice(), self.against) {
            ([], _) if self.cold => &FLOWS[2..],
            ([], Peer::Kernel) => &FLOWS,
            // A million frames take it seconds.
            ([], Peer::Interp) => &FLOWS[..2],
            (asked, _) => asked,
        }
    }
}

/// Executors to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// The running kernel, through BPF_PROG_TEST_RUN
    Kernel,
    /// The interpreter
    Interp,
}

/// Numbers of flows that are measured without `--flows`: one frame repeated, flows whose elements a
/// cache holds, and more than any cache holds.
const FLOWS: [u32; 3] = [1, 1 << 12, 1 << 20];
/// Flows that fit the last three bytes of an address.
const FLOWS_MAX: i64 = 1 << 24;
