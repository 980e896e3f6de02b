//! AF_XDP sockets that Towpath serves: the application's side.
//!
//! A [`Socket`] asks the daemon over a [`Connection`], and then shares memory with it: no system
//! call a packet. `towpath-xsk-capi` has the functions of libxdp over the same connections, for
//! programs in C.

#![deny(unsafe_code)]

pub mod abi;
mod area_unsafe;
mod connection;
pub mod halves;
pub mod protocol;
mod socket;
pub mod wire;

/// The example of docs/sockets.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/sockets.md")]
struct Page;

pub use area_unsafe::Area;
pub use connection::{Connection, default_path};
pub use socket::{Action, BusyPoll, Options, Socket};
