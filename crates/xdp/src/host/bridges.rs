//! Queries of programs about bridges (`bpf_fdb_lookup`).

use std::fmt;

/// The bridges around a worker, implemented by the engine that moves its frames.
pub trait Bridges: fmt::Debug + Send + Sync {
    /// The ifindex of the port behind which the bridge above port `ingress` saw the address.
    /// `vlan` is 0 for untagged frames.
    ///
    /// # Errors
    ///
    /// There is no such bridge, or it does not know the address (any more).
    fn port_behind(&self, ingress: u32, vlan: u16, mac: [u8; 6]) -> Result<u32, Unknown>;
}

/// Why there is no port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The bridge has not seen the address, or not for long: it would flood a frame to it.
    Address,
    /// The ingress port is below no bridge.
    Bridge,
}
