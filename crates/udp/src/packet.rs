//! Frames read as UDP datagrams (RFC 768, 791, 8200).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::checksum::{fold, sum, word};
use crate::datagram::RxDatagram;

/// The reason why a frame is no datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is not UDP in IPv4 or IPv6, or a fragment, or its lengths contradict each other.
    Malformed,
    /// A checksum is wrong, or missing in IPv6.
    Checksum,
}

/// The datagram in an Ethernet frame that arrived at a queue. The frame may be longer than the
/// packet (padding).
///
/// # Errors
///
/// Fails for frames with VLAN tags and packets with IPv6 extension headers as well: the daemon
/// leaves them to the host.
#[inline]
pub fn parse(frame: &[u8], queue: u32) -> Result<RxDatagram<'_>, Refusal> {
    let (header, packet) = frame.split_first_chunk::<14>().ok_or(Refusal::Malformed)?;
    match [header[12], header[13]] {
        ETHERTYPE_IPV4 => ipv4(packet, queue),
        ETHERTYPE_IPV6 => ipv6(packet, queue),
        _ => Err(Refusal::Malformed),
    }
}

#[inline]
fn ipv4(packet: &[u8], queue: u32) -> Result<RxDatagram<'_>, Refusal> {
    let header = packet.first_chunk::<20>().ok_or(Refusal::Malformed)?;
    let header_len = usize::from(header[0] & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let is_fragment = (header[6] & 0x3f, header[7]) != (0, 0);
    let is_udp = header[0] >> 4 == 4 && header[9] == IPPROTO_UDP && !is_fragment;
    if !is_udp || header_len < 20 || total < header_len {
        return Err(Refusal::Malformed);
    }
    let packet = packet.get(..total).ok_or(Refusal::Malformed)?;
    let (header_bytes, datagram) = packet.split_at(header_len);
    if fold(sum(header_bytes)) != 0xffff {
        return Err(Refusal::Checksum);
    }
    let ecn = header[1] & 3;
    let addresses = &header[12..20];
    let [a, b, c, d, e, f, g, h] = *header[12..].first_chunk().ok_or(Refusal::Malformed)?;
    let source = IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    let destination = IpAddr::V4(Ipv4Addr::new(e, f, g, h));
    let has_checksum = |field: [u8; 2]| field != [0, 0];
    udp(datagram, addresses, (source, destination), has_checksum).map(|datagram| RxDatagram {
        ecn,
        queue,
        ..datagram
    })
}

#[inline]
fn ipv6(packet: &[u8], queue: u32) -> Result<RxDatagram<'_>, Refusal> {
    let (header, rest) = packet.split_first_chunk::<40>().ok_or(Refusal::Malformed)?;
    if header[0] >> 4 != 6 || header[6] != IPPROTO_UDP {
        return Err(Refusal::Malformed);
    }
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let datagram = rest.get(..len).ok_or(Refusal::Malformed)?;
    let ecn = header[1] >> 4 & 3;
    let address = |at: usize| header[at..].first_chunk::<16>().copied().map(Ipv6Addr::from);
    let (Some(source), Some(destination)) = (address(8), address(24)) else {
        return Err(Refusal::Malformed);
    };
    // Without a checksum a wrong address would go unnoticed (RFC 8200, section 8.1).
    if datagram.get(6..8) == Some(&[0, 0]) {
        return Err(Refusal::Checksum);
    }
    udp(datagram, &header[8..40], (source.into(), destination.into()), |_| true)
        .map(|datagram| RxDatagram { ecn, queue, ..datagram })
}

/// Reads a datagram with its header. `addresses` are both addresses as the pseudo header has them.
#[inline]
fn udp<'a>(
    datagram: &'a [u8],
    addresses: &[u8],
    (source, destination): (IpAddr, IpAddr),
    has_checksum: impl FnOnce([u8; 2]) -> bool,
) -> Result<RxDatagram<'a>, Refusal> {
    let header = datagram.first_chunk::<8>().ok_or(Refusal::Malformed)?;
    let [s0, s1, d0, d1, l0, l1, c0, c1] = *header;
    let len = u16::from_be_bytes([l0, l1]);
    // A packet may be longer than its datagram; nothing says what the rest would be.
    let datagram = datagram.get(..usize::from(len)).ok_or(Refusal::Malformed)?;
    let payload = datagram.get(8..).ok_or(Refusal::Malformed)?;
    if has_checksum([c0, c1]) {
        let pseudo = sum(addresses) + word(u16::from(IPPROTO_UDP)) + word(len);
        if fold(pseudo + sum(datagram)) != 0xffff {
            return Err(Refusal::Checksum);
        }
    }
    Ok(RxDatagram {
        payload,
        source: SocketAddr::new(source, u16::from_be_bytes([s0, s1])),
        destination: SocketAddr::new(destination, u16::from_be_bytes([d0, d1])),
        ecn: 0,
        queue: 0,
    })
}

/// In network order.
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const IPPROTO_UDP: u8 = 17;
