//! The daemon: what is wanted, what there is, and the ways to ask for both.
//!
//! ```text
//! towpath.toml --> file::load -+
//!                              +--> State (plain data) --> Live::reconcile --> Engine
//! API, verbs   --> api --------+        what is wanted         what there is
//! ```
//!
//! A [`state::State`] says what is wanted and nothing else: it can come from a file, from the API
//! or from anywhere. [`live::Live`] makes the engine so, touching only what differs, and says what
//! it could not do; the rest goes on.

#![forbid(unsafe_code)]

mod access;
pub mod api;
pub mod bonds;
pub mod client;
pub mod code;
mod comings;
mod contents;
mod control;
mod cpus;
pub mod daemon;
mod doors;
pub mod dry_run;
mod dump;
pub mod failure;
pub mod file;
mod flows;
pub mod globals;
pub mod guests;
mod history;
mod identity;
pub mod kinds;
pub mod layers;
mod listen;
pub mod live;
mod log;
mod memory;
pub mod metrics;
pub mod natural;
pub mod page;
mod places;
mod population;
pub mod profile;
mod queues;
mod reference;
mod restore;
mod retry;
pub mod run_config;
pub mod saved;
mod serve;
mod socket;
pub mod state;
mod told;
mod turn;
mod unread;
mod validate;
mod view;
mod watch;
mod workers;

pub use control::{Control, News};
pub use daemon::{Options, up};
pub use file::{Loaded, Settings};
pub use state::State;
