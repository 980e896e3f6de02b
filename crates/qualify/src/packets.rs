//! Test packets that are recognised when they come back, and from which a feature is recognised.

use towpath_xdp::frame::offload::{Checksum, Gso, GsoKind, Offload};

/// A packet and its offload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
    /// The offload that its sender requests.
    pub offload: Option<Offload>,
}

impl Packet {
    /// A packet without offload.
    pub(crate) fn plain(bytes: Vec<u8>) -> Packet {
        Packet { bytes, offload: None }
    }
}

/// A UDP packet of `len` bytes with its checksum, of a flow. Byte [`VERDICT`] is for programs.
pub(crate) fn udp(flow: u16, verdict: u8, len: usize) -> Vec<u8> {
    packet(IPPROTO_UDP, flow, verdict, len)
}

/// A TCP segment of `len` bytes with its checksum.
pub(crate) fn tcp(flow: u16, len: usize) -> Vec<u8> {
    packet(IPPROTO_TCP, flow, 0, len)
}

/// The packet with a VLAN tag.
pub(crate) fn tagged(mut packet: Vec<u8>, tci: u16) -> Vec<u8> {
    let [high, low] = tci.to_be_bytes();
    packet.splice(12..12, [0x81, 0, high, low]);
    packet
}

/// The packet without its tag, if it has one.
pub(crate) fn untagged(packet: &[u8]) -> Option<Vec<u8>> {
    let is_tagged = packet.get(12..14) == Some(&[0x81, 0]);
    is_tagged.then(|| [&packet[..12], &packet[16..]].concat())
}

/// The packet with its transport checksum left to the device.
pub(crate) fn partial(mut bytes: Vec<u8>) -> Packet {
    let at = checksum_at(&bytes);
    let pseudo = !checksum(&[&pseudo_header(&bytes)]);
    bytes[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
    let checksum = Checksum { start: TRANSPORT as u16, offset: (at - TRANSPORT) as u16 };
    Packet { bytes, offload: Some(Offload { checksum: Some(checksum), gso: None }) }
}

/// A large packet to be cut into pieces of `size` bytes of payload.
pub(crate) fn large(bytes: Vec<u8>, size: u16) -> Packet {
    let is_tcp = bytes[PROTOCOL] == IPPROTO_TCP;
    let (kind, header) = if is_tcp { (GsoKind::Tcp4, 20) } else { (GsoKind::UdpL4, 8) };
    let mut packet = partial(bytes);
    let header = TRANSPORT as u16 + header;
    let gso = Some(Gso { kind, size, header, ecn: false });
    packet.offload = packet.offload.map(|offload| Offload { gso, ..offload });
    packet
}

/// Whether the transport's checksum is right.
pub(crate) fn is_sum_right(packet: &[u8]) -> bool {
    let Some(segment) = packet.get(TRANSPORT..) else { return false };
    checksum(&[&pseudo_header(packet), segment]) == 0
}

/// The payload behind the packet's headers.
pub(crate) fn payload(packet: &[u8]) -> &[u8] {
    let header = if packet.get(PROTOCOL) == Some(&IPPROTO_TCP) { 20 } else { 8 };
    packet.get(TRANSPORT + header..).unwrap_or_default()
}

/// Whether it is one of ours, tag or not.
pub(crate) fn is_ours(packet: &[u8]) -> bool {
    packet.get(..12) == Some(&ADDRESSES)
}

fn packet(protocol: u8, flow: u16, verdict: u8, len: usize) -> Vec<u8> {
    let mut bytes = Vec::from(ADDRESSES);
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend(((len - 14) as u16).to_be_bytes());
    bytes.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = checksum(&[&bytes[14..34]]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(flow.to_be_bytes());
    bytes.extend([0, 9]);
    match protocol {
        IPPROTO_TCP => bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]),
        _ => {
            bytes.extend(((len - 34) as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
    }
    bytes.push(verdict);
    let start = bytes.len();
    bytes.extend((start..len).map(|at| (at % 251) as u8));
    let sum = checksum(&[&pseudo_header(&bytes), &bytes[TRANSPORT..]]);
    let at = checksum_at(&bytes);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn checksum_at(packet: &[u8]) -> usize {
    TRANSPORT + if packet[PROTOCOL] == IPPROTO_TCP { 16 } else { 6 }
}

fn pseudo_header(packet: &[u8]) -> [u8; 12] {
    let mut header = [0; 12];
    header[..8].copy_from_slice(&packet[26..34]);
    header[9] = packet[PROTOCOL];
    header[10..].copy_from_slice(&((packet.len() - TRANSPORT) as u16).to_be_bytes());
    header
}

/// The Internet checksum (RFC 1071) over parts of which all but the last are even.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The VLAN of packets with a tag.
pub(crate) const TCI: u16 = 5;
/// Offset of the byte in a UDP packet that states the program's return value.
pub(crate) const VERDICT: usize = 42;
const ADDRESSES: [u8; 12] = [2, 0, 0, 0x71, 0, 1, 2, 0, 0, 0x71, 0, 2];
const TRANSPORT: usize = 34;
const PROTOCOL: usize = 23;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
