//! ESP packets beside independent answers: published vectors, a model of the replay window, and
//! Scapy.

#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "what was skipped")]

mod bits;
mod common;
mod engines;
mod headers;
mod lifetimes;
mod lookups;
mod owner;
mod refusals;
mod round_trips;
mod scapy;
mod vectors;
mod window;
