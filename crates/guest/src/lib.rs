//! The host's side of guest offload: what a virtual machine's agent asks for, and what it may.
//!
//! A [`Guest`] is one port's: its objects (a set of its own, so that there is nothing of the host's
//! or of another guest's in it), handles, limits and counters. It answers messages, whatever they
//! contain; a [`Channel`] brings them from a socket. Where programs run is behind [`Edge`].
//! `docs/guest-offload.md` is the protocol.

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
