//! Port kinds: what frames arrive by and leave by.
//!
//! One folder each, with the same files in each: `mod.rs` has the device and its options, `rx.rs`
//! the receive queue, `tx.rs` the transmitter.

#![deny(unsafe_code)]

pub mod generator;
pub mod pace;
pub mod pair;
pub mod pcap;
pub mod sink;
