//! What is encapsulated comes back, whatever the suite, the mode and the addresses are.

use fastrand::Rng;
use towpath_ipsec::{Direction, Mode, Suite, Tunnel};

use crate::common::{Case, checksum, frame, ip, keys, receive, sa, send, udp};

#[test]
fn all_suites_modes_and_families() {
    let mut random = Rng::with_seed(1);
    for case in Suite::all().flat_map(Case::all) {
        let (outbound, inbound) = case.pair(&mut random);
        for round in 0..30u32 {
            let len = if round < 20 { round as usize } else { random.usize(0..2500) };
            let packet = frame(&ip(&case, 253, &bytes(&mut random, len)));
            let sent = send(&outbound, &packet).expect("it can be sent");
            check_outer(&case, &sent, packet.len());
            let received = receive(&inbound, &sent);
            assert_eq!(received.as_deref(), Ok(&packet[..]), "{case:?} {len}");
        }
        assert_eq!(outbound.statistics().packets, 30);
        assert_eq!(outbound.statistics().bytes, inbound.statistics().bytes);
        assert_eq!(inbound.statistics().refused.total(), 0);
    }
}

/// Lengths, checksums and protocol of the outer headers, by the rules of their RFCs.
fn check_outer(case: &Case, sent: &[u8], packet_len: usize) {
    let ip = &sent[14..];
    let (payload, protocol) = match case.is_outer_v6 {
        false => {
            assert_eq!(sent[12..14], [8, 0]);
            assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
            assert_eq!(checksum(&ip[..20]), 0, "the header's checksum is right");
            (&ip[20..], ip[9])
        }
        true => {
            assert_eq!(sent[12..14], [0x86, 0xdd]);
            assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])) + 40, ip.len());
            (&ip[40..], ip[6])
        }
    };
    let esp = match case.is_udp {
        false => {
            assert_eq!(protocol, 50);
            payload
        }
        true => {
            assert_eq!(protocol, 17);
            assert_eq!(payload[..4], [0x11, 0x94, 0x11, 0x95]);
            assert_eq!(usize::from(u16::from_be_bytes([payload[4], payload[5]])), payload.len());
            check_udp_checksum(case, ip, payload);
            &payload[8..]
        }
    };
    let suite = case.suite;
    let encrypted = esp.len() - 8 - suite.iv_len() - suite.icv_len();
    assert_eq!(encrypted % suite.block_len(), 0);
    let kept = match (case.is_tunnel, case.is_outer_v6) {
        (true, _) => 0,
        (false, false) => 20,
        (false, true) => 40,
    };
    let inner = packet_len - 14 - kept;
    assert!(encrypted >= inner + 2 && encrypted < inner + 2 + suite.block_len(), "least padding");
}

/// 0 in IPv4 (RFC 3948); the sum over a pseudo header in IPv6 (RFC 8200, 8.1).
fn check_udp_checksum(case: &Case, ip: &[u8], udp: &[u8]) {
    if !case.is_outer_v6 {
        assert_eq!(udp[6..8], [0, 0]);
        return;
    }
    let pseudo = [&ip[8..40], &(udp.len() as u32).to_be_bytes(), &[0, 0, 0, 17], udp].concat();
    assert_eq!(checksum(&pseudo), 0, "UDP's checksum is right");
    assert_ne!(udp[6..8], [0, 0]);
}

#[test]
fn ethernet_padding_is_cut_and_vlan_tags_stay() {
    let mut random = Rng::with_seed(2);
    for case in [tunnel(false, false), tunnel(true, false), tunnel(false, true)] {
        let (outbound, inbound) = case.pair(&mut random);
        let inner = ip(&case, 17, &udp(1, 2, b"x"));
        for tags in [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 5]] {
            let plain = frame(&inner);
            let packet = [&plain[..12], tags, &plain[12..]].concat();
            let padded = [&packet[..], &[0; 30]].concat();
            let sent = send(&outbound, &padded).expect("it can be sent");
            assert_eq!(sent[..12], packet[..12]);
            assert_eq!(sent[12..12 + tags.len()], *tags);
            assert_eq!(receive(&inbound, &sent).as_deref(), Ok(&packet[..]));
            let sent = send(&outbound, &padded).expect("it can be sent");
            let padded = [&sent[..], &[0; 9]].concat();
            assert_eq!(receive(&inbound, &padded).as_deref(), Ok(&packet[..]));
        }
    }
}

#[test]
fn the_ethertype_follows_the_family() {
    let mut random = Rng::with_seed(3);
    for (is_outer_v6, is_inner_v6) in [(false, true), (true, false)] {
        let case = tunnel(is_outer_v6, is_inner_v6);
        let (outbound, inbound) = case.pair(&mut random);
        let packet = frame(&ip(&case, 59, &[]));
        let sent = send(&outbound, &packet).expect("it can be sent");
        assert_ne!(sent[12..14], packet[12..14]);
        assert_eq!(receive(&inbound, &sent), Ok(packet));
    }
}

/// Options of IPv4 and extension headers of IPv6 are in front of ESP in transport mode, but for
/// destination options behind a routing header (RFC 4303, 3.1.1).
#[test]
fn transport_mode_keeps_options_in_front() {
    let mut random = Rng::with_seed(4);
    let case = Case { is_tunnel: false, ..tunnel(false, false) };
    let (outbound, inbound) = case.pair(&mut random);
    let mut packet = ip(&case, 253, b"payload");
    packet.splice(20..20, [7, 3, 4, 0]);
    packet[0] = 0x46;
    packet[3] += 4;
    packet[10..12].fill(0);
    let sum = checksum(&packet[..24]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let packet = frame(&packet);
    let sent = send(&outbound, &packet).expect("it can be sent");
    assert_eq!((sent[14], &sent[34..38]), (0x46, &[7, 3, 4, 0][..]));
    assert_eq!(sent[38..42], crate::common::SPI.to_be_bytes());
    assert_eq!(receive(&inbound, &sent), Ok(packet));

    let case = Case { is_tunnel: false, ..tunnel(true, true) };
    let (outbound, inbound) = case.pair(&mut random);
    let (hop, routing, options) =
        ([43, 0, 1, 4, 0, 0, 0, 0], [60, 0, 4, 0, 0, 0, 0, 0], [253, 0, 1, 4, 0, 0, 0, 0]);
    let extensions = [&hop[..], &routing, &options, b"payload"].concat();
    let packet = frame(&ip(&case, 0, &extensions));
    let sent = send(&outbound, &packet).expect("it can be sent");
    assert_eq!(sent[54..62], hop);
    assert_eq!(sent[62..70], [50, 0, 4, 0, 0, 0, 0, 0]);
    assert_eq!(sent[70..74], crate::common::SPI.to_be_bytes());
    assert_eq!(receive(&inbound, &sent), Ok(packet));
}

/// All lengths of small packets become the same; what comes out has its own length again.
#[test]
fn tfc_padding_hides_lengths() {
    let mut random = Rng::with_seed(5);
    for suite in Suite::all() {
        let case = Case { suite, ..tunnel(false, false) };
        let keys = keys(suite, &mut random);
        let mut config = case.config(Direction::Outbound, keys.clone());
        config.mode = Mode::Tunnel(Tunnel { tfc_padding: 256, ..Tunnel::default() });
        config.pmtu = 540;
        let (outbound, inbound) = (sa(config), sa(case.config(Direction::Inbound, keys)));
        let mut lengths = Vec::new();
        for len in [0, 1, 100, 236] {
            let packet = frame(&ip(&case, 253, &bytes(&mut random, len)));
            let sent = send(&outbound, &packet).expect("it can be sent");
            lengths.push(sent.len());
            assert_eq!(receive(&inbound, &sent), Ok(packet));
        }
        assert!(lengths.iter().all(|&len| len == lengths[0]), "{suite}: {lengths:?}");
        // A multiple of 256 would not fit the path: it gets what fits.
        let packet = frame(&ip(&case, 253, &bytes(&mut random, 430)));
        let sent = send(&outbound, &packet).expect("it can be sent");
        assert!(sent.len() - 14 <= 540 && sent.len() - 14 > 540 - 16, "{suite}: {}", sent.len());
        assert_eq!(receive(&inbound, &sent), Ok(packet));
    }
}

/// A NAT changes the address; packets of others don't.
#[test]
fn the_peer_behind_a_nat_is_followed() {
    let mut random = Rng::with_seed(6);
    let case = Case { is_udp: true, ..tunnel(false, false) };
    let (outbound, inbound) = case.pair(&mut random);
    let packet = frame(&ip(&case, 17, &udp(1, 2, b"x")));
    let mut sent = send(&outbound, &packet).expect("it can be sent");
    assert_eq!(receive(&inbound, &sent), Ok(packet.clone()));
    assert!(inbound.take_events().is_empty());
    sent = send(&outbound, &packet).expect("it can be sent");
    sent[34..36].copy_from_slice(&5000u16.to_be_bytes());
    let mut forged = sent.clone();
    forged[34..36].copy_from_slice(&6000u16.to_be_bytes());
    *forged.last_mut().expect("a byte") ^= 1;
    assert!(receive(&inbound, &forged).is_err());
    assert!(inbound.take_events().is_empty(), "a forged packet moves nothing");
    assert_eq!(receive(&inbound, &sent), Ok(packet));
    assert!(inbound.take_events().mapping);
    let peer = inbound.statistics().peer.expect("it is known");
    assert_eq!(peer, ("192.0.2.1".parse().expect("one"), 5000));
}

fn tunnel(is_outer_v6: bool, is_inner_v6: bool) -> Case {
    let suite = Suite::Aead(towpath_ipsec::Aead::Aes128Gcm);
    Case { suite, is_tunnel: true, is_outer_v6, is_inner_v6, is_udp: false, esn: false }
}

fn bytes(random: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.u8(..)).collect()
}
