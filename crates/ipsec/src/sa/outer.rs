//! The headers that an outbound SA puts in front of packets, prepared once.

use std::net::IpAddr;

use super::config::{Config, Df, Dscp, Mode, Tunnel};
use crate::wire::{self, IPV4_LEN, IPV6_LEN, Sum, UDP_LEN, Version};

/// Outer IP header (in tunnel mode) and UDP header (with encapsulation).
#[derive(Debug)]
pub(crate) struct Outer {
    /// The IP header, with the fields that are the same in each packet.
    bytes: [u8; IPV6_LEN],
    /// UDP source and destination port.
    ports: [u8; 4],
    /// Length in bytes of the IP header; 0 in transport mode.
    pub(crate) ip_len: usize,
    /// Length in bytes of the UDP header; 0 without UDP encapsulation.
    pub(crate) udp_len: usize,
    /// Sum of the IPv4 header's words that are the same in each packet, for the checksum.
    sum: Sum,
    /// Family of the outer header in tunnel mode.
    pub(crate) version: Version,
    pub(crate) tunnel: Tunnel,
}

/// The fields of an inner header that the outer header depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inner {
    pub(crate) traffic_class: u8,
    pub(crate) dont_fragment: bool,
}

impl Outer {
    pub(super) fn new(config: &Config) -> Outer {
        let mut bytes = [0; IPV6_LEN];
        let version = Version::of(config.destination);
        let udp_len = if config.encapsulation.is_some() { UDP_LEN } else { 0 };
        let protocol = if udp_len > 0 { wire::IPPROTO_UDP } else { wire::IPPROTO_ESP };
        let (ip_len, tunnel) = match config.mode {
            Mode::Transport => (0, Tunnel::default()),
            Mode::Tunnel(tunnel) => {
                write_ip(&mut bytes, config, protocol, tunnel.hop_limit);
                (version.header_len(), tunnel)
            }
        };
        let mut ports = [0; 4];
        if let Some(encapsulation) = config.encapsulation {
            wire::put16(&mut ports, 0, encapsulation.source_port);
            wire::put16(&mut ports, 2, encapsulation.destination_port);
        }
        let sum = if ip_len == IPV4_LEN { Sum::of(&bytes[..ip_len]) } else { Sum::ZERO };
        Outer { bytes, ports, ip_len, udp_len, sum, version, tunnel }
    }

    /// The IPv4 header of a packet of `total` bytes.
    #[inline]
    pub(crate) fn ipv4(&self, total: usize, inner: Inner, sequence: u64) -> [u8; IPV4_LEN] {
        let class = self.class(inner);
        let dont_fragment = match self.tunnel.df {
            Df::Copy => inner.dont_fragment,
            Df::Set => true,
            Df::Clear => false,
        };
        // An identification is needed only where fragments are possible (RFC 6864).
        let (id, flags) = if dont_fragment { (0, wire::DF) } else { (sequence as u16, 0) };
        let mut header = [0; IPV4_LEN];
        header.copy_from_slice(&self.bytes[..IPV4_LEN]);
        header[1] = class;
        wire::put16(&mut header, 2, total as u16);
        wire::put16(&mut header, 4, id);
        wire::put16(&mut header, 6, flags);
        let sum = self.sum.plus(class.into()).plus(total as u16).plus(id).plus(flags);
        header[wire::IPV4_CHECKSUM_AT..][..2].copy_from_slice(&sum.checksum());
        header
    }

    /// The IPv6 header of a packet of `total` bytes.
    #[inline]
    pub(crate) fn ipv6(&self, total: usize, inner: Inner) -> [u8; IPV6_LEN] {
        let mut header = [0; IPV6_LEN];
        header.copy_from_slice(&self.bytes[..IPV6_LEN]);
        wire::put16(&mut header, 0, 0x6000 | u16::from(self.class(inner)) << 4);
        wire::put16(&mut header, 4, (total - IPV6_LEN) as u16);
        header
    }

    /// The UDP header of a UDP packet of `len` bytes. The checksum is 0, which IPv4 allows; for
    /// IPv6 it must be replaced.
    #[inline]
    pub(crate) fn udp(&self, len: usize) -> [u8; UDP_LEN] {
        let mut header = [0; UDP_LEN];
        header[..4].copy_from_slice(&self.ports);
        wire::put16(&mut header, 4, len as u16);
        header
    }

    #[inline]
    fn class(&self, inner: Inner) -> u8 {
        let dscp = match self.tunnel.dscp {
            Dscp::Copy => inner.traffic_class & !wire::ECN_MASK,
            Dscp::Set(dscp) => dscp << 2,
        };
        let ecn = if self.tunnel.ecn { inner.traffic_class & wire::ECN_MASK } else { 0 };
        dscp | ecn
    }
}

fn write_ip(bytes: &mut [u8], config: &Config, protocol: u8, hop_limit: u8) {
    match (config.source, config.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes[0] = 0x45;
            bytes[8] = hop_limit;
            bytes[9] = protocol;
            bytes[12..16].copy_from_slice(&source.octets());
            bytes[16..20].copy_from_slice(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            bytes[0] = 0x60;
            bytes[6] = protocol;
            bytes[7] = hop_limit;
            bytes[8..24].copy_from_slice(&source.octets());
            bytes[24..40].copy_from_slice(&destination.octets());
        }
        // `Config::check` refuses two families.
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
    }
}
