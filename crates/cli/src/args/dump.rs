//! Arguments of `dump`: xdpdump's, as far as they make sense here.

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
    /// The same, as xdpdump has it
    #[arg(short, long, value_name = "PORT", conflicts_with = "port")]
    #[arg(add = ArgValueCompleter::new(complete::ports))]
    pub interface: Option<String>,
    /// List ports and the programs on them, as xdpdump does with interfaces
    #[arg(short = 'D', long, conflicts_with_all = ["port", "interface"])]
    pub list_interfaces: bool,
    /// Frames as they arrive (entry), as they were judged, with the verdict (exit), or both
    /// [default: entry, without --tx-capture]
    #[arg(long, value_name = "WHERE", value_delimiter = ',', value_parser = ["entry", "exit"])]
    pub rx_capture: Vec<String>,
    /// Frames that are to leave (entry), as the tx hook judged them (exit), or both
    #[arg(long, value_name = "WHERE", value_delimiter = ',', value_parser = ["entry", "exit"])]
    pub tx_capture: Vec<String>,
    /// Watch programs of the port one by one: names, ids, or "all" [default: all programs as one]
    #[arg(short, long = "program", visible_alias = "program-names", value_name = "PROG")]
    #[arg(value_delimiter = ',')]
    pub programs: Vec<String>,
    /// Only frames with these verdicts: drop, pass, tx, redirect, aborted
    #[arg(long = "verdict", value_name = "VERDICTS", value_delimiter = ',')]
    pub verdicts: Vec<String>,
    /// Bytes of each frame to capture [default: all]
    #[arg(short, long, value_name = "BYTES")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub snapshot_length: Option<u32>,
    /// End after so many frames
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Write a capture (pcapng) to this file; "-" is standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write the classic format, without verdicts and queues
    #[arg(long, requires = "write")]
    pub use_pcap: bool,
    /// Show the bytes of frames
    #[arg(short = 'x', long, conflicts_with = "write")]
    pub hex: bool,
    /// Which daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}
