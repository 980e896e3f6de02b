//! AF_XDP sockets of the running kernel and of Towpath, by the same test.
//!
//! Each test runs twice: with the kernel's sockets on a veth in a network namespace, and with a
//! daemon's sockets on a pair of ports. Both runs must give the same text, and the text that was
//! recorded on Linux 6.18 (`recorded-6.18.txt`). Without the rights to use the kernel's sockets,
//! only the recorded text is compared. `TOWPATH_BLESS=1` records it again.
//!
//! The tests cover the features that the kernel's own `xskxceiver` tests.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "what was skipped")]

/// Adds a line to what a test saw.
macro_rules! say {
    ($out:expr, $($line:tt)*) => {
        $out.push_str(&(format!($($line)*) + "\n"))
    };
}

mod daemon;
mod descriptors;
mod one_source;
mod packets;
mod pieces;
mod polling;
mod recorded;
mod sharing;
mod socket;
mod statistics;
mod traffic;
mod world;
mod zero_copy;
