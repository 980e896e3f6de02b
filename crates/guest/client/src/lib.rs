//! The guest's side of guest offload: XDP programs of a virtual machine that its host runs.
//!
//! [`wire`] is the protocol (`docs/guest-offload.md`), for both sides; [`Client`] uses it, over a
//! [`Channel`] to the host; [`load()`] loads an object file there, the same that would be loaded
//! natively. `towpath-guest` is the command built on it.

#![forbid(unsafe_code)]

mod channel;
mod client;
mod load;
pub mod wire;

pub use channel::{Channel, PORT_NAME, Wanted, open};
pub use client::{
    AttachInfo, Client, ClientError, Element, Features, MapInfo, MapSpec, ObjectInfo, ProgramSpec,
    Refused,
};
pub use load::{LoadError, Loaded, load};
