//! Port kinds: devices by which frames arrive and leave.
//!
//! Each kind has a folder with the same files: `mod.rs` has the device and its options, `rx.rs` the
//! receive queue, `tx.rs` the transmitter. [`wrap`] adds faults, limits, hints and recordings to
//! any port.

#![deny(unsafe_code)]

pub mod afxdp;
pub mod bond;
mod error;
pub mod generator;
mod host;
pub mod netdev;
pub mod pace;
pub mod packet;
pub mod pair;
pub mod pcap;
pub mod rss;
pub mod shadow;
pub mod sink;
mod stream;
pub mod tap;
pub mod vhost_user;
pub mod vnet;
pub mod wrap;

pub use error::Error;
