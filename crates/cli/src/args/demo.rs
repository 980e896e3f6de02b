//! Arguments of `demo`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use towpath_document::parse_duration;

use super::Selection;

/// The commands under `demo`.
#[derive(Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// Send packets through an IPsec tunnel between two gateways in this process
    ///
    /// Packets from memory pass an XDP program, are encrypted, cross a wire in memory, are
    /// decrypted and pass another XDP program. The demo shows a packet on the wire, damages and
    /// repeats packets, changes the keys while packets are under way, and measures the rate on one
    /// core. It fails if a packet is lost or changed, or if a packet that must be refused is not.
    /// It needs no privileges, no network and no files.
    Ipsec,
    /// Connect two network namespaces through a program that is replaced under load (needs root)
    ///
    /// Two hosts with the kernel's own stacks get a tap each, and a daemon in this process connects
    /// the taps. The demo runs ping, then iperf3 while the program on the first port is replaced
    /// over and over, and shows the conservation of frames and the daemon's status. It removes
    /// everything that it created, also after Ctrl-C.
    Live(DemoLiveArgs),
    /// Transfer a file by QUIC over the kernel's sockets and over Towpath's (needs root)
    ///
    /// A veth joins two network namespaces. A file goes from the first host to the second one and
    /// back, by QUIC (quinn). The first host has the kernel's UDP sockets, the second one has them
    /// too, and then Towpath's, on a port that a daemon in this process opens. The demo shows the
    /// rates, and the processor time for each datagram. It fails if a byte arrives changed. It
    /// removes everything that it created, also after Ctrl-C.
    Quic,
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
