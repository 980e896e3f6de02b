//! Arguments of `xsk`: AF_XDP sockets.

use std::time::Duration;

use clap::{Args, Subcommand};
use towpath_document::parse_duration;

use super::daemon::{PlainArgs, SocketArgs};

/// Commands for AF_XDP sockets.
#[derive(Debug, Subcommand)]
pub(crate) enum XskCommand {
    /// Show sockets, the fill levels of their rings, and their statistics
    Show(PlainArgs),
    /// Send packets back, with Ethernet addresses swapped (xdpsock -l)
    Echo(XskRunArgs),
    /// Drop received packets (xdpsock -r)
    Drop(XskRunArgs),
    /// Show the rate each second, and drop packets
    Count(XskRunArgs),
    /// Send packets as fast as the port takes them (xdpsock -t)
    Send(XskSendArgs),
}

/// Arguments of commands that open a socket.
#[derive(Debug, Args)]
pub(crate) struct XskRunArgs {
    /// Port
    #[arg(value_name = "PORT")]
    pub port: String,
    /// Queue
    #[arg(short, long, value_name = "QUEUE", default_value_t = 0)]
    pub queue: u32,
    /// End after N packets
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after this time: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub runs_for: Option<Duration>,
    /// XSKMAP to insert the socket into [default: xsks_map; without such a map, the socket gets all
    /// frames of the queue]
    #[arg(short, long, value_name = "NAME")]
    pub map: Option<String>,
    /// Key in that map [default: the queue]
    #[arg(short, long, value_name = "KEY", requires = "map")]
    pub key: Option<u32>,
    /// Also receive packets of several buffers
    #[arg(long)]
    pub frags: bool,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Arguments of `send`.
#[derive(Debug, Args)]
pub(crate) struct XskSendArgs {
    /// The socket.
    #[command(flatten)]
    pub run: XskRunArgs,
    /// Bytes of each packet
    #[arg(short, long, value_name = "BYTES", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(14..=3072))]
    pub size: u32,
}
