//! Checks the checksums and lengths in the headers of a packet.

/// A mistake in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The checksum of this header.
    Checksum(&'static str),
    /// A length in this header.
    Length(&'static str),
    /// The previous header announces this one, but another one follows.
    Version(&'static str),
}

/// Mistakes found in a packet's headers, by their offsets.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Headers whose checksum and lengths are right.
    pub(super) right: Vec<usize>,
    /// The first header with a mistake.
    pub(super) wrong: Option<(Wrong, usize)>,
}

/// Checks the headers of an Ethernet frame that carries IP. In fragments, and with protocols other
/// than TCP, UDP and ICMP, it checks the IP header only.
pub(super) fn look(frame: &[u8]) -> Look {
    let mut look = Look::default();
    let mut at = 12;
    let mut kind = u16_at(frame, at);
    for _ in 0..TAGS_MAX {
        if !matches!(kind, Some(ETH_VLAN | ETH_QINQ)) {
            break;
        }
        at += 4;
        kind = u16_at(frame, at);
    }
    match kind {
        Some(ETH_IPV4) => look.ipv4(frame, at + 2, TUNNELS_MAX),
        Some(ETH_IPV6) => look.ipv6(frame, at + 2, TUNNELS_MAX),
        _ => {}
    }
    look
}

impl Look {
    /// Notes the header at `at`; returns whether it is right.
    fn note(&mut self, at: usize, wrong: Option<Wrong>) -> bool {
        match wrong {
            Some(wrong) => self.wrong = Some((wrong, at)),
            None => self.right.push(at),
        }
        wrong.is_none()
    }

    /// `frame` ends where the payload of the header in front ends.
    fn ipv4(&mut self, frame: &[u8], at: usize, tunnels: u32) {
        let Some(packet) = frame.get(at..).filter(|packet| packet.len() >= IPV4_BYTES) else {
            return;
        };
        let header_bytes = usize::from(packet[0] & 15) * 4;
        let total = usize::from(u16_at(packet, 2).unwrap_or(0));
        let is_long_enough = header_bytes >= IPV4_BYTES && total >= header_bytes;
        let wrong = if packet[0] >> 4 != 4 {
            Some(Wrong::Version("IPv4"))
        } else if !is_long_enough || total > packet.len() {
            Some(Wrong::Length("IPv4"))
        } else {
            bad(sum(&packet[..header_bytes]), "IPv4")
        };
        let is_fragment = u16_at(packet, 6).is_some_and(|fragment| fragment & 0x3fff != 0);
        if self.note(at, wrong) && !is_fragment {
            let (addresses, frame) = (sum(&packet[12..20]), &frame[..at + total]);
            self.upper(packet[9], frame, at + header_bytes, addresses, tunnels);
        }
    }

    /// Extension headers are not looked behind.
    fn ipv6(&mut self, frame: &[u8], at: usize, tunnels: u32) {
        let Some(packet) = frame.get(at..).filter(|packet| packet.len() >= IPV6_BYTES) else {
            return;
        };
        let length = usize::from(u16_at(packet, 4).unwrap_or(0));
        let wrong = if packet[0] >> 4 != 6 {
            Some(Wrong::Version("IPv6"))
        } else {
            (length > packet.len() - IPV6_BYTES).then_some(Wrong::Length("IPv6"))
        };
        if self.note(at, wrong) {
            let (addresses, frame) = (sum(&packet[8..40]), &frame[..at + IPV6_BYTES + length]);
            self.upper(packet[6], frame, at + IPV6_BYTES, addresses, tunnels);
        }
    }

    /// `addresses`: the sum of both, for the pseudo header.
    fn upper(&mut self, protocol: u8, frame: &[u8], at: usize, addresses: u32, tunnels: u32) {
        let payload = frame.get(at..).unwrap_or_default();
        let pseudo = addresses + u32::from(protocol) + payload.len() as u32;
        let wrong = match protocol {
            TCP if payload.len() < TCP_BYTES => Some(Wrong::Length("TCP")),
            TCP => bad(pseudo + sum(payload), "TCP"),
            UDP => udp(payload, addresses),
            ICMP if payload.len() >= ICMP_BYTES => bad(sum(payload), "ICMP"),
            ICMPV6 if payload.len() >= ICMP_BYTES => bad(pseudo + sum(payload), "ICMPv6"),
            IPIP if tunnels > 0 => return self.ipv4(frame, at, tunnels - 1),
            IPV6 if tunnels > 0 => return self.ipv6(frame, at, tunnels - 1),
            _ => return,
        };
        self.note(at, wrong);
    }
}

/// No checksum at all (0) is allowed, by IPv6 for tunnels (RFC 6935).
fn udp(payload: &[u8], addresses: u32) -> Option<Wrong> {
    let length = usize::from(u16_at(payload, 4).unwrap_or(0));
    if length < UDP_BYTES || length > payload.len() {
        return Some(Wrong::Length("UDP"));
    }
    if u16_at(payload, 6) == Some(0) {
        return None;
    }
    bad(addresses + u32::from(UDP) + length as u32 + sum(&payload[..length]), "UDP")
}

fn bad(sum: u32, of: &'static str) -> Option<Wrong> {
    (folded(sum) != 0xffff).then_some(Wrong::Checksum(of))
}

/// The sum of 16-bit words; 32 bits are enough for the length of any packet.
fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let whole = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum::<u32>();
    whole + rest.first().map_or(0, |&last| u32::from(last) << 8)
}

fn folded(sum: u32) -> u32 {
    let once = (sum & 0xffff) + (sum >> 16);
    (once & 0xffff) + (once >> 16)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([word[0], word[1]]))
}

const ETH_IPV4: u16 = 0x0800;
const ETH_IPV6: u16 = 0x86dd;
const ETH_VLAN: u16 = 0x8100;
const ETH_QINQ: u16 = 0x88a8;
const TAGS_MAX: usize = 2;
const TUNNELS_MAX: u32 = 2;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ICMP_BYTES: usize = 8;
const ICMP: u8 = 1;
const IPIP: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6: u8 = 41;
const ICMPV6: u8 = 58;

#[cfg(test)]
mod tests {
    use super::*;

    /// A DNS question, its checksums right.
    fn packet() -> Vec<u8> {
        let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        packet
            .extend([0x45, 0, 0, 30, 0, 0, 0x40, 0, 64, 17, 0x26, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0x30, 0x39, 0, 53, 0, 10, 0, 0, 1, 2]);
        packet
    }

    fn wrong(frame: &[u8]) -> Option<Wrong> {
        look(frame).wrong.map(|(wrong, _)| wrong)
    }

    #[test]
    fn what_is_wrong_is_named_by_its_header() {
        assert_eq!(wrong(&packet()), None);
        assert_eq!(look(&packet()).right, [14, 34]);
        let changed = |at: usize, byte: u8| {
            let mut packet = packet();
            packet[at] = byte;
            wrong(&packet)
        };
        assert_eq!(changed(22, 63), Some(Wrong::Checksum("IPv4")));
        assert_eq!(changed(17, 31), Some(Wrong::Length("IPv4")));
        assert_eq!(changed(39, 11), Some(Wrong::Length("UDP")));
        assert_eq!(changed(41, 1), Some(Wrong::Checksum("UDP")));
        assert_eq!(changed(12, 9), None, "another protocol");
        assert_eq!(changed(14, 0x65), Some(Wrong::Version("IPv4")));
        // 10.0.0.1 + 10.0.0.2 + 17 + 10 + 12345 + 53 + 10 + 0x0102
        let mut right = packet();
        let all = 0x0a00 + 1 + 0x0a00 + 2 + 17 + 10 + 12345 + 53 + 10 + 0x0102;
        right[40..42].copy_from_slice(&(!(all as u16)).to_be_bytes());
        assert_eq!(wrong(&right), None);
    }

    #[test]
    fn a_tunnel_has_to_say_what_it_carries() {
        // An outer header from 10.0.0.1 to 10.0.0.2, of 70 bytes.
        let outer = |protocol: u8, checksum: u16| {
            let mut packet = packet();
            let [high, low] = checksum.to_be_bytes();
            let from_to = [10, 0, 0, 1, 10, 0, 0, 2];
            let header = [0x45, 0, 0, 70, 0, 0, 0x40, 0, 64, protocol, high, low];
            packet.splice(14..14, header.into_iter().chain(from_to));
            packet.extend([0; 20]);
            packet
        };
        assert_eq!(wrong(&outer(IPIP, 0x26b2)), None);
        assert_eq!(look(&outer(IPIP, 0x26b2)).right, [14, 34, 54]);
        assert_eq!(wrong(&outer(IPV6, 0x268d)), Some(Wrong::Version("IPv6")));
    }

    #[test]
    fn whatever_a_packet_holds_it_is_looked_at_within_its_length() {
        let mut state = 3u64;
        for len in 0..200 {
            let mut packet = packet();
            packet.resize(len, 0x45);
            wrong(&packet);
            for byte in packet.iter_mut().skip(12) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = if state >> 62 == 0 { (state >> 40) as u8 } else { *byte };
            }
            wrong(&packet);
        }
    }
}
