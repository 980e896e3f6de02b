//! Receive-side scaling (RSS) in software: a symmetric hash that assigns both directions of a flow
//! to one worker.
//!
//! It lets ports with fewer queues than workers run their programs on several workers
//! ([`Spread::Flow`]). The hash is symmetric: each end (an address and a port) is hashed by itself,
//! and the two hashes are added. For fragments only the addresses are hashed, because later
//! fragments have no ports, so that all fragments of a datagram go to one worker. For frames other
//! than IP, the Ethernet addresses and the EtherType are hashed.

use towpath_xdp::Frame;

/// Selection of the workers that run the programs of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spread {
    /// The worker that polls a queue runs the programs on its frames.
    #[default]
    Off,
    /// Each flow has one worker, whichever worker polls the queue it arrives on.
    Flow,
}

/// The index, below `count`, of a frame's worker.
#[inline]
pub(crate) fn place(frame: &Frame, count: usize) -> usize {
    // The high half of a product with the number is evenly spread.
    ((u64::from(frame.with_linear(hash)) * count as u64) >> 32) as usize
}

/// Hashes a packet; any byte sequence is valid input.
#[inline]
fn hash(packet: &[u8]) -> u32 {
    let Some(ethernet) = packet.first_chunk::<ETHERNET_BYTES>() else { return 0 };
    let (mut ethertype, mut at) = (be16(ethernet, 12), ETHERNET_BYTES);
    for _ in 0..TAGS_MAX {
        if !matches!(ethertype, VLAN | SERVICE_VLAN) {
            break;
        }
        let Some(tag) = chunk::<4>(packet, at) else { break };
        (ethertype, at) = (be16(tag, 2), at + 4);
    }
    let ends = match ethertype {
        IPV4 => ipv4(packet, at),
        IPV6 => ipv6(packet, at),
        _ => None,
    };
    let sum = ends.unwrap_or_else(|| {
        let address = |at: usize| {
            let (high, low) = (be16(ethernet, at), be32(ethernet, at + 2));
            u64::from(high) << 32 | u64::from(low)
        };
        end(address(0)).wrapping_add(end(address(6))).wrapping_add(u64::from(ethertype))
    });
    (sum.wrapping_mul(MIX) >> 32) as u32
}

/// The sum of the hashes of both ends of an IPv4 packet.
#[inline]
fn ipv4(packet: &[u8], at: usize) -> Option<u64> {
    let header = chunk::<20>(packet, at)?;
    let is_fragment = be16(header, 6) & 0x3fff != 0;
    let next = at + usize::from(header[0] & 0xf) * 4;
    let protocol = if is_fragment { 0 } else { header[9] };
    let [source, target] = ports(packet, next, protocol);
    let of = |at: usize, port: u16| end(u64::from(be32(header, at)) << 16 | u64::from(port));
    Some(of(12, source).wrapping_add(of(16, target)))
}

/// The sum of the hashes of both ends of an IPv6 packet.
#[inline]
fn ipv6(packet: &[u8], at: usize) -> Option<u64> {
    let header = chunk::<40>(packet, at)?;
    let [source, target] = ports_v6(packet, at + 40, header[6]);
    let of = |at: usize, port: u16| {
        let half = |at| u64::from(be32(header, at)) << 32 | u64::from(be32(header, at + 4));
        end(end(half(at)) ^ half(at + 8).wrapping_add(u64::from(port)))
    };
    Some(of(8, source).wrapping_add(of(24, target)))
}

/// The ports behind extension headers; zeros for fragments, and behind more than [`HEADERS_MAX`]
/// headers.
#[inline]
fn ports_v6(packet: &[u8], mut at: usize, mut protocol: u8) -> [u16; 2] {
    for _ in 0..HEADERS_MAX {
        if !matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION) {
            break;
        }
        let Some(header) = chunk::<2>(packet, at) else { return [0; 2] };
        protocol = header[0];
        at += (usize::from(header[1]) + 1) * 8;
    }
    ports(packet, at, protocol)
}

/// Source and destination ports; zeros for protocols without ports.
#[inline]
fn ports(packet: &[u8], at: usize, protocol: u8) -> [u16; 2] {
    if !matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE) {
        return [0; 2];
    }
    chunk::<4>(packet, at).map_or([0; 2], |ports| [be16(ports, 0), be16(ports, 2)])
}

/// Hashes one end of a flow (a shortened finalizer of MurmurHash3). The hash must not be linear, or
/// common parts of the two ends would cancel out in their sum.
#[inline]
fn end(value: u64) -> u64 {
    let value = value.wrapping_mul(MIX);
    let value = (value ^ value >> 32).wrapping_mul(MIX_AGAIN);
    value ^ value >> 29
}

#[inline]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

const ETHERNET_BYTES: usize = 14;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
/// Most VLAN tags that are skipped; `HEADERS_MAX` limits the extension headers.
const TAGS_MAX: usize = 2;
const HEADERS_MAX: usize = 4;
/// Odd numbers without a pattern: 2^64 divided by the golden ratio, and one of MurmurHash3's.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX_AGAIN: u64 = 0xff51_afd7_ed55_8ccd;

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts and ports of both ends.
    type Pair = [(u32, u16); 2];
    /// One end of a flow: its link-layer address, its IP address, and its port.
    type End = ([u8; 6], Vec<u8>, u16);

    /// A packet from one end to the other: tags, then an IP header, other bytes random.
    struct Packet {
        tags: usize,
        /// Extension headers, or words of IPv4 options.
        extra: usize,
        protocol: u8,
        /// Offset of a fragment, in units of 8, and whether more follow.
        fragment: Option<(u16, bool)>,
    }

    impl Packet {
        fn bytes(&self, random: &mut fastrand::Rng, from: &End, to: &End) -> Vec<u8> {
            let mut packet = [to.0, from.0].concat();
            for tag in 0..self.tags {
                let outer = if tag + 1 < self.tags { SERVICE_VLAN } else { VLAN };
                packet.extend(outer.to_be_bytes());
                packet.extend(random.u16(..).to_be_bytes());
            }
            let ports = [from.2.to_be_bytes(), to.2.to_be_bytes()].concat();
            // In a later fragment, these bytes are payload.
            let is_first = self.fragment.is_none_or(|(offset, _)| offset == 0);
            let start = if is_first { ports } else { random.u32(..).to_be_bytes().to_vec() };
            match from.1.len() {
                4 => self.ipv4(&mut packet, random, from, to),
                _ => self.ipv6(&mut packet, from, to),
            }
            packet.extend(start);
            packet.extend((0..random.usize(..40)).map(|_| random.u8(..)));
            packet
        }

        fn ipv4(&self, packet: &mut Vec<u8>, random: &mut fastrand::Rng, from: &End, to: &End) {
            packet.extend(IPV4.to_be_bytes());
            let words = 5 + self.extra as u8;
            let (offset, more) = self.fragment.unwrap_or_default();
            let part = offset | u16::from(more) << 13;
            packet.extend([0x40 | words, random.u8(..), 0, 64, random.u8(..), random.u8(..)]);
            packet.extend(part.to_be_bytes());
            packet.extend([random.u8(..), self.protocol, random.u8(..), random.u8(..)]);
            packet.extend([&from.1[..], &to.1].concat());
            packet.extend(vec![1; 4 * self.extra]);
        }

        fn ipv6(&self, packet: &mut Vec<u8>, from: &End, to: &End) {
            packet.extend(IPV6.to_be_bytes());
            let mut chain: Vec<u8> = [HOP_BY_HOP, ROUTING, DESTINATION][..self.extra].to_vec();
            chain.extend(self.fragment.map(|_| FRAGMENT));
            chain.push(self.protocol);
            packet.extend([0x60, 0, 0, 0, 0, 64, chain[0], 64]);
            packet.extend([&from.1[..], &to.1].concat());
            for (header, next) in chain.iter().zip(&chain[1..]) {
                let length = if *header == ROUTING { 1 } else { 0 };
                let mut bytes = vec![*next, length, 0, 0, 0, 0, 0, 0];
                if let Some((offset, more)) = self.fragment.filter(|_| *header == FRAGMENT) {
                    let part = offset << 3 | u16::from(more);
                    bytes[2..4].copy_from_slice(&part.to_be_bytes());
                }
                bytes.resize(8 * (usize::from(length) + 1), 0);
                packet.extend(bytes);
            }
        }
    }

    const FRAGMENT: u8 = 44;

    fn any_end(random: &mut fastrand::Rng, is_v6: bool) -> End {
        let bytes = if is_v6 { 16 } else { 4 };
        (
            std::array::from_fn(|_| random.u8(..)),
            (0..bytes).map(|_| random.u8(..)).collect(),
            random.u16(1..),
        )
    }

    fn any_packet(random: &mut fastrand::Rng) -> Packet {
        Packet {
            tags: random.usize(..3),
            extra: random.usize(..4),
            protocol: [TCP, UDP, SCTP][random.usize(..3)],
            fragment: None,
        }
    }

    #[test]
    fn both_directions_of_a_flow_are_one_whatever_is_around_it() {
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..4000 {
            let (a, b) =
                (any_end(&mut random, round % 2 == 0), any_end(&mut random, round % 2 == 0));
            let plain = Packet { tags: 0, extra: 0, ..any_packet(&mut random) };
            let expected = hash(&plain.bytes(&mut random, &a, &b));
            // Other tags, options, lengths, and the other direction; the link may be another one.
            let other = Packet { protocol: plain.protocol, ..any_packet(&mut random) };
            let (mut c, mut d) = (a.clone(), b.clone());
            (c.0, d.0) = ([random.u8(..); 6], [random.u8(..); 6]);
            assert_eq!(hash(&other.bytes(&mut random, &c, &d)), expected);
            assert_eq!(hash(&other.bytes(&mut random, &d, &c)), expected);
        }
    }

    #[test]
    fn all_fragments_of_a_datagram_are_one() {
        let mut random = fastrand::Rng::with_seed(2);
        for round in 0..2000 {
            let (a, b) =
                (any_end(&mut random, round % 2 == 0), any_end(&mut random, round % 2 == 0));
            let whole = any_packet(&mut random);
            let mut part = |offset, more| {
                let fragment = Some((offset, more));
                hash(&Packet { fragment, ..whole }.bytes(&mut random, &a, &b))
            };
            let first = part(0, true);
            assert_eq!([part(185, true), part(370, false)], [first; 2]);
        }
    }

    #[test]
    fn other_protocols_go_by_addresses_and_what_is_no_ip_by_the_link() {
        let mut random = fastrand::Rng::with_seed(3);
        for protocol in [1, 47, 50, 58] {
            let (a, b) = (any_end(&mut random, false), any_end(&mut random, false));
            let packet = Packet { protocol, tags: 0, extra: 0, fragment: None };
            let first = hash(&packet.bytes(&mut random, &a, &b));
            let (mut c, mut d) = (a.clone(), b.clone());
            (c.2, d.2) = (7, 9);
            assert_eq!(hash(&packet.bytes(&mut random, &d, &c)), first, "protocol {protocol}");
        }
        let frame = |to: u8, from: u8, ethertype: u16| {
            let mut frame = [[2, 0, 0, 0, 0, to], [2, 0, 0, 0, 0, from]].concat();
            frame.extend(ethertype.to_be_bytes());
            frame.extend([1, 2, 3, 4]);
            hash(&frame)
        };
        assert_eq!(frame(1, 2, 0x88cc), frame(2, 1, 0x88cc));
        assert_ne!(frame(1, 2, 0x88cc), frame(1, 3, 0x88cc));
        assert_ne!(frame(1, 2, 0x88cc), frame(1, 2, 0x88f7));
    }

    /// Flows that differ in few bits, like the hosts of a network and the ports of a host, and
    /// pairs whose ends differ by a constant.
    #[test]
    fn flows_are_spread_evenly() {
        let end =
            |host: u32, port: u16| ([2; 6], (0x0a00_0000 + host).to_be_bytes().to_vec(), port);
        let mut random = fastrand::Rng::with_seed(4);
        let packet = Packet { tags: 0, extra: 0, protocol: UDP, fragment: None };
        let sets: [fn(u32) -> Pair; 4] = [
            |n| [(n, 4000), (0x1_0000, 53)],
            |n| [(1, 10_000 + n as u16), (2, 80)],
            |n| [(n, 7), (n + 0x1_0000, 7)],
            |n| [(1, 1000 + n as u16), (2, 1000 + n as u16)],
        ];
        for (number, set) in sets.iter().enumerate() {
            for workers in [2, 3, 4, 7, 16] {
                let mut counts = vec![0; workers];
                for n in 0..4096 {
                    let [from, to] = set(n).map(|(host, port)| end(host, port));
                    let hash = hash(&packet.bytes(&mut random, &from, &to));
                    counts[((u64::from(hash) * workers as u64) >> 32) as usize] += 1;
                }
                let fair = 4096 / workers;
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(
                    *least > fair * 3 / 4 && *most < fair * 5 / 4,
                    "set {number}, {workers} workers: {counts:?}"
                );
            }
        }
    }

    #[test]
    fn headers_that_are_cut_short_hash_to_something() {
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..200 {
            let (a, b) =
                (any_end(&mut random, round % 2 == 0), any_end(&mut random, round % 2 == 0));
            let packet = any_packet(&mut random).bytes(&mut random, &a, &b);
            (0..packet.len()).for_each(|length| {
                hash(&packet[..length]);
            });
        }
    }
}
