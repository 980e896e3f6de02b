//! Packets written as headers: `{ ipv4 = { src = "10.0.0.1" }, udp = { dport = 53 } }`. Lengths,
//! checksums and types are filled in.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{
    EtherType, Ethernet2Header, IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type,
    IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, SingleVlanHeader, TcpHeader, UdpHeader,
    VlanId, VlanPcp,
};
use serde::Deserialize;

use super::hex;

/// The headers of a packet, from the outside in.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Headers {
    eth: Option<Eth>,
    /// VLAN numbers, the outer one first.
    #[serde(default)]
    vlan: Vec<u16>,
    ipv4: Option<V4>,
    ipv6: Option<V6>,
    udp: Option<Ports>,
    tcp: Option<Tcp>,
    icmp: Option<Echo>,
    /// Text behind the headers.
    payload: Option<String>,
    payload_hex: Option<String>,
    /// Length of a generated payload, of bytes that count up.
    payload_bytes: Option<usize>,
    /// A packet behind the payload, as a tunnel carries it: from its IP header on, or a whole frame
    /// if it has `eth`.
    inside: Option<Box<Headers>>,
    /// Length of the packet with zeros at its end.
    pad_to: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Eth {
    src: Mac,
    dst: Mac,
    /// EtherType, used if no IP header implies it.
    r#type: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct V4 {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    ttl: u8,
    tos: u8,
    id: u16,
    /// Protocol number, used if no transport header implies it.
    protocol: Option<u8>,
    /// Offset of the fragment in units of 8 bytes.
    fragment_offset: u16,
    more_fragments: bool,
    dont_fragment: bool,
    /// A checksum to use instead of the right one, for programs that check it.
    checksum: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct V6 {
    src: Ipv6Addr,
    dst: Ipv6Addr,
    hop_limit: u8,
    /// Next header, used if no transport header implies it.
    next_header: Option<u8>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Ports {
    sport: u16,
    dport: u16,
    /// A checksum to use instead of the right one; 0 for none.
    checksum: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tcp {
    sport: u16,
    dport: u16,
    seq: u32,
    ack: u32,
    window: u16,
    /// Letters as tcpdump shows them: `S`, `SA`, `PA`, `F`, `R`.
    flags: String,
    /// Options as they are on the wire, in hex; padded to whole 32-bit words.
    options: String,
    /// A checksum to use instead of the right one.
    checksum: Option<u16>,
}

/// An echo request or reply.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Echo {
    reply: bool,
    id: u16,
    seq: u16,
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Mac([u8; 6]);

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Mac, String> {
        let bytes = hex::bytes(&text)?;
        let count = bytes.len();
        bytes.try_into().map(Mac).map_err(|_bytes| format!("{count} bytes, a MAC address has 6"))
    }
}

impl Default for Eth {
    fn default() -> Eth {
        Eth { src: Mac([2, 0, 0, 0, 0, 1]), dst: Mac([2, 0, 0, 0, 0, 2]), r#type: None }
    }
}

impl Default for V4 {
    fn default() -> V4 {
        V4 {
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 0, 2),
            ttl: 64,
            tos: 0,
            id: 0,
            protocol: None,
            fragment_offset: 0,
            more_fragments: false,
            dont_fragment: true,
            checksum: None,
        }
    }
}

impl Default for V6 {
    fn default() -> V6 {
        V6 {
            src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
            dst: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
            hop_limit: 64,
            next_header: None,
        }
    }
}

/// Contents of a packet behind Ethernet.
struct Inner {
    ethertype: Option<EtherType>,
    bytes: Vec<u8>,
}

impl Headers {
    /// Bytes of the packet.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, String> {
        let inner = self.behind_ethernet()?;
        let mut packet = self.link(&inner)?;
        packet.extend(inner.bytes);
        if let Some(pad_to) = self.pad_to.filter(|&it| it <= PAD_MAX) {
            packet.resize(packet.len().max(pad_to), 0);
        }
        Ok(packet)
    }

    fn behind_ethernet(&self) -> Result<Inner, String> {
        let transports = [self.udp.is_some(), self.tcp.is_some(), self.icmp.is_some()];
        if transports.iter().filter(|&&it| it).count() > 1
            || (self.ipv4.is_some() && self.ipv6.is_some())
        {
            return Err("one of ipv4 and ipv6, and one of udp, tcp and icmp".to_owned());
        }
        let payload = self.payload()?;
        match (&self.ipv4, &self.ipv6) {
            (Some(ip), _) => self.over_v4(ip, &payload),
            (_, Some(ip)) => self.over_v6(ip, &payload),
            _ if transports.contains(&true) => {
                Err("a transport header needs an IP header".to_owned())
            }
            _ => Ok(Inner { ethertype: None, bytes: payload }),
        }
    }

    fn payload(&self) -> Result<Vec<u8>, String> {
        let mut payload = match (&self.payload, &self.payload_hex, self.payload_bytes) {
            (Some(text), None, None) => text.clone().into_bytes(),
            (None, Some(text), None) => hex::bytes(text)?,
            (None, None, Some(count)) if count > PAD_MAX => {
                return Err(format!("payload_bytes is {count}, at most {PAD_MAX}"));
            }
            (None, None, Some(count)) => (0..count).map(|index| index as u8).collect(),
            (None, None, None) => Vec::new(),
            _ => return Err("one of payload, payload_hex and payload_bytes".to_owned()),
        };
        if let Some(inside) = &self.inside {
            payload.extend(match inside.eth {
                Some(_) => inside.bytes()?,
                None => inside.behind_ethernet()?.bytes,
            });
        }
        Ok(payload)
    }

    fn link(&self, inner: &Inner) -> Result<Vec<u8>, String> {
        let default = Eth::default();
        let eth = self.eth.as_ref().unwrap_or(&default);
        let inside = inner.ethertype.or(eth.r#type.map(EtherType));
        let inside = inside.unwrap_or(EtherType(0x88b5));
        let outside = if self.vlan.is_empty() { inside } else { EtherType::VLAN_TAGGED_FRAME };
        let ethernet =
            Ethernet2Header { source: eth.src.0, destination: eth.dst.0, ether_type: outside };
        let mut bytes = ethernet.to_bytes().to_vec();
        for (index, &vlan) in self.vlan.iter().enumerate() {
            let is_last = index + 1 == self.vlan.len();
            let tag = SingleVlanHeader {
                pcp: VlanPcp::ZERO,
                drop_eligible_indicator: false,
                vlan_id: VlanId::try_new(vlan).map_err(|error| format!("vlan: {error}"))?,
                ether_type: if is_last { inside } else { EtherType::VLAN_TAGGED_FRAME },
            };
            bytes.extend(tag.to_bytes());
        }
        Ok(bytes)
    }

    fn over_v4(&self, ip: &V4, payload: &[u8]) -> Result<Inner, String> {
        let protocol = match (&self.udp, &self.tcp, &self.icmp) {
            (Some(_), ..) => IpNumber::UDP,
            (_, Some(_), _) => IpNumber::TCP,
            (.., Some(_)) => IpNumber::ICMP,
            _ => IpNumber(ip.protocol.unwrap_or(NO_NEXT_HEADER)),
        };
        let said = |error: &dyn std::fmt::Display| format!("ipv4: {error}");
        let header = Ipv4Header::new(0, ip.ttl, protocol, ip.src.octets(), ip.dst.octets());
        let mut header = header.map_err(|error| said(&error))?;
        let transport = self.transport_v4(&header, payload).map_err(|error| said(&error))?;
        let total = header.header_len() + transport.len() + payload.len();
        header.total_len = u16::try_from(total).map_err(|error| said(&error))?;
        header.identification = ip.id;
        header.dscp = (ip.tos >> 2).try_into().map_err(|error| said(&error))?;
        header.ecn = (ip.tos & 3).try_into().map_err(|error| said(&error))?;
        header.dont_fragment = ip.dont_fragment;
        header.more_fragments = ip.more_fragments;
        header.fragment_offset = ip.fragment_offset.try_into().map_err(|error| said(&error))?;
        header.header_checksum = ip.checksum.unwrap_or_else(|| header.calc_header_checksum());
        let bytes = [&header.to_bytes()[..], &transport, payload].concat();
        Ok(Inner { ethertype: Some(EtherType::IPV4), bytes })
    }

    fn transport_v4(&self, ip: &Ipv4Header, payload: &[u8]) -> Result<Vec<u8>, String> {
        if let Some(Ports { sport, dport, checksum }) = self.udp {
            let udp = UdpHeader::with_ipv4_checksum(sport, dport, ip, payload);
            let mut udp = udp.map_err(|error| error.to_string())?;
            udp.checksum = checksum.unwrap_or(udp.checksum);
            return Ok(udp.to_bytes().to_vec());
        }
        if let Some(tcp) = &self.tcp {
            let mut header = tcp.header()?;
            let sum = header.calc_checksum_ipv4(ip, payload);
            let sum = sum.map_err(|error| error.to_string())?;
            header.checksum = tcp.checksum.unwrap_or(sum);
            return Ok(header.to_bytes().to_vec());
        }
        let Some(echo) = &self.icmp else { return Ok(Vec::new()) };
        let kind = match echo.reply {
            true => Icmpv4Type::EchoReply(echo.header()),
            false => Icmpv4Type::EchoRequest(echo.header()),
        };
        Ok(Icmpv4Header::with_checksum(kind, payload).to_bytes().to_vec())
    }

    fn over_v6(&self, ip: &V6, payload: &[u8]) -> Result<Inner, String> {
        let next_header = match (&self.udp, &self.tcp, &self.icmp) {
            (Some(_), ..) => IpNumber::UDP,
            (_, Some(_), _) => IpNumber::TCP,
            (.., Some(_)) => IpNumber::IPV6_ICMP,
            _ => IpNumber(ip.next_header.unwrap_or(NO_NEXT_HEADER)),
        };
        let mut header = Ipv6Header {
            traffic_class: 0,
            flow_label: Ipv6FlowLabel::ZERO,
            payload_length: 0,
            next_header,
            hop_limit: ip.hop_limit,
            source: ip.src.octets(),
            destination: ip.dst.octets(),
        };
        let said = |error: &dyn std::fmt::Display| format!("ipv6: {error}");
        let transport = self.transport_v6(&header, payload).map_err(|error| said(&error))?;
        let length = u16::try_from(transport.len() + payload.len());
        header.payload_length = length.map_err(|error| said(&error))?;
        let bytes = [&header.to_bytes()[..], &transport, payload].concat();
        Ok(Inner { ethertype: Some(EtherType::IPV6), bytes })
    }

    fn transport_v6(&self, ip: &Ipv6Header, payload: &[u8]) -> Result<Vec<u8>, String> {
        if let Some(Ports { sport, dport, checksum }) = self.udp {
            let udp = UdpHeader::with_ipv6_checksum(sport, dport, ip, payload);
            let mut udp = udp.map_err(|error| error.to_string())?;
            udp.checksum = checksum.unwrap_or(udp.checksum);
            return Ok(udp.to_bytes().to_vec());
        }
        if let Some(tcp) = &self.tcp {
            let mut header = tcp.header()?;
            let sum = header.calc_checksum_ipv6(ip, payload);
            let sum = sum.map_err(|error| error.to_string())?;
            header.checksum = tcp.checksum.unwrap_or(sum);
            return Ok(header.to_bytes().to_vec());
        }
        let Some(echo) = &self.icmp else { return Ok(Vec::new()) };
        let kind = match echo.reply {
            true => Icmpv6Type::EchoReply(echo.header()),
            false => Icmpv6Type::EchoRequest(echo.header()),
        };
        let header = Icmpv6Header::with_checksum(kind, ip.source, ip.destination, payload);
        Ok(header.map_err(|error| error.to_string())?.to_bytes().to_vec())
    }
}

impl Tcp {
    fn header(&self) -> Result<TcpHeader, String> {
        let mut header = TcpHeader::new(self.sport, self.dport, self.seq, self.window);
        header.acknowledgment_number = self.ack;
        header
            .set_options_raw(&hex::bytes(&self.options)?)
            .map_err(|error| format!("tcp options: {error}"))?;
        for letter in self.flags.chars() {
            let flag = match letter.to_ascii_uppercase() {
                'S' => &mut header.syn,
                'A' | '.' => &mut header.ack,
                'F' => &mut header.fin,
                'R' => &mut header.rst,
                'P' => &mut header.psh,
                'U' => &mut header.urg,
                'E' => &mut header.ece,
                'C' | 'W' => &mut header.cwr,
                other => {
                    return Err(format!("tcp flag {other:?}: expected S, A, F, R, P, U, E, C"));
                }
            };
            *flag = true;
        }
        Ok(header)
    }
}

impl Echo {
    fn header(&self) -> IcmpEchoHeader {
        IcmpEchoHeader { id: self.id, seq: self.seq }
    }
}

/// Protocol 59, "No Next Header" (RFC 8200, section 4.7).
const NO_NEXT_HEADER: u8 = 59;
/// Length limit of a packet: longer than any frame.
const PAD_MAX: usize = 1 << 17;
