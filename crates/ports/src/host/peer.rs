//! The peer of a veth, in any namespace, and the offloads that its stack leaves to the device.
//!
//! A veth advertises checksum offload, and passes packets on without checksums, because nothing can
//! corrupt them on the way. An AF_XDP receiver is not told of this and sends them on unchanged, and
//! the final receiver drops them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use towpath_host::netlink::protocols::NETLINK_ROUTE;
use towpath_host::netlink::{Attributes, Socket, attribute};

use super::{Interface, malformed, within};
use crate::Error;

/// The peer of a veth.
#[derive(Debug)]
pub(crate) struct Peer {
    interface: Interface,
    name: String,
}

impl Peer {
    /// The peer of an interface of the calling thread's namespace; `None` if the interface is not a
    /// veth, or its peer cannot be found.
    pub(crate) fn of(index: u32) -> Option<Peer> {
        let mut netlink = Socket::open(NETLINK_ROUTE, 0).ok()?;
        let answer = netlink.ask(RTM_GETLINK, &request(index)).ok()?;
        let attributes = Attributes(answer.content.get(IFINFOMSG_BYTES..)?);
        let kind = Attributes(attributes.value(IFLA_LINKINFO)?).value(IFLA_INFO_KIND)?;
        if kind.strip_suffix(b"\0").unwrap_or(kind) != b"veth" {
            return None;
        }
        let number = |kind| attributes.value(kind)?.first_chunk().map(|it| u32::from_ne_bytes(*it));
        let other = number(IFLA_LINK)?;
        match number(IFLA_LINK_NETNSID) {
            None => Peer::here(other).ok(),
            Some(namespace) => {
                let path = find_namespace(&mut netlink, namespace)?;
                let here = || {
                    Peer::here(other).map_err(|source| Error::Namespace {
                        name: path.display().to_string(),
                        source,
                    })
                };
                within(path.to_str(), here).ok()
            }
        }
    }

    /// An interface of the calling thread's namespace.
    fn here(index: u32) -> io::Result<Peer> {
        let answer = Socket::open(NETLINK_ROUTE, 0)?.ask(RTM_GETLINK, &request(index))?;
        let attributes = Attributes(answer.content.get(IFINFOMSG_BYTES..).ok_or_else(malformed)?);
        let name = attributes.value(IFLA_IFNAME).ok_or_else(malformed)?;
        let name = String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(name)).into_owned();
        Ok(Peer { interface: Interface::new(&name)?, name })
    }

    /// Its name in its own namespace.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether its stack leaves checksums to the device (`ethtool -k`, tx-checksumming).
    pub(crate) fn leaves_checksums(&self) -> bool {
        self.interface.ethtool(ETHTOOL_GTXCSUM).unwrap_or(false)
    }

    /// Sets whether its stack leaves checksums to the device, and with them large packets.
    pub(crate) fn leave_checksums(&self, leave: bool) -> io::Result<()> {
        self.interface.set_ethtool(ETHTOOL_STXCSUM, leave)
    }
}

/// A `struct ifinfomsg` with the ifindex only.
fn request(index: u32) -> Vec<u8> {
    let mut message = vec![0; IFINFOMSG_BYTES];
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    message
}

/// Path of the network namespace with this nsid, relative to the calling thread's: one with a name,
/// or one of a process.
fn find_namespace(netlink: &mut Socket, number: u32) -> Option<PathBuf> {
    let entries = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries("/run/netns").map(|entry| entry.path());
    let used = entries("/proc").map(|entry| entry.path().join("ns/net"));
    let mut seen = BTreeSet::new();
    named.chain(used).find(|path| {
        let Ok(file) = File::open(path) else { return false };
        let is_new = file.metadata().is_ok_and(|it| seen.insert((it.dev(), it.ino())));
        is_new && number_of(netlink, &file) == Some(number)
    })
}

/// The nsid of a namespace, relative to the calling thread's (`RTM_GETNSID`).
fn number_of(netlink: &mut Socket, namespace: &File) -> Option<u32> {
    let descriptor = namespace.as_raw_fd().cast_unsigned().to_ne_bytes();
    let wanted = [&[0; RTGENMSG_BYTES][..], &attribute(NETNSA_FD, &descriptor)].concat();
    let answer = netlink.ask(RTM_GETNSID, &wanted).ok()?;
    let number = Attributes(answer.content.get(RTGENMSG_BYTES..)?).value(NETNSA_NSID)?;
    number.first_chunk().map(|it| u32::from_ne_bytes(*it))
}

/// `struct ifinfomsg`
const IFINFOMSG_BYTES: usize = 16;
/// Bytes of `struct rtgenmsg`, padded to a multiple of 4.
const RTGENMSG_BYTES: usize = 4;
const RTM_GETLINK: u16 = 18;
const RTM_GETNSID: u16 = 90;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_LINK_NETNSID: u16 = 37;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
/// `ETHTOOL_GTXCSUM`: the stack leaves checksums to the device.
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_STXCSUM: u32 = 0x17;

#[cfg(test)]
mod tests {
    use towpath_kernel::Namespace;

    use super::*;

    /// Runs a function on a thread in the namespace.
    fn inside<T: Send>(namespace: &Namespace, look: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                namespace.enter().expect("it is ours");
                look()
            });
            thread.join().expect("no panic")
        })
    }

    #[test]
    fn the_other_end_is_found_here_and_elsewhere_and_makes_checksums_itself() {
        let (Ok(here), Ok(there)) = (Namespace::new(), Namespace::new()) else {
            return println!("skipped: network namespaces need root");
        };
        here.run("ip link add near type veth peer name far").expect("it is ours");
        let index = || inside(&here, || Interface::new("near")?.index()).expect("it was made");
        let found = inside(&here, || Peer::of(index())).expect("it is beside it");
        assert_eq!((found.name(), found.leaves_checksums()), ("far", true));
        // A process is in it, as in a container's.
        let _somebody = there.start("sleep 60").expect("it runs");
        here.run(&format!("ip link set far netns {}", there.path())).expect("it is ours");
        let mut found = None;
        for _ in 0..100 {
            found = inside(&here, || Peer::of(index()));
            if found.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let found = found.expect("it is in the other namespace");
        assert!(found.leaves_checksums());
        found.leave_checksums(false).expect("it is ours");
        assert!(!found.leaves_checksums());
        found.leave_checksums(true).expect("it is ours");
        assert!(found.leaves_checksums());
        assert!(inside(&here, || Peer::of(1)).is_none(), "a loopback device has none");
    }
}
