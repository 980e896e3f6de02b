//! The XDP program attached to an interface (`RTM_GETLINK`, `IFLA_XDP`).
//!
//! `Afxdp::new` (`afxdp/mod.rs`) refuses an interface that has one.

use std::io;

use towpath_host::netlink::protocols::NETLINK_ROUTE;
use towpath_host::netlink::{Answer, Attributes, Socket};

use super::malformed;

/// Programs attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct XdpAttached {
    /// Attach mode; `multi` if there are several programs.
    pub(crate) mode: &'static str,
    /// Program id; 0 if there are several.
    pub(crate) id: u32,
}

/// Reads the program on an interface of the calling thread's namespace.
pub(crate) fn xdp_attached(index: u32) -> io::Result<Option<XdpAttached>> {
    parse(&Socket::open(NETLINK_ROUTE, 0)?.ask(RTM_GETLINK, &request(index))?)
}

/// A `struct ifinfomsg` with the ifindex only.
fn request(index: u32) -> Vec<u8> {
    let mut message = vec![0; INDEX_OFFSET];
    message.extend(index.to_ne_bytes());
    message.resize(IFINFOMSG_BYTES, 0);
    message
}

fn parse(answer: &Answer) -> io::Result<Option<XdpAttached>> {
    if answer.kind != RTM_NEWLINK {
        return Err(malformed());
    }
    let attributes = answer.content.get(IFINFOMSG_BYTES..).ok_or_else(malformed)?;
    Ok(Attributes(attributes).value(IFLA_XDP).and_then(attached))
}

fn attached(nest: &[u8]) -> Option<XdpAttached> {
    let mut found = XdpAttached { mode: "multi", id: 0 };
    for (kind, value) in Attributes(nest) {
        match (kind, value) {
            (IFLA_XDP_ATTACHED, [0, ..]) => return None,
            (IFLA_XDP_ATTACHED, [1, ..]) => found.mode = "native",
            (IFLA_XDP_ATTACHED, [2, ..]) => found.mode = "generic",
            (IFLA_XDP_ATTACHED, [3, ..]) => found.mode = "offloaded",
            (IFLA_XDP_PROG_ID, value) => {
                found.id = value.first_chunk().map_or(0, |id| u32::from_ne_bytes(*id));
            }
            _ => {}
        }
    }
    Some(found)
}

/// `struct ifinfomsg`
const IFINFOMSG_BYTES: usize = 16;
/// `ifi_index`
const INDEX_OFFSET: usize = 4;
const _: () = assert!(INDEX_OFFSET + size_of::<u32>() <= IFINFOMSG_BYTES, "inside the header");
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_none() {
        assert_eq!(xdp_attached(1).unwrap(), None);
        let nobody = xdp_attached(1 << 30).unwrap_err();
        assert_eq!(nobody.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn nests_are_read_as_far_as_they_go() {
        let native = [5, 0, 2, 0, 1, 0, 0, 0, 8, 0, 4, 0, 7, 0, 0, 0];
        assert_eq!(attached(&native), Some(XdpAttached { mode: "native", id: 7 }));
        assert_eq!(attached(&[5, 0, 2, 0, 0]), None);
        for len in 0..native.len() {
            let _whatever = attached(&native[..len]);
            let content = native[..len].to_vec();
            assert!(parse(&Answer { kind: RTM_NEWLINK, content }).is_err());
        }
    }
}
