//! Input of programs that are compared or measured: packets, elements of their maps, and the
//! settings of their own loaders. It is the same in every run and on every machine.

#![deny(unsafe_code)]

mod complete;
mod elements;
pub mod packets;
pub mod random;
pub mod small;
pub mod virtio;

pub use complete::{complete, is_volatile, plain_map};
pub use elements::elements;
