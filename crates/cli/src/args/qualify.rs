//! Arguments of `qualify`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `qualify`.
#[derive(Debug, Args)]
pub(crate) struct QualifyArgs {
    /// Ports to try: a kind (pair, tap, packet, afxdp, vhost-user, pcap, generator, sink), or
    /// `kernel` for a network device of the kernel; with `+software` hints are made in software,
    /// with `afxdp+driver` by the driver. `KIND:NEAR/FAR` tries one over the interface NEAR, whose
    /// cable leads to FAR; else a veth is made. Without any, all that can be tried here
    #[arg(value_name = "PORT")]
    pub ports: Vec<String>,
    /// Write the results here as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Print the page docs/features.md
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}
