//! Arguments of `wrap`.

use std::ffi::OsString;

use clap::Args;

use super::daemon::SocketArgs;

/// Arguments of `wrap`.
#[derive(Debug, Args)]
pub(crate) struct WrapArgs {
    /// Give the program the SAs and policies of a port of kind `ipsec` in place of the kernel's
    /// XFRM [default PORT: the only one with a key `xfrm`]
    #[arg(long, required = true, num_args = 0..=1, require_equals = true, value_name = "PORT")]
    #[arg(default_missing_value = "")]
    pub xfrm: Option<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}
