//! No packet makes the reader of addresses to hash panic, and what it says of a packet does not
//! depend on what is behind its headers.

use towpath_ports::rss;
use towpath_xdp::Frame;

#[test]
fn any_packet_has_a_hash_or_none() {
    bolero::check!().with_type::<(Vec<u8>, u8)>().for_each(|(bytes, choice)| {
        let mut packet = bytes.clone();
        // Random bytes are seldom IP.
        let ether_type: &[u8] = match choice % 4 {
            0 => &[8, 0, 0x45],
            1 => &[0x86, 0xdd, 0x60],
            2 => &[0x81, 0, 0, 1, 8, 0, 0x46],
            _ => &[],
        };
        if packet.len() >= 12 + ether_type.len() {
            packet[12..12 + ether_type.len()].copy_from_slice(ether_type);
        }
        let Ok(frame) = Frame::new(&packet) else { return };
        let Some(hash) = rss::hash(&frame) else { return };
        let is_ip = hash.kind & 3;
        assert!(is_ip == 1 || is_ip == 2, "IPv4 or IPv6: {:#x}", hash.kind);
        let with_ports = hash.kind & (8 | 16 | 32);
        assert!(matches!(with_ports, 0 | 24 | 40), "TCP, UDP or neither: {:#x}", hash.kind);
        assert_eq!(rss::hash(&frame), Some(hash), "the same again");
    });
}
