//! The running host's interfaces, routes and neighbours, kept up to date for programs' look-ups.
//!
//! A [`Watcher`] reads them by rtnetlink (rtnetlink(7)) and publishes them in a [`Live`] host, the
//! one of `LoadOptions::host`. Ports that exist only in this process are added to them
//! ([`Watcher::set_ports`]). A `Live` host can also have tables written by users ([`tables`]), for
//! look-ups in these.
//!
//! ```no_run
//! use towpath_host::Watcher;
//! use towpath_xdp::LoadOptions;
//!
//! # fn main() -> Result<(), towpath_host::Error> {
//! let options = LoadOptions::default();
//! let _watcher = Watcher::start(&options.host)?;
//! # Ok(())
//! # }
//! ```
//!
//! Not supported: policy rules (`ip rule`) beside the kernel's three, routes for a source prefix or
//! a type of service, VRFs, and path MTUs that the host learned.

#![forbid(unsafe_code)]

mod bell;
mod error;
mod interfaces;
mod names;
pub mod namespace;
mod neighbours;
pub mod netlink;
mod nexthops;
mod reader;
mod resolver;
mod routes;
pub mod socket;
pub mod tables;
mod watcher;

pub use error::Error;
pub use names::{Names, Presence};
pub use resolver::{Outcome, Resolver};
pub use towpath_xdp::host::Live;
pub use watcher::{Status, Watcher};
