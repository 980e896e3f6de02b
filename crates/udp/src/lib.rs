//! UDP sockets for applications, over the rings of AF_XDP sockets that Towpath serves.
//!
//! A [`UdpStack`] has a pair of rings for each queue of a port; its [`UdpSocket`]s share them. The
//! daemon knows which addresses and ports are taken, delivers their datagrams, and knows routes and
//! neighbours; this crate writes and reads the headers. A datagram needs no system call.
//!
//! ```no_run
//! use std::time::Duration;
//! use towpath_udp::{Options, TxDatagram, UdpStack};
//!
//! let stack = UdpStack::open(&Options::new("p0"))?;
//! let socket = stack.bind("10.0.0.1:7".parse().unwrap())?;
//! loop {
//!     socket.recv_batch(64, |datagram| {
//!         let answer = TxDatagram::new(datagram.payload, datagram.source);
//!         // If the ring is full, the answer is lost, as in a congested network.
//!         let _sent = socket.send_batch(&[answer]);
//!     });
//!     socket.wait_recv(Some(Duration::from_secs(1)))?;
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

mod bindings;
mod checksum;
mod datagram;
mod header;
mod packet;
mod queue;
mod routes;
mod socket;
mod stack;

pub use datagram::{RxDatagram, TxDatagram};
pub use packet::{Refusal, parse};
pub use socket::UdpSocket;
pub use stack::{Options, Statistics, UdpStack};
pub use towpath_xsk_client::protocol::ServerId;
