//! What an interface can do with XDP now (`NETDEV_CMD_DEV_GET` of the generic netlink family
//! `netdev`, Linux 6.3).

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use super::xdp::{Attributes, NLM_F_REQUEST, NLMSG_ERROR, bytes};

/// Asks about one interface, of the namespace in which this was made.
#[derive(Debug)]
pub(crate) struct XdpFeatures {
    socket: OwnedFd,
    family: u16,
    index: u32,
}

impl XdpFeatures {
    /// An error where the kernel can't tell.
    pub(crate) fn new(index: u32) -> io::Result<XdpFeatures> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::GENERIC))?;
        let answer = ask(&socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, FAMILY)?;
        let mut attributes = Attributes(&answer);
        let family = attributes.find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID);
        let family = family.and_then(|(_, value)| bytes(value, 0)).map(u16::from_ne_bytes);
        Ok(XdpFeatures { socket, family: family.ok_or_else(malformed)?, index })
    }

    /// Whether frames can be sent by `ndo_xdp_xmit` (`NETDEV_XDP_ACT_NDO_XMIT`). Drivers change
    /// their mind: a veth can while its other end has NAPI.
    pub(crate) fn has_ndo_xmit(&self) -> bool {
        self.get().is_ok_and(|features| features & NETDEV_XDP_ACT_NDO_XMIT != 0)
    }

    /// `enum netdev_xdp_act`
    fn get(&self) -> io::Result<u64> {
        let index = self.index.to_ne_bytes();
        let answer =
            ask(&self.socket, self.family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &index)?;
        let mut attributes = Attributes(&answer);
        let features = attributes.find(|(kind, _)| *kind == NETDEV_A_DEV_XDP_FEATURES);
        let features = features.and_then(|(_, value)| bytes(value, 0)).map(u64::from_ne_bytes);
        features.ok_or_else(malformed)
    }
}

/// A request with one attribute; gives the attributes of the answer.
fn ask(
    socket: &OwnedFd,
    family: u16,
    command: u8,
    attribute: u16,
    value: &[u8],
) -> io::Result<Vec<u8>> {
    let attribute_len = 4 + value.len();
    let len = HEADERS_BYTES + attribute_len.next_multiple_of(4);
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.resize(NLMSG_BYTES, 0);
    message.extend([command, VERSION, 0, 0]);
    message.extend((attribute_len as u16).to_ne_bytes());
    message.extend(attribute.to_ne_bytes());
    message.extend(value);
    message.resize(len, 0);
    sendto(socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let (len, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    answer.truncate(len);
    if bytes(&answer, 4).map(u16::from_ne_bytes) == Some(NLMSG_ERROR) {
        let errno = bytes(&answer, NLMSG_BYTES).map(i32::from_ne_bytes).ok_or_else(malformed)?;
        return Err(io::Error::from_raw_os_error(errno.wrapping_neg()));
    }
    answer.get(HEADERS_BYTES..).map(<[u8]>::to_vec).ok_or_else(malformed)
}

fn malformed() -> io::Error {
    io::Error::other("the kernel's answer about XDP features cannot be read")
}

/// The family's name, as a string.
const FAMILY: &[u8] = b"netdev\0";
/// `struct nlmsghdr`, and with it `struct genlmsghdr`.
const NLMSG_BYTES: usize = 16;
const HEADERS_BYTES: usize = NLMSG_BYTES + 4;
const ANSWER_BYTES_MAX: usize = 1 << 13;
const VERSION: u8 = 1;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_cannot_send_by_xdp() {
        // Kernels before 6.3 know no features.
        let Ok(features) = XdpFeatures::new(1) else { return };
        assert_eq!(features.get().unwrap() & NETDEV_XDP_ACT_NDO_XMIT, 0);
        assert!(!features.has_ndo_xmit());
        let nobody = XdpFeatures { index: 1 << 30, ..features };
        assert_eq!(nobody.get().unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(!nobody.has_ndo_xmit());
    }
}
