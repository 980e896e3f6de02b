use std::net::{IpAddr, SocketAddr};

use towpath_xdp::Frame;

use super::flow::{L3_DYNHDR, L3_IPV4, L3_IPV6, L4, L4_TCP, L4_UDP};
use super::*;

/// Destination, source, hash of the addresses, and with TCP ports ("Verifying the RSS Hash
/// Calculation", Windows Drivers documentation).
const VECTORS: [(&str, &str, u32, u32); 8] = [
    ("161.142.100.80:1766", "66.9.149.187:2794", 0x323e_8fc2, 0x51cc_c178),
    ("65.69.140.83:4739", "199.92.111.2:14230", 0xd718_262a, 0xc626_b0ea),
    ("12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0_a5de, 0x5c2b_394a),
    ("209.142.163.6:2217", "38.27.205.30:48228", 0x8298_9176, 0xafc7_327f),
    ("202.188.127.2:1303", "153.39.163.191:44251", 0x5d18_09c5, 0x10e8_28a2),
    ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc1_8cd5, 0x4020_7d3d),
    ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0f0c_461c, 0xdde5_1bbf),
    (
        "[fe80::200:f8ff:fe21:67cf]:38024",
        "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
        0x4b61_e985,
        0x02d1_feef,
    ),
];

/// A packet's headers, with extension headers or options in front of the segment.
fn packet(from: SocketAddr, to: SocketAddr, protocol: u8, between: &[u8]) -> Vec<u8> {
    let mut segment = between.to_vec();
    segment.extend(from.port().to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    segment.extend([0; 16]);
    let mut bytes = vec![2; 12];
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = 20 + segment.len() as u16;
            bytes.extend([0x08, 0, 0x45 + (between.len() / 4) as u8, 0]);
            bytes.extend(total.to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            bytes.extend(from.octets().iter().chain(&to.octets()));
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let next = if between.is_empty() { protocol } else { 60 };
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend((segment.len() as u16).to_be_bytes());
            bytes.extend([next, 64]);
            bytes.extend(from.octets().iter().chain(&to.octets()));
        }
        _ => unreachable!("one family"),
    }
    bytes.extend(segment);
    bytes
}

fn hashed(packet: &[u8]) -> Option<(u32, u16)> {
    let frame = Frame::new(packet).expect("a frame");
    hash(&frame).map(|RxHash { value, kind }| (value, kind))
}

fn vectors() -> impl Iterator<Item = (SocketAddr, SocketAddr, u32, u32, u16)> {
    VECTORS.into_iter().map(|(to, from, addresses, ports)| {
        let (to, from): (SocketAddr, SocketAddr) = (to.parse().unwrap(), from.parse().unwrap());
        let family = if to.is_ipv4() { L3_IPV4 } else { L3_IPV6 };
        (from, to, addresses, ports, family)
    })
}

#[test]
fn hashes_are_those_that_are_published() {
    for (from, to, addresses, ports, family) in vectors() {
        let tcp = packet(from, to, 6, &[]);
        assert_eq!(hashed(&tcp), Some((ports, family | L4 | L4_TCP)), "{from} -> {to}");
        let udp = packet(from, to, 17, &[]);
        assert_eq!(hashed(&udp), Some((ports, family | L4 | L4_UDP)), "{from} -> {to}");
        for protocol in [1, 47, 50, 58, 132, 4, 41] {
            let other = packet(from, to, protocol, &[]);
            assert_eq!(hashed(&other), Some((addresses, family)), "protocol {protocol}");
        }
    }
}

#[test]
fn tags_options_and_extension_headers_are_passed_over() {
    for (from, to, addresses, ports, family) in vectors() {
        let mut tagged = packet(from, to, 6, &[]);
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        assert_eq!(hashed(&tagged), Some((ports, family | L4 | L4_TCP)));
        tagged.splice(12..12, [0x88, 0xa8, 0, 9]);
        assert_eq!(hashed(&tagged), Some((ports, family | L4 | L4_TCP)));
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        assert_eq!(hashed(&tagged), None, "of three tags no NIC knows what is behind");
        // Four options of one byte each; a destination options header.
        let between: &[u8] = if from.is_ipv4() { &[1; 8] } else { &[17, 0, 1, 4, 0, 0, 0, 0] };
        let more = packet(from, to, 17, between);
        assert_eq!(hashed(&more), Some((ports, family | L3_DYNHDR | L4 | L4_UDP)));
        if from.is_ipv6() {
            let mut fragment = packet(from, to, 17, &[17, 0, 0, 1, 0, 0, 0, 9]);
            fragment[14 + 6] = 44;
            assert_eq!(hashed(&fragment), Some((addresses, family | L3_DYNHDR)));
            let mut endless = packet(from, to, 17, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(12));
            assert_eq!(hashed(&endless), Some((addresses, family | L3_DYNHDR)));
            endless[14 + 40 + 1] = 255;
            assert_eq!(hashed(&endless), Some((addresses, family | L3_DYNHDR)), "behind its end");
        }
    }
}

#[test]
fn of_fragments_and_tunnels_the_outer_addresses_count() {
    for (from, to, addresses, ports, family) in vectors().filter(|(from, ..)| from.is_ipv4()) {
        for fragment in [[0x20, 0], [0, 1], [0x3f, 0xff]] {
            let mut bytes = packet(from, to, 17, &[]);
            bytes[20..22].copy_from_slice(&fragment);
            assert_eq!(hashed(&bytes), Some((addresses, family)));
        }
        let mut whole = packet(from, to, 17, &[]);
        whole[20] = 0x40;
        assert_eq!(hashed(&whole), Some((ports, family | L4 | L4_UDP)), "not to be fragmented");
        // An IPv4 packet in an IPv4 packet.
        let mut tunnel = packet(from, to, 4, &[]);
        tunnel.truncate(34);
        tunnel.extend(&packet(to, from, 6, &[])[14..]);
        let total = (tunnel.len() - 14) as u16;
        tunnel[16..18].copy_from_slice(&total.to_be_bytes());
        assert_eq!(hashed(&tunnel), Some((addresses, family)));
    }
}

#[test]
fn what_is_cut_off_is_not_made_up() {
    for (from, to, addresses, ports, family) in vectors() {
        let whole = packet(from, to, 6, &[]);
        let header = if from.is_ipv4() { 34 } else { 54 };
        for len in 14..whole.len() {
            let expected = match len {
                _ if len < header => None,
                _ if len < header + 4 => Some((addresses, family)),
                _ => Some((ports, family | L4 | L4_TCP)),
            };
            assert_eq!(hashed(&whole[..len]), expected, "{len} bytes");
        }
        // Padding is not taken for ports.
        let mut short = whole.clone();
        if from.is_ipv4() {
            short[16..18].copy_from_slice(&23_u16.to_be_bytes());
        } else {
            short[18..20].copy_from_slice(&3_u16.to_be_bytes());
        }
        assert_eq!(hashed(&short), Some((addresses, family)));
    }
    let (from, to) = ("1.2.3.4:5".parse().unwrap(), "6.7.8.9:10".parse().unwrap());
    for (at, value) in [(14, 0x44), (14, 0x35), (16, 0xff00_u16 as u8), (14, 0x4f)] {
        let mut broken = packet(from, to, 6, &[]);
        broken[at] = value;
        if at == 14 {
            assert_eq!(hashed(&broken), None, "{value:#x} at {at}");
        }
    }
    let mut arp = packet(from, to, 6, &[]);
    arp[13] = 6;
    assert_eq!(hashed(&arp), None);
}

/// A program may leave the headers anywhere in frags, which must not change the hash.
#[test]
fn headers_in_frags_are_found() {
    for (from, to, _, ports, family) in vectors() {
        let mut whole = packet(from, to, 6, &[]);
        whole.resize(9000, 0);
        for at in 14..100 {
            let mut frame = Frame::new(&whole[..at]).expect("a frame");
            let rest = Frame::new(&whole[at..at + 60]).expect("a frame");
            frame.append(rest).expect("room for a frag");
            frame.append(Frame::new(&whole[at + 60..4000]).expect("a frame")).expect("room");
            let hash = hash(&frame).map(|RxHash { value, kind }| (value, kind));
            assert_eq!(hash, Some((ports, family | L4 | L4_TCP)), "{at} bytes in front");
        }
        // Truncated within the frags, no ports are hashed.
        let header = if from.is_ipv4() { 34 } else { 54 };
        let mut cut = Frame::new(&whole[..14]).expect("a frame");
        cut.append(Frame::new(&whole[14..header - 1]).expect("a frame")).expect("room");
        assert_eq!(hash(&cut), None);
    }
}

/// GRE, VXLAN, IPv6 in IPv4: hashed by the outer headers, as by a NIC that does not know them.
#[test]
fn of_encapsulated_packets_the_outer_headers_count() {
    let inner = &packet("9.9.9.9:9".parse().unwrap(), "8.8.8.8:8".parse().unwrap(), 6, &[]);
    for (from, to, addresses, ports, family) in vectors() {
        let around = |protocol, header: &[u8]| {
            let mut bytes = packet(from, to, protocol, &[]);
            let behind = if protocol == 17 { 8 } else { 0 };
            bytes.truncate(bytes.len() - 20 + behind);
            bytes.extend(header.iter().chain(inner));
            let ip = bytes.len() as u16 - 14;
            match from.is_ipv4() {
                true => bytes[16..18].copy_from_slice(&ip.to_be_bytes()),
                false => bytes[18..20].copy_from_slice(&(ip - 40).to_be_bytes()),
            }
            bytes
        };
        let vxlan = around(17, &[8, 0, 0, 0, 0, 0, 5, 0]);
        assert_eq!(hashed(&vxlan), Some((ports, family | L4 | L4_UDP)));
        for (protocol, header) in [(47, &[0, 0, 0x65, 0x58][..]), (4, &[]), (41, &[])] {
            assert_eq!(hashed(&around(protocol, header)), Some((addresses, family)));
        }
    }
}
