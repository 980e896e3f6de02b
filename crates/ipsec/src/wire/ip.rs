//! IP headers, found in bytes and checked once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    ETH_LEN, ETH_P_IP, ETH_P_IPV6, IPV4_CHECKSUM_AT, IPV4_LEN, IPV6_LEN, Sum, Version, get16,
    get32, get128, put16,
};
use crate::refusal::Refusal;

/// A complete IP header, in a packet that is at least as long as the header says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ip {
    pub(crate) version: Version,
    /// Offset of the header.
    pub(crate) at: usize,
    /// Length in bytes of the header, including IPv4 options and excluding IPv6 extension headers.
    pub(crate) len: usize,
    /// Length in bytes of the IP packet.
    pub(crate) total: usize,
    /// Protocol (IPv4) or next header (IPv6).
    pub(crate) protocol: u8,
    /// Traffic class: DSCP and ECN.
    pub(crate) class: u8,
    /// IPv4's word of flags and offset; for IPv6 only the bit Don't Fragment is set.
    pub(crate) flags: u16,
}

/// The part of a packet after the IP header, or after some of the extension headers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload {
    /// Offset of the payload.
    pub(crate) at: usize,
    pub(crate) protocol: u8,
    /// Offset of the byte that names the protocol, in the header before.
    pub(crate) protocol_at: usize,
}

/// The extension headers of IPv6 to skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    /// The headers that stay in front of a new ESP header (RFC 4303, 3.1.1): destination options
    /// only if no routing header precedes them.
    Insert,
    /// All headers, up to the payload.
    Payload,
}

impl Ip {
    /// The IP header of an Ethernet frame with up to two VLAN tags.
    #[inline(always)]
    pub(crate) fn of_frame(bytes: &[u8]) -> Result<Ip, Refusal> {
        let (at, ethertype) = ethertype(bytes)?;
        let version = match ethertype {
            ETH_P_IP => Version::V4,
            ETH_P_IPV6 => Version::V6,
            _ => return Err(Refusal::NotIp),
        };
        Ip::at(bytes, at, version)
    }

    /// The IP header at the offset `at`.
    #[inline(always)]
    pub(crate) fn at(bytes: &[u8], at: usize, version: Version) -> Result<Ip, Refusal> {
        let rest = bytes.get(at..).ok_or(Refusal::Truncated)?;
        let ip = match version {
            Version::V4 => {
                let header = rest.first_chunk::<IPV4_LEN>().ok_or(Refusal::Truncated)?;
                let len = usize::from(header[0] & 0xf) * 4;
                let (total, flags) = (get16(header, 2).into(), get16(header, 6));
                let (class, protocol) = (header[1], header[9]);
                let is_right = header[0] >> 4 == 4 && len >= IPV4_LEN;
                is_right.then_some(Ip { version, at, len, total, protocol, class, flags })
            }
            Version::V6 => {
                let header = rest.first_chunk::<IPV6_LEN>().ok_or(Refusal::Truncated)?;
                let (len, total) = (IPV6_LEN, IPV6_LEN + usize::from(get16(header, 4)));
                let class = (get16(header, 0) >> 4) as u8;
                let (protocol, flags) = (header[6], super::DF);
                let is_right = header[0] >> 4 == 6;
                is_right.then_some(Ip { version, at, len, total, protocol, class, flags })
            }
        };
        let ip = ip.filter(|ip| ip.total >= ip.len).ok_or(Refusal::BadIpHeader)?;
        if ip.total > rest.len() { Err(Refusal::Truncated) } else { Ok(ip) }
    }

    /// Offset of the end of the IP packet.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.at + self.total
    }

    /// Whether routers must not fragment the packet; always true for IPv6.
    #[inline]
    pub(crate) fn dont_fragment(&self) -> bool {
        self.flags & super::DF != 0
    }

    /// Whether the packet is an IPv4 fragment. IPv6 fragments have an extension header instead.
    #[inline]
    pub(crate) fn is_fragment_v4(&self) -> bool {
        self.flags & MF_AND_OFFSET != 0
    }

    /// Whether the checksum of an IPv4 header is right; true for IPv6, which has none.
    #[inline]
    pub(crate) fn has_good_checksum(&self, bytes: &[u8]) -> bool {
        if self.version == Version::V6 {
            return true;
        }
        let header = &bytes[self.at..self.at + self.len];
        match header.as_array::<IPV4_LEN>() {
            Some(header) => Sum::of(header).is_right(),
            None => Sum::of(header).is_right(),
        }
    }

    /// Finds the payload of a packet that is not a fragment.
    #[inline]
    pub(crate) fn payload(&self, bytes: &[u8], walk: Walk) -> Result<Payload, Refusal> {
        if self.version == Version::V4 {
            if self.is_fragment_v4() {
                return Err(Refusal::Fragment);
            }
            return Ok(self.first());
        }
        let found = self.first();
        if is_extension(found.protocol) {
            return self.walk(bytes, found, walk);
        }
        Ok(found)
    }

    #[cold]
    fn walk(&self, bytes: &[u8], mut found: Payload, walk: Walk) -> Result<Payload, Refusal> {
        let mut has_routing = false;
        for _ in 0..EXTENSIONS_MAX {
            match found.protocol {
                FRAGMENT => return Err(Refusal::Fragment),
                DESTINATION if walk == Walk::Insert && has_routing => return Ok(found),
                HOP_BY_HOP | ROUTING | DESTINATION => {}
                _ => return Ok(found),
            }
            has_routing |= found.protocol == ROUTING;
            found = step(bytes, found, self.end())?;
        }
        Err(Refusal::BadIpHeader)
    }

    /// The part of the packet after the IP header, extension headers included.
    #[inline]
    pub(crate) fn first(&self) -> Payload {
        let protocol_at = match self.version {
            Version::V4 => self.at + 9,
            Version::V6 => self.at + 6,
        };
        Payload { at: self.at + self.len, protocol: self.protocol, protocol_at }
    }

    /// The offset of an IPv4 fragment's payload, if the fragment is the first one.
    pub(crate) fn first_fragment_v4(&self) -> Option<usize> {
        (self.flags & OFFSET == 0).then_some(self.at + self.len)
    }

    /// The source address.
    pub(crate) fn source(&self, bytes: &[u8]) -> IpAddr {
        match self.version {
            Version::V4 => Ipv4Addr::from_bits(get32(bytes, self.at + 12)).into(),
            Version::V6 => Ipv6Addr::from_bits(get128(bytes, self.at + 8)).into(),
        }
    }

    /// Writes the length of the packet, and the checksum of an IPv4 header for its current
    /// contents.
    #[inline]
    pub(crate) fn set_total(&self, bytes: &mut [u8], total: usize) {
        match self.version {
            Version::V4 => {
                let header = &mut bytes[self.at..self.at + self.len];
                put16(header, 2, total as u16);
                put16(header, IPV4_CHECKSUM_AT, 0);
                let checksum = Sum::of(header).checksum();
                header[IPV4_CHECKSUM_AT..][..2].copy_from_slice(&checksum);
            }
            Version::V6 => put16(bytes, self.at + 4, (total - IPV6_LEN) as u16),
        }
    }
}

impl Payload {
    /// The protocol and the offset of the payload after all extension headers of IPv6, fragment
    /// headers included. The offset is `None` for all fragments but the first.
    pub(crate) fn upper(self, bytes: &[u8], end: usize) -> Result<(u8, Option<usize>), Refusal> {
        let mut found = self;
        for _ in 0..EXTENSIONS_MAX {
            if !is_extension(found.protocol) {
                return Ok((found.protocol, Some(found.at)));
            }
            let (protocol, before) = (found.protocol, found.at);
            found = step(bytes, found, end)?;
            if protocol == FRAGMENT && get16(bytes, before + 2) & !7 != 0 {
                return Ok((found.protocol, None));
            }
        }
        Err(Refusal::BadIpHeader)
    }
}

/// Skips one extension header.
fn step(bytes: &[u8], from: Payload, end: usize) -> Result<Payload, Refusal> {
    if from.at + 8 > end {
        return Err(Refusal::Truncated);
    }
    let at = match from.protocol {
        FRAGMENT => from.at + 8,
        _ => from.at + (usize::from(bytes[from.at + 1]) + 1) * 8,
    };
    if at > end {
        return Err(Refusal::Truncated);
    }
    Ok(Payload { at, protocol: bytes[from.at], protocol_at: from.at })
}

/// Offset of the first byte after the Ethernet header and its VLAN tags, and the last ethertype.
#[inline(always)]
fn ethertype(bytes: &[u8]) -> Result<(usize, u16), Refusal> {
    if bytes.len() < ETH_LEN {
        return Err(Refusal::Truncated);
    }
    let (mut at, mut ethertype) = (ETH_LEN, get16(bytes, 12));
    for _ in 0..VLANS_MAX {
        if !matches!(ethertype, ETH_P_8021Q | ETH_P_8021AD) {
            break;
        }
        if bytes.len() < at + VLAN_LEN {
            return Err(Refusal::Truncated);
        }
        ethertype = get16(bytes, at + 2);
        at += VLAN_LEN;
    }
    Ok((at, ethertype))
}

fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION)
}

const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;
const VLAN_LEN: usize = 4;
const VLANS_MAX: usize = 2;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// Limit of extension headers in a packet. A packet has at most one of each kind, apart from
/// destination options.
const EXTENSIONS_MAX: usize = 8;
const OFFSET: u16 = 0x1fff;
const MF_AND_OFFSET: u16 = 0x3fff;
