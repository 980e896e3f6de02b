//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use towpath_guest_client::wire::Direction;

/// Has the host run this machine's XDP programs, before frames get here
#[derive(Debug, Parser)]
#[command(version, name = "towpath-guest")]
pub(crate) struct Args {
    /// Print JSON
    #[arg(short, long, global = true)]
    pub(crate) json: bool,
    /// Name of the virtio-serial port that leads to the host [default: org.towpath.offload...]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// A unix socket instead
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "channel")]
    pub(crate) socket: Option<PathBuf>,
    /// A virtio socket instead; the host's CID is 2
    #[arg(long, global = true, value_name = "CID:PORT", value_parser = vsock)]
    #[arg(conflicts_with_all = ["channel", "socket"])]
    pub(crate) vsock: Option<(u32, u32)>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the host's features and this machine's limits
    Features,
    /// Have the host run a program of an object file
    Load(LoadArgs),
    /// Have it run no more, and let go of its maps
    Unload(UnloadArgs),
    /// Show running programs, their counters, and all objects
    Status,
    /// Look at maps and change them
    #[command(subcommand)]
    Map(MapCommand),
    /// Print the manual page
    #[command(hide = true)]
    Man,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// The interface whose frames it is for
    pub(crate) interface: String,
    /// The object file, as it would be loaded here
    pub(crate) object: PathBuf,
    /// Its program, by name; not needed when there is only one
    #[arg(short, long, value_name = "NAME")]
    pub(crate) program: Option<String>,
    /// Frames that it sees: arriving or leaving ones
    #[arg(short, long, value_enum, default_value_t = Way::Ingress)]
    pub(crate) direction: Way,
    /// Take the place of the one that runs, without a frame that none sees
    #[arg(long)]
    pub(crate) replace: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UnloadArgs {
    /// The interface
    pub(crate) interface: String,
    /// Which frames the program sees
    #[arg(short, long, value_enum, default_value_t = Way::Ingress)]
    pub(crate) direction: Way,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MapCommand {
    /// All maps
    Show,
    /// All elements of a map
    Dump {
        /// Its name or handle
        map: String,
    },
    /// One element
    Lookup {
        /// Its name or handle
        map: String,
        /// A number, or bytes: hex:0a0b0c0d
        key: String,
    },
    /// Store an element
    Update {
        /// Its name or handle
        map: String,
        /// A number, or bytes: hex:0a0b0c0d
        key: String,
        /// As the key; of per-CPU maps for all CPUs, or the bytes of all of them
        value: String,
        /// any, exist (only where there is one) or noexist
        #[arg(value_enum, default_value_t = Rule::Any)]
        rule: Rule,
    },
    /// Remove an element
    Delete {
        /// Its name or handle
        map: String,
        /// A number, or bytes: hex:0a0b0c0d
        key: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Way {
    /// Frames that are to reach this machine
    Ingress,
    /// Frames that it sends
    Egress,
}

impl Way {
    pub(crate) fn direction(self) -> Direction {
        match self {
            Way::Ingress => Direction::Ingress,
            Way::Egress => Direction::Egress,
        }
    }
}

/// `BPF_ANY`, `BPF_NOEXIST`, `BPF_EXIST`, by number.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Rule {
    Any,
    Noexist,
    Exist,
}

fn vsock(text: &str) -> Result<(u32, u32), String> {
    let parts = text
        .split_once(':')
        .and_then(|(cid, port)| Some((cid.parse::<u32>().ok()?, port.parse::<u32>().ok()?)));
    parts.ok_or_else(|| format!("\"{text}\" is not CID:PORT, as in 2:5000"))
}
