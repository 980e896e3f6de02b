//! The running kernel's description of a network device: its feature flags for XDP and AF_XDP.

use std::io;

use crate::host::{Interface, XdpFeatures};

/// A network device's present flags (`NETDEV_CMD_DEV_GET`, Linux 6.3); some depend on the device's
/// present use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Netdev {
    /// `enum netdev_xdp_act`
    pub xdp: u64,
    /// `enum netdev_xdp_rx_metadata`
    pub rx_metadata: u64,
    /// `enum netdev_xsk_flags`
    pub xsk: u64,
}

impl Netdev {
    /// Reads the flags of an interface in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// Fails if the interface does not exist, or the kernel does not report its flags.
    pub fn of(name: &str) -> io::Result<Netdev> {
        let features = XdpFeatures::new(index_of(name)?)?;
        let (xdp, rx_metadata, xsk) = (features.get()?, features.rx_metadata()?, features.xsk()?);
        Ok(Netdev { xdp, rx_metadata, xsk })
    }
}

/// The ifindex of an interface.
///
/// # Errors
///
/// Fails if no interface has this name.
pub fn index_of(name: &str) -> io::Result<u32> {
    Interface::new(name)?.index()
}
