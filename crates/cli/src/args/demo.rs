//! Arguments of `demo`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use towpath_document::parse_duration;

use super::Selection;

/// The commands under `demo`.
#[derive(Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// Connect two network namespaces through a program that is replaced under load (needs root)
    ///
    /// Two hosts with the kernel's own stacks get a tap each, and a daemon in this process connects
    /// the taps. The demo runs ping, then iperf3 while the program on the first port is replaced
    /// over and over, and shows the conservation of frames and the daemon's status. It removes
    /// everything that it created, also after Ctrl-C.
    Live(DemoLiveArgs),
}

/// Arguments of `demo live`.
#[derive(Debug, Args)]
pub(crate) struct DemoLiveArgs {
    /// Object file of the program between the hosts
    #[arg(value_name = "OBJ", default_value = "build/programs/firewall.o")]
    pub object: PathBuf,
    /// The program.
    #[command(flatten)]
    pub selection: Selection,
    /// Time for which iperf3 runs, in whole seconds: 3s, 1m
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, default_value = "3s")]
    pub runs_for: Duration,
}
