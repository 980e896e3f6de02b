//! AF_XDP sockets for applications: the counterpart of the kernel's `net/xdp`, over Towpath's
//! ports.
//!
//! [`Sockets`] holds the sockets of an engine. A [`Socket`] takes the kernel's options and `bind`,
//! makes the kernel's checks in the kernel's order, and answers with its error numbers. Frames
//! reach it by [`towpath_engine::Socket`]. Rings and packet memory are shared with an untrusted
//! application: its writes there harm only itself.

#![deny(unsafe_code)]

mod lent;
mod memory_unsafe;
mod pool;
pub mod rings;
mod server;
mod socket;
mod sockets;
mod umem;

pub use rustix::io::Errno;
pub use server::{Peer, Server, Strangers, answer};
pub use socket::{Shared, Socket, Statistics};
pub use sockets::{Device, Host, Sockets};
pub use towpath_xsk_client::{abi, protocol};
