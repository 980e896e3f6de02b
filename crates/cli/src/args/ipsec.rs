//! `sa` and `policy`: IPsec of a daemon.

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;

use super::SocketArgs;
use crate::complete;

/// The commands under `sa`.
#[derive(Debug, Subcommand)]
pub(crate) enum SaCommand {
    /// Add a security association: keys as in the configuration
    ///
    /// e.g. `towpath sa add out1 port=esp0 direction=out spi=0x1001 source=192.0.2.1
    /// destination=192.0.2.2 suite=aes-gcm-128 key_file=out1.key reqid=1`. Keys of tables have a
    /// dot: `hard.bytes=1000000`. The daemon reads the key file, which only its owner may read.
    Add(SaKeysArgs),
    /// Remove a security association
    #[command(visible_alias = "delete")]
    Del(SaNameArgs),
    /// Show security associations with their counters, without their keys
    #[command(visible_alias = "list")]
    Show(SaArgs),
    /// Remove all security associations, or all those of a port
    Flush(SaFlushArgs),
}

/// An SA and its keys in the configuration.
#[derive(Debug, Args)]
pub(crate) struct SaKeysArgs {
    /// Name of the SA
    #[arg(value_name = "SA")]
    pub sa: String,
    /// Keys, as in the configuration
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub keys: Vec<String>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// An SA.
#[derive(Debug, Args)]
pub(crate) struct SaNameArgs {
    /// Name of the SA
    #[arg(value_name = "SA", add = ArgValueCompleter::new(complete::sas))]
    pub sa: String,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// An SA, or all of them.
#[derive(Debug, Args)]
pub(crate) struct SaArgs {
    /// Name of the SA; defaults to all
    #[arg(value_name = "SA", add = ArgValueCompleter::new(complete::sas))]
    pub sa: Option<String>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A port, or all of them.
#[derive(Debug, Args)]
pub(crate) struct SaFlushArgs {
    /// Port; defaults to all
    #[arg(value_name = "PORT", add = ArgValueCompleter::new(complete::ports))]
    pub port: Option<String>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The commands under `policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Add a policy: keys as in the configuration
    ///
    /// e.g. `towpath policy add web port=esp0 source=10.1.0.0/16 destination=10.2.0.0/16
    /// action=protect reqid=1`.
    Add(PolicyKeysArgs),
    /// Remove a policy
    #[command(visible_alias = "delete")]
    Del(PolicyNameArgs),
    /// Show policies
    #[command(visible_alias = "list")]
    Show(super::PlainArgs),
}

/// A policy and its keys in the configuration.
#[derive(Debug, Args)]
pub(crate) struct PolicyKeysArgs {
    /// Name of the policy
    #[arg(value_name = "POLICY")]
    pub policy: String,
    /// Keys, as in the configuration
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub keys: Vec<String>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// A policy.
#[derive(Debug, Args)]
pub(crate) struct PolicyNameArgs {
    /// Name of the policy
    #[arg(value_name = "POLICY", add = ArgValueCompleter::new(complete::policies))]
    pub policy: String,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}
