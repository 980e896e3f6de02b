//! Ethernet, IP and UDP headers, to the extent that ESP needs them.

mod ecn;
mod flow;
mod ip;

use std::net::IpAddr;

pub(crate) use ecn::{decapsulated_class, set_class};
pub(crate) use flow::{flow, flow_behind, flow_of, upper};
pub(crate) use ip::{Ip, Payload, Walk};

/// The family of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

impl Version {
    pub(crate) fn of(address: IpAddr) -> Version {
        if address.is_ipv4() { Version::V4 } else { Version::V6 }
    }

    pub(crate) const fn ethertype(self) -> u16 {
        match self {
            Version::V4 => ETH_P_IP,
            Version::V6 => ETH_P_IPV6,
        }
    }

    /// Length in bytes of a header without options.
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Version::V4 => IPV4_LEN,
            Version::V6 => IPV6_LEN,
        }
    }
}

/// The big-endian number in two bytes at `at`.
#[inline]
pub(crate) fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(get(bytes, at))
}

/// The big-endian number in four bytes at `at`.
#[inline]
pub(crate) fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(get(bytes, at))
}

/// The big-endian number in sixteen bytes at `at`.
#[inline]
pub(crate) fn get128(bytes: &[u8], at: usize) -> u128 {
    u128::from_be_bytes(get(bytes, at))
}

/// Reads bytes with one check of the range, where single reads would check each byte.
#[inline]
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}

#[inline]
pub(crate) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// A sum of 16-bit words for an Internet checksum (RFC 1071), in the machine's byte order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum(u64);

impl Sum {
    pub(crate) const ZERO: Sum = Sum(0);

    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Sum {
        let (words, rest) = bytes.as_chunks();
        let sum: u64 = words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Sum(sum + u64::from(u32::from_ne_bytes(last)))
    }

    #[inline]
    pub(crate) fn plus(self, word: u16) -> Sum {
        Sum(self.0 + u64::from(word.to_be()))
    }

    #[inline]
    pub(crate) fn plus_sum(self, other: Sum) -> Sum {
        Sum(self.0 + other.0)
    }

    /// Whether the summed bytes include their checksum and the checksum is right.
    #[inline]
    pub(crate) fn is_right(self) -> bool {
        self.fold() == u16::MAX
    }

    /// The checksum of the summed bytes.
    #[inline]
    pub(crate) fn checksum(self) -> [u8; 2] {
        (!self.fold()).to_ne_bytes()
    }

    #[inline]
    fn fold(self) -> u16 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }
}

/// Moves `count` bytes within the packet, which are nearly always an Ethernet header.
#[inline]
pub(crate) fn move_front(bytes: &mut [u8], count: usize, from: usize, to: usize) {
    match bytes.get(from..).and_then(|bytes| bytes.first_chunk::<ETH_LEN>()).copied() {
        Some(header) if count == ETH_LEN => bytes[to..to + ETH_LEN].copy_from_slice(&header),
        _ => bytes.copy_within(from..from + count, to),
    }
}

pub(crate) const ETH_LEN: usize = 14;
pub(crate) const ETH_P_IP: u16 = 0x0800;
pub(crate) const ETH_P_IPV6: u16 = 0x86dd;
pub(crate) const IPV4_LEN: usize = 20;
pub(crate) const IPV4_CHECKSUM_AT: usize = 10;
pub(crate) const IPV6_LEN: usize = 40;
pub(crate) const UDP_LEN: usize = 8;
/// The bit Don't Fragment in IPv4's word of flags and offset.
pub(crate) const DF: u16 = 0x4000;
pub(crate) const ECN_MASK: u8 = 3;
pub(crate) const IPPROTO_IPIP: u8 = 4;
pub(crate) const IPPROTO_TCP: u8 = 6;
pub(crate) const IPPROTO_UDP: u8 = 17;
pub(crate) const IPPROTO_IPV6: u8 = 41;
pub(crate) const IPPROTO_ESP: u8 = 50;
pub(crate) const IPPROTO_NONE: u8 = 59;
pub(crate) const IPPROTO_SCTP: u8 = 132;
pub(crate) const IPPROTO_DCCP: u8 = 33;
pub(crate) const IPPROTO_UDPLITE: u8 = 136;
