//! Arguments of `bond`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use towpath_engine::bond::XmitPolicy;

/// The commands under `bond`.
#[derive(Debug, Subcommand)]
pub(crate) enum BondCommand {
    /// Print the hash by which a bond chooses a member for a frame
    ///
    /// The output has a line for each frame: the kernel's hash in 8 hex digits, and with --members
    /// the number of the usable member that the frame takes, counted from 0 in the order in which
    /// members joined. The command needs no daemon.
    Hash(BondHashArgs),
    /// Show bonds and their members, as /proc/net/bonding does
    #[command(visible_alias = "list")]
    Show(super::PortArgs),
}

/// Arguments of `bond hash`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("frames").required(true).args(["frame", "input"])))]
pub(crate) struct BondHashArgs {
    /// layer2, layer3+4, layer2+3, encap2+3, encap3+4, vlan+srcmac, or the kernel's number
    #[arg(value_name = "POLICY")]
    pub policy: XmitPolicy,
    /// Frame in hex, from the Ethernet header on; "-" reads a frame per line from standard input
    #[arg(value_name = "FRAME_HEX", allow_hyphen_values = true)]
    pub frame: Option<String>,
    /// Capture whose frames are hashed; "-" is standard input
    #[arg(long = "in", value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Number of usable members: also print the member that each frame takes
    #[arg(long, value_name = "N")]
    pub members: Option<NonZeroU32>,
}
