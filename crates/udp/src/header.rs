//! The headers of sent datagrams: Ethernet, IP and UDP.

use std::net::{IpAddr, SocketAddr};

use towpath_xsk_client::protocol::Route;

use crate::checksum::{fold, sum, word};

/// The headers of all datagrams from one address and port to another, but for lengths and
/// checksums.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    bytes: [u8; HEADER_BYTES_MAX],
    /// Bytes of all headers.
    len: usize,
    /// The sum of the IPv4 header without its length.
    ip_sum: u64,
    /// The sum of pseudo header and ports, without lengths.
    udp_sum: u64,
}

impl Header {
    /// The headers for a route. Both addresses are of one family.
    pub(crate) fn new(
        route: &Route,
        source: SocketAddr,
        destination: SocketAddr,
        ecn: u8,
    ) -> Header {
        let mut bytes = [0; HEADER_BYTES_MAX];
        bytes[..6].copy_from_slice(&route.next_hop_mac);
        bytes[6..12].copy_from_slice(&route.source_mac);
        let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
        let (len, addresses) = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes[12..14].copy_from_slice(&[0x08, 0x00]);
                bytes[14..24].copy_from_slice(&[
                    0x45,
                    ecn & 3,
                    0,
                    0,
                    0,
                    0,
                    DONT_FRAGMENT,
                    0,
                    HOPS,
                    UDP,
                ]);
                bytes[26..30].copy_from_slice(&source.octets());
                bytes[30..34].copy_from_slice(&destination.octets());
                (14 + 20 + 8, [source.octets(), destination.octets()].concat())
            }
            (source, destination) => {
                let octets = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
                bytes[14..22].copy_from_slice(&[0x60, (ecn & 3) << 4, 0, 0, 0, 0, UDP, HOPS]);
                bytes[22..38].copy_from_slice(&octets(source));
                bytes[38..54].copy_from_slice(&octets(destination));
                (14 + 40 + 8, [octets(source), octets(destination)].concat())
            }
        };
        bytes[len - 8..len - 4].copy_from_slice(&ports);
        let ip_sum = sum(&bytes[14..34]);
        let udp_sum = sum(&addresses) + word(u16::from(UDP)) + sum(&ports);
        Header { bytes, len, ip_sum, udp_sum }
    }

    /// Bytes of a frame with this payload.
    #[inline]
    pub(crate) fn frame_len(&self, payload: usize) -> usize {
        self.len + payload
    }

    /// Bytes of the IP and UDP headers.
    pub(crate) fn packet_overhead(&self) -> usize {
        self.len - 14
    }

    /// Writes a frame of [`Header::frame_len`] bytes.
    #[inline]
    pub(crate) fn write(&self, frame: &mut [u8], payload: &[u8]) {
        let udp_len = (8 + payload.len()) as u16;
        let Some((header, rest)) = frame.split_at_mut_checked(self.len) else { return };
        rest.copy_from_slice(payload);
        header.copy_from_slice(&self.bytes[..self.len]);
        let udp_at = self.len - 8;
        header[udp_at + 4..udp_at + 6].copy_from_slice(&udp_len.to_be_bytes());
        let checksum = !fold(self.udp_sum + 2 * word(udp_len) + sum(rest));
        // 0 would mean that there is none (RFC 768).
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        header[udp_at + 6..].copy_from_slice(&checksum.to_ne_bytes());
        if self.len == IPV4_HEADER_BYTES {
            let total = udp_len + 20;
            header[16..18].copy_from_slice(&total.to_be_bytes());
            let checksum = !fold(self.ip_sum + word(total));
            header[24..26].copy_from_slice(&checksum.to_ne_bytes());
        } else {
            header[18..20].copy_from_slice(&udp_len.to_be_bytes());
        }
    }
}

const HEADER_BYTES_MAX: usize = 14 + 40 + 8;
const IPV4_HEADER_BYTES: usize = 14 + 20 + 8;
/// The flag in the first byte of the fragment offset. With it the identification means nothing
/// (RFC 6864).
const DONT_FRAGMENT: u8 = 0x40;
/// Time to live, the kernel's default.
const HOPS: u8 = 64;
const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use towpath_xsk_client::protocol::Route;

    use super::Header;
    use crate::packet::{Refusal, parse};

    fn route() -> Route {
        Route { source_mac: [2; 6], next_hop_mac: [4; 6], mtu: 1500, source: [10, 0, 0, 1].into() }
    }

    fn frame(source: SocketAddr, destination: SocketAddr, ecn: u8, payload: &[u8]) -> Vec<u8> {
        let header = Header::new(&route(), source, destination, ecn);
        let mut frame = vec![0xee; header.frame_len(payload.len())];
        header.write(&mut frame, payload);
        frame
    }

    fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
        let (source, destination) = match v6 {
            true => ("[2001:db8::1]:4433", "[2001:db8::2]:9"),
            false => ("10.0.0.1:4433", "10.0.0.2:9"),
        };
        (source.parse().unwrap(), destination.parse().unwrap())
    }

    #[test]
    fn written_headers_are_read_again() {
        let mut random = fastrand::Rng::with_seed(2);
        for (v6, ecn) in [(false, 0), (false, 3), (true, 1), (true, 2)] {
            for len in (0..70).chain([1399, 1400, 1452]) {
                let (source, destination) = ends(v6);
                let payload: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
                let mut frame = frame(source, destination, ecn, &payload);
                frame.extend([0; 3]);
                let datagram = parse(&frame, 5).unwrap();
                assert_eq!(datagram.payload, payload);
                assert_eq!((datagram.source, datagram.destination), (source, destination));
                assert_eq!((datagram.ecn, datagram.queue), (ecn, 5));
            }
        }
    }

    /// The checksum field of a datagram whose sum would be 0 is 0xffff.
    #[test]
    fn a_checksum_is_never_zero() {
        let (source, destination) = ends(true);
        let mut seen = false;
        for number in 0..=u16::MAX {
            let frame = frame(source, destination, 0, &number.to_be_bytes());
            assert_ne!(frame[60..62], [0, 0]);
            seen |= frame[60..62] == [0xff, 0xff];
            assert!(parse(&frame, 0).is_ok());
        }
        assert!(seen);
    }

    #[test]
    fn each_flipped_bit_is_noticed_or_belongs_to_the_host() {
        for v6 in [false, true] {
            let (source, destination) = ends(v6);
            let good = frame(source, destination, 2, b"towpath!");
            for bit in 14 * 8..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let result = parse(&bad, 0).map(|datagram| datagram.payload.to_vec());
                // IPv6 does not cover its traffic class, flow label and hop limit.
                let is_covered = |bit: usize| match bit / 8 {
                    14 => bit % 8 >= 4,
                    15..=17 | 21 => false,
                    _ => true,
                };
                let covered = !v6 || is_covered(bit);
                assert_eq!(result.is_err(), covered, "v6 {v6}, bit {bit}: {result:?}");
            }
        }
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for v6 in [false, true] {
            let (source, destination) = ends(v6);
            let good = frame(source, destination, 0, &[7; 32]);
            for len in 0..good.len() {
                assert_eq!(parse(&good[..len], 0).err(), Some(Refusal::Malformed), "{len} bytes");
            }
            let udp_len = good.len() - 32 - 4;
            for len in [0u16, 7, 41, 1400, u16::MAX] {
                let mut bad = good.clone();
                bad[udp_len..udp_len + 2].copy_from_slice(&len.to_be_bytes());
                assert_eq!(parse(&bad, 0).err(), Some(Refusal::Malformed), "{len}");
            }
        }
    }

    #[test]
    fn a_missing_checksum_is_allowed_in_ipv4_only() {
        for (v6, expected) in [(false, None), (true, Some(Refusal::Checksum))] {
            let (source, destination) = ends(v6);
            let mut frame = frame(source, destination, 0, b"abc");
            let at = frame.len() - 3 - 2;
            frame[at..at + 2].fill(0);
            assert_eq!(parse(&frame, 0).err(), expected);
        }
    }

    #[test]
    fn fragments_and_other_protocols_are_refused() {
        let (source, destination) = ends(false);
        let good = frame(source, destination, 0, b"abc");
        for (at, value) in [(20, 0x20), (21, 1), (23, 6), (14, 0x65), (12, 0x81)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(parse(&bad, 0).err(), Some(Refusal::Malformed), "{at}");
        }
    }
}
