//! Arguments of `new`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `new`.
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// The folder to make: its name of letters, digits, - and _, where nothing of that name is yet
    #[arg(value_name = "NAME")]
    pub path: PathBuf,
}
