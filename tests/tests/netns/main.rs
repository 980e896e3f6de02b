//! Ports between real network stacks: network namespaces joined through an engine.
//!
//! Needs root, `ip`, `ping`, `iperf3`, `nsenter` and clang (`scripts/install-deps.sh net`); without
//! them each test says "skipped: why". Namespaces have no names and live as long as this process,
//! so that nothing stays behind, whatever happens to it.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "what was skipped, and figures")]

mod against_kernel;
mod bridge;
mod faults;
mod guest;
mod kinds;
mod lab;
mod lookups;
mod namespace;
mod programs;
mod shadow;
mod stacks;
mod traffic;
