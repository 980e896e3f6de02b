//! Two packets beside each other, by what their headers say.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{LaxPacketHeaders, LinkExtHeader, LinkHeader, NetHeaders, TransportHeader};

use super::hex;

/// A header's field, and its value.
type Field = (String, String);

/// What differs, in lines for people.
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

/// What can be read of a packet.
fn fields(packet: &[u8]) -> Vec<Field> {
    let Ok(headers) = LaxPacketHeaders::from_ethernet(packet) else { return Vec::new() };
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
    }
    fields.0
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
                self.add("ipv4.fragment_offset", ip.fragment_offset.value());
                self.add("ipv4.checksum", format!("{:#06x}", ip.header_checksum));
            }
            NetHeaders::Ipv6(ip, _) => {
                self.add("ipv6.src", Ipv6Addr::from(ip.source));
                self.add("ipv6.dst", Ipv6Addr::from(ip.destination));
                self.add("ipv6.hop_limit", ip.hop_limit);
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
            TransportHeader::Icmpv4(icmp) => self.add("icmp", format!("{:?}", icmp.icmp_type)),
            TransportHeader::Icmpv6(icmp) => self.add("icmpv6", format!("{:?}", icmp.icmp_type)),
            TransportHeader::Igmp(_) => {}
        }
    }
}

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
