//! Announcements of an address to neighbours: gratuitous ARP and unsolicited neighbour
//! advertisements (RFC 5227, RFC 4861 section 7.2.6); and queries for listeners of multicast
//! groups, so that a switch learns their ports again (RFC 3376, RFC 3810).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The packet that announces `address` at `mac`.
pub fn announcement(mac: [u8; 6], address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => gratuitous_arp(mac, address),
        IpAddr::V6(address) => unsolicited_advertisement(mac, address),
    }
}

/// An ARP request whose sender and target are the same (`bond_send_gratuitous_arp`).
fn gratuitous_arp(mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    arp_request(mac, address, address)
}

/// An ARP request for `target`.
pub fn arp_request(mac: [u8; 6], sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut packet = ethernet([0xff; 6], mac, [0x08, 0x06]);
    // Ethernet, IPv4, sizes of both addresses, request.
    packet.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    packet.extend(mac);
    packet.extend(sender.octets());
    packet.extend([0; 6]);
    packet.extend(target.octets());
    packet.resize(ETH_ZLEN, 0);
    packet
}

/// A neighbour solicitation for `target`, sent to its solicited-node group (RFC 4861 section 4.3).
/// With the unspecified address as sender, it does not contain the sender's Ethernet address.
pub fn solicitation(mac: [u8; 6], sender: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let group = solicited_node(target);
    let [.., a, b, c] = target.octets();
    let mut packet = ethernet([0x33, 0x33, 0xff, a, b, c], mac, [0x86, 0xdd]);
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    if !sender.is_unspecified() {
        message.extend([1, 1]);
        message.extend(mac);
    }
    neighbour_message(&mut packet, sender, group, message);
    packet
}

/// The solicited-node multicast address of `target` (RFC 4291 section 2.7.1).
pub fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    let low = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), low)
}

fn unsolicited_advertisement(mac: [u8; 6], address: Ipv6Addr) -> Vec<u8> {
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut packet = ethernet([0x33, 0x33, 0, 0, 0, 1], mac, [0x86, 0xdd]);
    // Advertisement, override flag, target, and its link-layer address as an option.
    let mut message = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    message.extend(address.octets());
    message.extend([2, 1]);
    message.extend(mac);
    neighbour_message(&mut packet, address, all_nodes, message);
    packet
}

/// Appends an IPv6 header and an ICMPv6 message, whose checksum is filled in.
fn neighbour_message(packet: &mut Vec<u8>, source: Ipv6Addr, dest: Ipv6Addr, mut message: Vec<u8>) {
    let sum = checksum(source, dest, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    // Version 6, ICMPv6; a hop limit of 255 shows that no router passed it on.
    packet.extend([0x60, 0, 0, 0, 0, message.len() as u8, 58, 255]);
    packet.extend(source.octets());
    packet.extend(dest.octets());
    packet.extend(message);
}

/// A general membership query (RFC 3376 section 4.1), without a source address, like that of a
/// snooping switch (RFC 4541 section 2.1.1): no router is replaced as the querier.
pub fn group_question(mac: [u8; 6]) -> Vec<u8> {
    let mut packet = ethernet([1, 0, 0x5e, 0, 0, 1], mac, [8, 0]);
    // Six words of header with the router alert option, for this link only, to all systems.
    let mut header =
        [0x46, 0xc0, 0, 36, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 224, 0, 0, 1, 0x94, 4, 0, 0];
    let sum = ones_complement(0, &header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    // Query, for answers within 100 ms; any group; the usual robustness and interval; any source.
    let mut query = [0x11, 1, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    let sum = ones_complement(0, &query);
    query[2..4].copy_from_slice(&sum.to_be_bytes());
    packet.extend(header);
    packet.extend(query);
    packet.resize(ETH_ZLEN, 0);
    packet
}

/// A general query for IPv6 (RFC 3810 section 5.1), from a link-local address that is made from
/// `mac` and belongs to no host.
pub fn group_question6(mac: [u8; 6]) -> Vec<u8> {
    let [a, b, c, d, e, f] = mac.map(u16::from);
    let source = Ipv6Addr::new(0xfe80, 0, 0, 0, a << 8 | b, c << 8 | 0xff, 0xfd00 | d, e << 8 | f);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut packet = ethernet([0x33, 0x33, 0, 0, 0, 1], mac, [0x86, 0xdd]);
    // Query, for answers within 100 ms; any group; the usual robustness and interval; any source.
    let mut query = vec![130, 0, 0, 0, 0, 100, 0, 0];
    query.extend([0; 16]);
    query.extend([2, 125, 0, 0]);
    let sum = checksum(source, all_nodes, &query);
    query[2..4].copy_from_slice(&sum.to_be_bytes());
    // With the router alert option in front, for this link only.
    packet.extend([0x60, 0, 0, 0, 0, 8 + query.len() as u8, 0, 1]);
    packet.extend(source.octets());
    packet.extend(all_nodes.octets());
    packet.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    packet.extend(query);
    packet
}

fn ethernet(to: [u8; 6], from: [u8; 6], ethertype: [u8; 2]) -> Vec<u8> {
    [&to[..], &from, &ethertype].concat()
}

/// The ICMPv6 checksum (RFC 4443 section 2.3).
fn checksum(source: Ipv6Addr, dest: Ipv6Addr, message: &[u8]) -> u16 {
    let bytes = [&source.octets()[..], &dest.octets(), message].concat();
    ones_complement(message.len() as u32 + 58, &bytes)
}

/// The one's-complement sum (RFC 1071) of an even number of bytes.
fn ones_complement(start: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum: u32 = words.sum::<u32>() + start;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Shortest Ethernet frame in bytes, without its checksum.
const ETH_ZLEN: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_name_the_address_and_where_it_is() {
        let mac = [2, 0, 0, 0, 0, 7];
        let arp = announcement(mac, "10.0.0.9".parse().expect("an address"));
        assert_eq!(arp.len(), 60);
        assert_eq!(arp[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!(
            (&arp[22..28], &arp[28..32], &arp[38..42]),
            (&mac[..], &[10, 0, 0, 9][..], &[10, 0, 0, 9][..])
        );
        let na = announcement(mac, "fe80::7".parse().expect("an address"));
        assert_eq!((na.len(), na[20], na[21], na[54], na[58]), (86, 58, 255, 136, 0x20));
        // A checksum over everything, itself included, is 0.
        let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        assert_eq!(checksum(source, all_nodes, &na[54..]), 0);
    }

    #[test]
    fn questions_for_groups_are_whole() {
        let mac = [2, 0, 0, 0, 0, 7];
        let question = group_question(mac);
        assert_eq!((question.len(), &question[..6]), (60, &[1, 0, 0x5e, 0, 0, 1][..]));
        assert_eq!(ones_complement(0, &question[14..38]), 0, "header");
        assert_eq!(ones_complement(0, &question[38..50]), 0, "query");
        assert_eq!(
            (question[22], question[23], question[38]),
            (1, 2, 0x11),
            "one hop, IGMP, query"
        );
        let question = group_question6(mac);
        assert_eq!((question.len(), question[21], question[62]), (90, 1, 130));
        let source: Ipv6Addr = <[u8; 16]>::try_from(&question[22..38]).expect("16 bytes").into();
        assert_eq!(source, "fe80::200:ff:fd00:7".parse::<Ipv6Addr>().expect("an address"));
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        assert_eq!(checksum(source, all_nodes, &question[62..]), 0);
    }
}
