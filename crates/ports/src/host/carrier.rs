//! Carrier state of an interface (`RTM_GETLINK`, `IFLA_CARRIER`), for bonds.
//!
//! `IFF_RUNNING` follows the carrier up to a second later (`net/core/link_watch.c`).

use std::io;

use parking_lot::Mutex;
use towpath_host::netlink::protocols::NETLINK_ROUTE;
use towpath_host::netlink::{Answer, Attributes, Socket, attribute};

use super::malformed;

/// A netlink socket in the namespace in which it was made.
#[derive(Debug)]
pub(super) struct Carrier(Mutex<Socket>);

impl Carrier {
    pub(super) fn new() -> io::Result<Carrier> {
        Socket::open(NETLINK_ROUTE, 0).map(|socket| Carrier(Mutex::new(socket)))
    }

    /// Whether the interface with this name is up and has a carrier.
    pub(super) fn is_there(&self, name: &str) -> io::Result<bool> {
        let mut content = vec![0; IFINFOMSG_BYTES];
        content.extend(attribute(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes()));
        content.extend(attribute(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat()));
        let mut netlink = self.0.lock();
        parse(&netlink.ask(RTM_GETLINK, &content)?)
    }
}

fn parse(answer: &Answer) -> io::Result<bool> {
    let flags = answer.content.get(FLAGS_OFFSET..).and_then(|bytes| bytes.first_chunk());
    let flags = flags.map(|bytes| i32::from_ne_bytes(*bytes));
    let flags = flags.filter(|_| answer.kind == RTM_NEWLINK).ok_or_else(malformed)?;
    let attributes = answer.content.get(IFINFOMSG_BYTES..).ok_or_else(malformed)?;
    let carrier = Attributes(attributes).value(IFLA_CARRIER).ok_or_else(malformed)?;
    Ok(flags & libc::IFF_UP != 0 && carrier.first().is_some_and(|&byte| byte != 0))
}

/// `struct ifinfomsg`
const IFINFOMSG_BYTES: usize = 16;
/// `ifi_flags`
const FLAGS_OFFSET: usize = 8;
const _: () = assert!(FLAGS_OFFSET + size_of::<u32>() <= IFINFOMSG_BYTES, "inside the header");
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const IFLA_IFNAME: u16 = 3;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_CARRIER: u16 = 33;
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_asked_by_name() {
        let carrier = Carrier::new().unwrap();
        // It may be down, but it exists.
        carrier.is_there("lo").unwrap();
        let nobody = carrier.is_there("no such").unwrap_err();
        assert_eq!(nobody.raw_os_error(), Some(libc::ENODEV));
        for len in 0..24 {
            assert!(parse(&Answer { kind: RTM_NEWLINK, content: vec![0; len] }).is_err());
        }
    }
}
