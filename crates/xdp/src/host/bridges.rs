//! Queries of programs about bridges (`bpf_fdb_lookup`).

use std::fmt;

/// The bridges around a worker, implemented by the engine that moves its frames.
pub trait Bridges: fmt::Debug + Send + Sync {
    /// The ifindex of the port behind which the bridge above port `ingress` saw the address.
    /// `vlan` is 0 for untagged frames.
    ///
    /// # Errors
    ///
    /// Fails if there is no such bridge, or it does not know the address (any more).
    fn port_behind(&self, ingress: u32, vlan: u16, mac: [u8; 6]) -> Result<u32, Unknown>;
}

/// Reasons why no port is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The bridge does not know the address, or its entry has expired: it would flood a frame to
    /// it.
    Address,
    /// The ingress port has no bridge above it.
    Bridge,
}
