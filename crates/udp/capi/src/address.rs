//! Socket addresses as C has them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;

/// `struct sockaddr_storage` with the fields of `struct sockaddr_in` and `struct sockaddr_in6`,
/// which begin in the same way.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Address {
    family: u16,
    /// In network order.
    port: [u8; 2],
    /// The IPv4 address, or the flow label of IPv6.
    ipv4: [u8; 4],
    ipv6: [u8; 16],
    scope: u32,
    rest: [u8; 100],
}

impl Address {
    pub(crate) fn new(address: SocketAddr) -> Address {
        let (family, ipv4, ipv6, scope) = match address {
            SocketAddr::V4(address) => (AF_INET, address.ip().octets(), [0; 16], 0),
            SocketAddr::V6(address) => {
                (AF_INET6, [0; 4], address.ip().octets(), address.scope_id())
            }
        };
        let port = address.port().to_be_bytes();
        Address { family, port, ipv4, ipv6, scope, rest: [0; 100] }
    }

    /// From the first bytes of a `struct sockaddr`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are too few of them for the family.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Address, Errno> {
        let (family, rest) = bytes.split_first_chunk().ok_or(Errno::INVAL)?;
        let (port, rest) = rest.split_first_chunk().ok_or(Errno::INVAL)?;
        let (ipv4, rest) = rest.split_first_chunk().ok_or(Errno::INVAL)?;
        let family = u16::from_ne_bytes(*family);
        let mut ipv6 = [0; 16];
        if family == AF_INET6 {
            ipv6 = *rest.first_chunk().ok_or(Errno::INVAL)?;
        }
        Ok(Address { family, port: *port, ipv4: *ipv4, ipv6, scope: 0, rest: [0; 100] })
    }

    /// The address; `None` for `AF_UNSPEC`.
    ///
    /// # Errors
    ///
    /// `EAFNOSUPPORT` if it is of another family than IPv4 and IPv6.
    pub(crate) fn get(&self) -> Result<Option<SocketAddr>, Errno> {
        let ip = match self.family {
            AF_UNSPEC => return Ok(None),
            AF_INET => IpAddr::from(self.ipv4),
            AF_INET6 => IpAddr::from(Ipv6Addr::from(self.ipv6)),
            _ => return Err(Errno::AFNOSUPPORT),
        };
        Ok(Some(SocketAddr::new(ip, u16::from_be_bytes(self.port))))
    }
}

const AF_UNSPEC: u16 = 0;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const _: () = assert!(size_of::<Address>() == 128, "that of struct sockaddr_storage");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_kernel() {
        let four = [2, 0, 0x11, 0x51, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let address = Address::from_bytes(&four).unwrap();
        assert_eq!(address.get(), Ok(Some("10.0.0.1:4433".parse().unwrap())));
        let mut six = vec![10, 0, 0, 53, 0, 0, 0, 0];
        six.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(
            Address::from_bytes(&six).unwrap().get(),
            Ok(Some("[2001:db8::1]:53".parse().unwrap()))
        );
        for text in ["10.0.0.1:4433", "[2001:db8::1]:53"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Address::new(address).get(), Ok(Some(address)));
        }
        assert!(Address::from_bytes(&four[..7]).is_err());
        assert!(Address::from_bytes(&six[..20]).is_err());
        let other = Address::from_bytes(&[1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(other.get(), Err(Errno::AFNOSUPPORT));
        assert_eq!(Address::from_bytes(&[0; 8]).unwrap().get(), Ok(None));
    }
}
