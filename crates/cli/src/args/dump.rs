//! Arguments of `dump`: the options of xdpdump that apply to Towpath.

use std::path::PathBuf;

use clap::Args;
use clap_complete::ArgValueCompleter;

use super::daemon::SocketArgs;
use crate::complete;

/// Arguments of `dump`.
#[derive(Debug, Args)]
pub(crate) struct PortDumpArgs {
    /// Port
    #[arg(value_name = "PORT", required_unless_present_any = ["interface", "list_interfaces"])]
    #[arg(add = ArgValueCompleter::new(complete::ports))]
    pub port: Option<String>,
    /// Port, with xdpdump's option
    #[arg(short, long, value_name = "PORT", conflicts_with = "port")]
    #[arg(add = ArgValueCompleter::new(complete::ports))]
    pub interface: Option<String>,
    /// List ports and the programs on them, as xdpdump does with interfaces
    #[arg(short = 'D', long, conflicts_with_all = ["port", "interface"])]
    pub list_interfaces: bool,
    /// Capture arriving frames before the rx hook's programs (entry), after them with the verdict
    /// (exit), or both [default: entry, without --tx-capture]
    #[arg(long, value_name = "WHERE", value_delimiter = ',', value_parser = ["entry", "exit"])]
    pub rx_capture: Vec<String>,
    /// Capture leaving frames before the tx hook's programs (entry), after them (exit), or both
    #[arg(long, value_name = "WHERE", value_delimiter = ',', value_parser = ["entry", "exit"])]
    pub tx_capture: Vec<String>,
    /// Capture around single programs: names, ids, or "all" [default: around all of the hook]
    #[arg(short, long = "program", visible_alias = "program-names", value_name = "PROG")]
    #[arg(value_delimiter = ',')]
    pub programs: Vec<String>,
    /// Capture only frames with these verdicts: drop, pass, tx, redirect, aborted
    #[arg(long = "verdict", value_name = "VERDICTS", value_delimiter = ',')]
    pub verdicts: Vec<String>,
    /// Bytes of each frame to capture [default: all]
    #[arg(short, long, value_name = "BYTES")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub snapshot_length: Option<u32>,
    /// End after N frames
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Write a capture (pcapng) to this file; "-" is standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write the classic pcap format, without verdicts and queues
    #[arg(long, requires = "write")]
    pub use_pcap: bool,
    /// Show the bytes of frames
    #[arg(short = 'x', long, conflicts_with = "write")]
    pub hex: bool,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}
