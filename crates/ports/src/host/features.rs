//! Current XDP features of an interface (`NETDEV_CMD_DEV_GET` of the generic netlink family
//! `netdev`, Linux 6.3).

use std::io;

use parking_lot::Mutex;
use towpath_host::netlink::protocols::NETLINK_GENERIC;
use towpath_host::netlink::{Attributes, Socket, attribute};

use super::malformed;

/// Reads features of one interface, in the namespace in which this was made.
#[derive(Debug)]
pub(crate) struct XdpFeatures {
    /// The netlink socket, shared by all transmitters of an interface.
    netlink: Mutex<Socket>,
    family: u16,
    index: u32,
}

impl XdpFeatures {
    /// Opens the netlink family.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not have the family.
    pub(crate) fn new(index: u32) -> io::Result<XdpFeatures> {
        let mut netlink = Socket::open(NETLINK_GENERIC, 0)?;
        let wanted = attribute(CTRL_ATTR_FAMILY_NAME, FAMILY);
        let answer = ask(&mut netlink, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &wanted)?;
        let family = Attributes(&answer).value(CTRL_ATTR_FAMILY_ID);
        let family = family.and_then(|value| value.first_chunk()).ok_or_else(malformed)?;
        let (netlink, family) = (Mutex::new(netlink), u16::from_ne_bytes(*family));
        Ok(XdpFeatures { netlink, family, index })
    }

    /// Whether frames can be sent by `ndo_xdp_xmit` (`NETDEV_XDP_ACT_NDO_XMIT`). The answer may
    /// change: a veth supports it while its peer has NAPI.
    pub(crate) fn has_ndo_xmit(&self) -> bool {
        self.get().is_ok_and(|features| features & NETDEV_XDP_ACT_NDO_XMIT != 0)
    }

    /// `enum netdev_xdp_act`
    pub(crate) fn get(&self) -> io::Result<u64> {
        self.attribute(NETDEV_A_DEV_XDP_FEATURES)
    }

    /// The driver's hints (`enum netdev_xdp_rx_metadata`).
    pub(crate) fn rx_metadata(&self) -> io::Result<u64> {
        self.attribute(NETDEV_A_DEV_XDP_RX_METADATA_FEATURES)
    }

    /// Features for AF_XDP sockets (`enum netdev_xsk_flags`).
    pub(crate) fn xsk(&self) -> io::Result<u64> {
        self.attribute(NETDEV_A_DEV_XSK_FEATURES)
    }

    fn attribute(&self, number: u16) -> io::Result<u64> {
        let wanted = attribute(NETDEV_A_DEV_IFINDEX, &self.index.to_ne_bytes());
        let mut netlink = self.netlink.lock();
        let answer = ask(&mut netlink, self.family, NETDEV_CMD_DEV_GET, &wanted)?;
        let features = Attributes(&answer).value(number);
        let features = features.and_then(|value| value.first_chunk()).ok_or_else(malformed)?;
        Ok(u64::from_ne_bytes(*features))
    }
}

/// Sends a command of a generic netlink family; returns the attributes of the answer.
fn ask(netlink: &mut Socket, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
    let content = [&[command, VERSION, 0, 0], attributes].concat();
    let answer = netlink.ask(family, &content)?;
    answer.content.get(GENLMSG_BYTES..).map(<[u8]>::to_vec).ok_or_else(malformed)
}

/// The family's name, as a string.
const FAMILY: &[u8] = b"netdev\0";
/// `struct genlmsghdr`
const GENLMSG_BYTES: usize = 4;
const VERSION: u8 = 1;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;
const NETDEV_A_DEV_XSK_FEATURES: u16 = 6;
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_cannot_send_by_xdp() {
        // Kernels before 6.3 do not report features.
        let Ok(features) = XdpFeatures::new(1) else { return };
        assert_eq!(features.get().unwrap() & NETDEV_XDP_ACT_NDO_XMIT, 0);
        assert!(!features.has_ndo_xmit());
        let nobody = XdpFeatures { index: 1 << 30, ..features };
        assert_eq!(nobody.get().unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(!nobody.has_ndo_xmit());
    }
}
