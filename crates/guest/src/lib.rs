//! The host's side of guest offload: the requests of a virtual machine's agent, and their limits.
//!
//! A [`Guest`] belongs to one port: its objects (a separate set, without objects of the host or of
//! other guests), handles, limits and counters. It answers messages of any content; a [`Channel`]
//! receives them from a socket. [`Edge`] is the place where programs run. A restart of the guest
//! removes its objects ([`Guest::reset`]); a new connection of its agent keeps them
//! ([`Guest::note_connection`]). `docs/guest-offload.md` is the protocol.

#![forbid(unsafe_code)]

mod answer;
mod channel;
mod edge;
mod guest;
mod handles;
mod limits;
mod maps;
mod memory;
mod programs;
mod refusal;
mod saved;
mod session;

pub use channel::{Channel, Endpoint};
pub use edge::{Edge, Target};
pub use guest::{Attached, Guest, Status};
pub use limits::{HELPERS_DEFAULT, Limits, Rules};
pub use refusal::Refusal;
pub use saved::RestoreError;
