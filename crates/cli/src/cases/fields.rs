//! Comparison of two packets by their header fields.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{
    IpNumber, LaxPacketHeaders, LaxPayloadSlice, LinkExtHeader, LinkHeader, NetHeaders,
    TransportHeader,
};
use towpath_bpf::suggest;

use super::hex;

/// Name of a header field, and its value.
type Field = (String, String);

/// Differences of two packets, in lines for people.
pub(super) fn difference(wanted: &[u8], found: &[u8]) -> Vec<String> {
    if wanted == found {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if wanted.len() != found.len() {
        lines.push(format!("packet: expected {} bytes, got {}", wanted.len(), found.len()));
    }
    let (before, after) = (fields(wanted), fields(found));
    let value = |all: &[Field], name: &str| {
        all.iter().find(|(it, _)| it == name).map_or("none".to_owned(), |(_, value)| value.clone())
    };
    let names = before.iter().chain(&after).map(|(name, _)| name);
    let mut seen: Vec<&String> = Vec::new();
    for name in names {
        let (wanted, found) = (value(&before, name), value(&after, name));
        if wanted != found && !seen.contains(&name) {
            lines.push(format!("{name}: expected {wanted}, got {found}"));
        }
        seen.push(name);
    }
    let (wanted, found) = (hex::rows(wanted), hex::rows(found));
    let absent = String::new();
    for index in 0..wanted.len().max(found.len()) {
        let row = |rows: &'_ Vec<String>| rows.get(index).unwrap_or(&absent).clone();
        if row(&wanted) != row(&found) {
            lines.push(format!("  - {}", row(&wanted)));
            lines.push(format!("  + {}", row(&found)));
        }
    }
    lines
}

/// Fields of `wanted` that differ in `packet`, in lines for people.
pub(super) fn differing(wanted: &BTreeMap<String, String>, packet: &[u8]) -> Vec<String> {
    let found = fields(packet);
    let value = |name: &str| {
        let field = found.iter().find(|(it, _)| it == name);
        field.map_or("none", |(_, value)| value.as_str())
    };
    let different = wanted.iter().filter(|(name, wanted)| value(name) != wanted.as_str());
    different
        .map(|(name, wanted)| format!("{name}: expected {wanted}, got {}", value(name)))
        .collect()
}

/// Refuses names that no field has.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let (header, field) = name.trim_start_matches("inner.").split_once('.').unwrap_or_default();
    let header = header.trim_end_matches(|it: char| it.is_ascii_digit() && header.contains("vlan"));
    let names = NAMES.iter().map(|&(header, fields)| (header, fields.split(' ')));
    let mut known = names.flat_map(|(header, fields)| fields.map(move |field| (header, field)));
    match known.any(|it| it == (header, field)) {
        true => Ok(()),
        false => {
            let all = NAMES.iter().flat_map(|(header, fields)| {
                fields.split(' ').map(move |field| format!("{header}.{field}"))
            });
            let all: Vec<String> = all.collect();
            let hint = suggest::among(name, all.iter().map(String::as_str));
            Err(format!("fields: no field {name:?}{hint}"))
        }
    }
}

/// Header fields of a packet, and those of the inner packet of a tunnel.
fn fields(packet: &[u8]) -> Vec<Field> {
    let Ok(headers) = LaxPacketHeaders::from_ethernet(packet) else { return Vec::new() };
    let mut fields = of_headers(&headers);
    let LaxPayloadSlice::Ip(inner) = &headers.payload else { return fields };
    if matches!(inner.ip_number, IpNumber::IPV4 | IpNumber::IPV6)
        && let Ok(headers) = LaxPacketHeaders::from_ip(inner.payload)
    {
        let inner = of_headers(&headers).into_iter();
        fields.extend(inner.map(|(name, value)| (format!("inner.{name}"), value)));
    }
    fields
}

fn of_headers(headers: &LaxPacketHeaders<'_>) -> Vec<Field> {
    let mut fields = Fields::default();
    if let Some(LinkHeader::Ethernet2(eth)) = &headers.link {
        fields.add("eth.dst", mac(eth.destination));
        fields.add("eth.src", mac(eth.source));
        fields.add("eth.type", format!("{:#06x}", eth.ether_type.0));
    }
    for (index, tag) in headers.link_exts.iter().enumerate() {
        if let LinkExtHeader::Vlan(tag) = tag {
            fields.add(&format!("vlan{index}.id"), tag.vlan_id.value());
            fields.add(&format!("vlan{index}.type"), format!("{:#06x}", tag.ether_type.0));
        }
    }
    if let Some(net) = &headers.net {
        fields.net(net);
    }
    if let Some(transport) = &headers.transport {
        fields.transport(transport);
        let payload = headers.payload.slice();
        let net = headers.net.as_ref();
        if let Some((name, is_right)) = net.and_then(|net| sum(net, transport, payload)) {
            fields.add(name, is_right);
        }
    }
    fields.0
}

/// Whether the transport's checksum is right for its bytes; `None` for a fragment, which has only
/// some of them.
fn sum(
    net: &NetHeaders,
    transport: &TransportHeader,
    payload: &[u8],
) -> Option<(&'static str, bool)> {
    let (name, stored, right) = match (transport, net) {
        (TransportHeader::Udp(udp), NetHeaders::Ipv4(ip, _)) => {
            ("udp.checksum_right", udp.checksum, udp.calc_checksum_ipv4(ip, payload).ok()?)
        }
        (TransportHeader::Udp(udp), NetHeaders::Ipv6(ip, _)) => {
            ("udp.checksum_right", udp.checksum, udp.calc_checksum_ipv6(ip, payload).ok()?)
        }
        (TransportHeader::Tcp(tcp), NetHeaders::Ipv4(ip, _)) => {
            ("tcp.checksum_right", tcp.checksum, tcp.calc_checksum_ipv4(ip, payload).ok()?)
        }
        (TransportHeader::Tcp(tcp), NetHeaders::Ipv6(ip, _)) => {
            ("tcp.checksum_right", tcp.checksum, tcp.calc_checksum_ipv6(ip, payload).ok()?)
        }
        (TransportHeader::Icmpv4(icmp), _) => {
            ("icmp.checksum_right", icmp.checksum, icmp.icmp_type.calc_checksum(payload))
        }
        (TransportHeader::Icmpv6(icmp), NetHeaders::Ipv6(ip, _)) => {
            let found = icmp.icmp_type.calc_checksum(ip.source, ip.destination, payload);
            ("icmp.checksum_right", icmp.checksum, found.ok()?)
        }
        _ => return None,
    };
    Some((name, stored == right))
}

#[derive(Default)]
struct Fields(Vec<Field>);

impl Fields {
    fn add(&mut self, name: &str, value: impl fmt::Display) {
        self.0.push((name.to_owned(), format!("{value}")));
    }

    fn net(&mut self, net: &NetHeaders) {
        match net {
            NetHeaders::Ipv4(ip, _) => {
                self.add("ipv4.src", Ipv4Addr::from(ip.source));
                self.add("ipv4.dst", Ipv4Addr::from(ip.destination));
                self.add("ipv4.ttl", ip.time_to_live);
                self.add("ipv4.tos", ip.dscp.value() << 2 | ip.ecn.value());
                self.add("ipv4.id", ip.identification);
                self.add("ipv4.length", ip.total_len);
                self.add("ipv4.protocol", ip.protocol.0);
                self.add("ipv4.dont_fragment", ip.dont_fragment);
                self.add("ipv4.more_fragments", ip.more_fragments);
                self.add("ipv4.fragment_offset", ip.fragment_offset.value());
                self.add("ipv4.checksum", format!("{:#06x}", ip.header_checksum));
                let is_right = ip.header_checksum == ip.calc_header_checksum();
                self.add("ipv4.checksum_right", is_right);
            }
            NetHeaders::Ipv6(ip, _) => {
                self.add("ipv6.src", Ipv6Addr::from(ip.source));
                self.add("ipv6.dst", Ipv6Addr::from(ip.destination));
                self.add("ipv6.hop_limit", ip.hop_limit);
                self.add("ipv6.traffic_class", ip.traffic_class);
                self.add("ipv6.length", ip.payload_length);
                self.add("ipv6.next_header", ip.next_header.0);
            }
            NetHeaders::Arp(arp) => self.add("arp.operation", arp.operation.0),
        }
    }

    fn transport(&mut self, transport: &TransportHeader) {
        match transport {
            TransportHeader::Udp(udp) => {
                self.add("udp.sport", udp.source_port);
                self.add("udp.dport", udp.destination_port);
                self.add("udp.length", udp.length);
                self.add("udp.checksum", format!("{:#06x}", udp.checksum));
            }
            TransportHeader::Tcp(tcp) => {
                self.add("tcp.sport", tcp.source_port);
                self.add("tcp.dport", tcp.destination_port);
                self.add("tcp.seq", tcp.sequence_number);
                self.add("tcp.ack", tcp.acknowledgment_number);
                self.add("tcp.window", tcp.window_size);
                let flags = [
                    (tcp.syn, 'S'),
                    (tcp.ack, 'A'),
                    (tcp.fin, 'F'),
                    (tcp.rst, 'R'),
                    (tcp.psh, 'P'),
                    (tcp.urg, 'U'),
                ];
                let letters = flags.iter().filter(|(is_set, _)| *is_set).map(|&(_, letter)| letter);
                self.add("tcp.flags", letters.collect::<String>());
                self.add("tcp.checksum", format!("{:#06x}", tcp.checksum));
            }
            TransportHeader::Icmpv4(icmp) => self.icmp(&icmp.to_bytes()),
            TransportHeader::Icmpv6(icmp) => self.icmp(&icmp.to_bytes()),
            TransportHeader::Igmp(_) => {}
        }
    }

    /// ICMP of both versions: type, code and checksum, and for an echo its identifier and sequence
    /// number.
    fn icmp(&mut self, header: &[u8]) {
        let &[kind, code, high, low, id_high, id_low, seq_high, seq_low, ..] = header else {
            return;
        };
        self.add("icmp.type", kind);
        self.add("icmp.code", code);
        self.add("icmp.checksum", format!("{:#06x}", u16::from_be_bytes([high, low])));
        self.add("icmp.id", u16::from_be_bytes([id_high, id_low]));
        self.add("icmp.seq", u16::from_be_bytes([seq_high, seq_low]));
    }
}

/// Headers, and their fields.
const NAMES: &[(&str, &str)] = &[
    ("eth", "dst src type"),
    ("vlan", "id type"),
    (
        "ipv4",
        "src dst ttl tos id length protocol dont_fragment more_fragments fragment_offset \
         checksum checksum_right",
    ),
    ("ipv6", "src dst hop_limit traffic_class length next_header"),
    ("arp", "operation"),
    ("udp", "sport dport length checksum checksum_right"),
    ("tcp", "sport dport seq ack window flags checksum checksum_right"),
    ("icmp", "type code checksum checksum_right id seq"),
];

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::super::headers::Headers;
    use super::*;

    fn packet(toml: &str) -> Vec<u8> {
        toml::from_str::<Headers>(toml).expect("headers").bytes().expect("a packet")
    }

    #[test]
    fn a_difference_is_told_by_field() {
        let one = packet("ipv4 = { ttl = 64 }\nudp = { dport = 53 }\npayload = \"hello\"");
        let other = packet("ipv4 = { ttl = 63 }\nudp = { dport = 53 }\npayload = \"hello\"");
        let lines = difference(&one, &other);
        assert_eq!(lines[0], "ipv4.ttl: expected 64, got 63", "{lines:?}");
        assert!(lines[1].starts_with("ipv4.checksum: expected 0x"), "{lines:?}");
        assert_eq!(lines.len(), 4, "and the row of bytes, both ways: {lines:?}");
        assert!(difference(&one, &one).is_empty());
    }

    #[test]
    fn every_field_has_a_known_name() {
        let ping = "vlan = [5]\nipv6 = {}\nicmp = { id = 1 }";
        for toml in [
            ping,
            "ipv4 = { protocol = 4 }\ninside = { ipv4 = {}, tcp = { dport = 80 } }",
            "ipv6 = {}\nudp = {}",
        ] {
            let fields = fields(&packet(toml));
            assert!(fields.len() > 10, "{fields:?}");
            for (name, _) in fields {
                assert_eq!(check_name(&name), Ok(()));
            }
        }
        let wanted = |name: &str, value: &str| {
            differing(&BTreeMap::from([(name.to_owned(), value.to_owned())]), &packet(ping))
        };
        assert!(wanted("vlan0.id", "5").is_empty());
        assert_eq!(wanted("icmp.id", "2"), ["icmp.id: expected 2, got 1"]);
        assert_eq!(wanted("tcp.seq", "2"), ["tcp.seq: expected 2, got none"]);
        assert!(check_name("ipv4.tll").unwrap_err().contains("ipv4.ttl"));
        assert!(check_name("").is_err() && check_name("ipv45.src").is_err());
    }

    #[test]
    fn headers_make_packets() {
        let tcp =
            packet("vlan = [7, 8]\nipv6 = {}\ntcp = { dport = 80, flags = \"SA\" }\npad_to = 90");
        assert_eq!(tcp.len(), 90);
        let fields = fields(&tcp);
        let value =
            |name: &str| fields.iter().find(|(it, _)| it == name).map(|(_, it)| it.as_str());
        assert_eq!((value("vlan1.id"), value("tcp.flags")), (Some("8"), Some("SA")));
        assert_eq!(value("ipv6.next_header"), Some("6"));
        let wrong = |toml: &str| toml::from_str::<Headers>(toml).expect("headers").bytes().is_err();
        assert!(wrong("udp = {}") && wrong("ipv4 = {}\nipv6 = {}"));
    }
}
