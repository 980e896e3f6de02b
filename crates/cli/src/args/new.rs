//! Arguments of `new`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `new`.
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// The folder to create; its name has letters, digits, - and _, and does not exist yet
    #[arg(value_name = "NAME")]
    pub path: PathBuf,
}
