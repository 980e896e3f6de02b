//! The running host's interfaces, routes and neighbours, kept up to date for programs' look-ups.
//!
//! A [`Watcher`] reads them by rtnetlink (rtnetlink(7)) and puts them into a [`Live`] host, the one
//! that `LoadOptions::host` takes. Ports that exist in this process only are added to them
//! ([`Watcher::set_ports`]). A `Live` of written tables answers look-ups from those instead
//! ([`tables`]).
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
//! Not followed: policy rules (`ip rule`) beside the kernel's three, routes for a source prefix or
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
mod routes;
pub mod socket;
pub mod tables;
mod watcher;

pub use error::Error;
pub use names::{Names, Presence};
pub use towpath_xdp::host::Live;
pub use watcher::{Status, Watcher};
