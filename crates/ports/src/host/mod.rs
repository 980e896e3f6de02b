//! Interfaces of the host, in any network namespace.

mod carrier;
mod features;
mod interface_unsafe;
mod namespace;
mod peer;
mod xdp;

pub(crate) use features::XdpFeatures;
pub(crate) use interface_unsafe::{ETHTOOL_GTSO, Interface};
pub(crate) use namespace::{is_foreign, within};
pub(crate) use peer::Peer;
pub(crate) use xdp::{XdpAttached, xdp_attached};

use crate::Error;

fn malformed() -> std::io::Error {
    std::io::Error::other("the kernel's answer over netlink cannot be read")
}

/// Checks a name as the kernel does (`dev_valid_name`), before anything is made with it.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let is_bad = |byte: u8| byte == b'/' || byte == b':' || byte.is_ascii_whitespace() || byte == 0;
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.bytes().any(is_bad);
    if is_name { Ok(()) } else { Err(Error::Name(name.to_owned())) }
}

/// `IFNAMSIZ` without the closing zero.
const NAME_BYTES_MAX: usize = libc::IFNAMSIZ - 1;

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_checked_as_the_kernel_does() {
        for name in ["t", "eth0", "fifteen-bytes-x", "a.b"] {
            assert!(super::check_name(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a:b", "a b", "sixteen-bytes-xx", "a\0"] {
            assert!(super::check_name(name).is_err(), "{name}");
        }
    }
}
