//! AF_XDP sockets that Towpath serves: the application's side, for Rust and for C.
//!
//! [`Socket`] is the way for Rust programs. C programs include `<towpath/xsk.h>`, which has the
//! functions of libxdp's `<xdp/xsk.h>`, and link this crate's library. Both ask the daemon over a
//! [`Connection`], and then share memory with it: no system call a packet.

#![deny(unsafe_code)]

pub mod abi;
mod area_unsafe;
#[path = "capi_unsafe.rs"]
pub mod capi;
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
