//! Port kinds: what frames arrive by and leave by.
//!
//! One folder each, with the same files in each: `mod.rs` has the device and its options, `rx.rs`
//! the receive queue, `tx.rs` the transmitter. [`wrap`] puts faults, limits, hints and recordings
//! around any.

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
