//! The fields of a packet that the RSS hash covers.

/// The hashed fields: source and destination addresses, followed by the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    bytes: [u8; 36],
    len: usize,
    kind: u16,
}

impl Flow {
    /// Parses the start of a frame; `None` if it is not IP, or its IP header is truncated.
    pub(super) fn parse(frame: &[u8]) -> Option<Flow> {
        let (mut ether_type, mut packet) = (be16(frame, 12)?, frame.get(14..)?);
        for _ in 0..VLANS_MAX {
            if !matches!(ether_type, ETH_P_8021Q | ETH_P_8021AD) {
                break;
            }
            (ether_type, packet) = (be16(packet, 2)?, packet.get(4..)?);
        }
        match ether_type {
            ETH_P_IP => Flow::ipv4(packet),
            ETH_P_IPV6 => Flow::ipv6(packet),
            _ => None,
        }
    }

    pub(super) fn input(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn kind(&self) -> u16 {
        self.kind
    }

    fn ipv4(packet: &[u8]) -> Option<Flow> {
        let header = packet.first_chunk::<IPV4_BYTES>()?;
        let (header_bytes, total) =
            (usize::from(header[0] & 15) * 4, usize::from(be16(header, 2)?));
        if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES || total < header_bytes {
            return None;
        }
        let has_options = header_bytes > IPV4_BYTES;
        let kind = L3_IPV4 | if has_options { L3_DYNHDR } else { 0 };
        let flow = Flow::addresses(&header[12..20], kind);
        let is_fragment = be16(header, 6)? & IPV4_FRAGMENT != 0;
        if is_fragment {
            return Some(flow);
        }
        Some(flow.with_ports(header[9], packet.get(header_bytes..total.min(packet.len()))))
    }

    fn ipv6(packet: &[u8]) -> Option<Flow> {
        let header = packet.first_chunk::<IPV6_BYTES>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let mut flow = Flow::addresses(&header[8..40], L3_IPV6);
        let payload = &packet[IPV6_BYTES..];
        let len = usize::from(be16(header, 4)?).min(payload.len());
        let (mut next, mut rest) = (header[6], &payload[..len]);
        for _ in 0..EXTENSIONS_MAX {
            if !matches!(next, HOP_BY_HOP | ROUTING | DESTINATION | FRAGMENT) {
                return Some(flow.with_ports(next, Some(rest)));
            }
            flow.kind |= L3_DYNHDR;
            let &[then, units, ..] = rest else { return Some(flow) };
            let Some(behind) = rest.get(8 * (usize::from(units) + 1)..) else { return Some(flow) };
            if next == FRAGMENT {
                return Some(flow);
            }
            (next, rest) = (then, behind);
        }
        Some(flow)
    }

    fn addresses(addresses: &[u8], kind: u16) -> Flow {
        let mut bytes = [0; 36];
        bytes[..addresses.len()].copy_from_slice(addresses);
        Flow { bytes, len: addresses.len(), kind }
    }

    /// Adds the ports of TCP and UDP, if they are present.
    fn with_ports(mut self, protocol: u8, segment: Option<&[u8]>) -> Flow {
        let kind = match protocol {
            IPPROTO_TCP => L4_TCP,
            IPPROTO_UDP => L4_UDP,
            _ => return self,
        };
        let Some(ports) = segment.and_then(|segment| segment.first_chunk::<4>()) else {
            return self;
        };
        self.bytes[self.len..self.len + 4].copy_from_slice(ports);
        self.len += 4;
        self.kind |= L4 | kind;
        self
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// `enum xdp_rss_hash_type`
pub(super) const L3_IPV4: u16 = 1 << 0;
pub(super) const L3_IPV6: u16 = 1 << 1;
/// IPv4 options, IPv6 extension headers.
pub(super) const L3_DYNHDR: u16 = 1 << 2;
pub(super) const L4: u16 = 1 << 3;
pub(super) const L4_TCP: u16 = 1 << 4;
pub(super) const L4_UDP: u16 = 1 << 5;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
/// More fragments, or an offset.
const IPV4_FRAGMENT: u16 = 0x3fff;
const HOP_BY_HOP: u8 = 0;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const VLANS_MAX: usize = 2;
const EXTENSIONS_MAX: usize = 8;
