//! The running kernel's description of a network device: its feature flags for XDP and AF_XDP.

use std::io;

use crate::host::{Interface, XdpFeatures};

/// A network device's flags (`NETDEV_CMD_DEV_GET`, Linux 6.3), as they are now: some change with
/// what else is done with the device.
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
    /// Of an interface in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// There is no such interface, or the kernel can't tell.
    pub fn of(name: &str) -> io::Result<Netdev> {
        let features = XdpFeatures::new(index_of(name)?)?;
        let (xdp, rx_metadata, xsk) = (features.get()?, features.rx_metadata()?, features.xsk()?);
        Ok(Netdev { xdp, rx_metadata, xsk })
    }
}

/// The number of an interface.
///
/// # Errors
///
/// There is none of that name.
pub fn index_of(name: &str) -> io::Result<u32> {
    Interface::new(name)?.index()
}
