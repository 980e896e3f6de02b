//! Port kinds: devices by which frames arrive and leave.
//!
//! A kind's folder has `mod.rs` (the device and its options), and `rx.rs` and `tx.rs` if frames
//! arrive or leave by it. `bond` has its own layout; `host`, `rss`, `stream` and [`wrap`] are
//! shared by kinds. [`wrap`] adds faults, limits, hints and recordings to any port.

#![deny(unsafe_code)]

pub mod afxdp;
pub mod bond;
mod error;
mod frame_ring;
pub mod generator;
mod host;
pub mod ipsec;
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
