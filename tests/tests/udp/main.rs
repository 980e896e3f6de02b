//! UDP sockets of Towpath on one host, sockets of the kernel on the other.
//!
//! Each test has two network namespaces that a veth joins. At the near end is an `afxdp` port with
//! a shadow; the far end is the kernel's. Needs root, `ip`, `ethtool`, `ping`, `nsenter` and
//! `setpriv` (`scripts/install-deps.sh net`); without them each test says "skipped: why".
//!
//! `TOWPATH_UDP_DATAGRAMS` is the number of random datagrams of each family and direction, and
//! `TOWPATH_QUIC_MIB` and `TOWPATH_QUIC_TIMES` are the size and number of QUIC transfers, and
//! `TOWPATH_QUIC_CONNECTIONS` is the number of connections that are distributed over servers.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "what was skipped")]

mod c_library;
mod errors;
mod kernel;
mod lab;
mod neighbours;
mod path_mtu;
mod quic;
mod random;
mod servers;
mod sharing;
#[path = "../../../crates/cli/src/demo/quic/tls.rs"]
mod tls;
mod trouble;
mod waking;
