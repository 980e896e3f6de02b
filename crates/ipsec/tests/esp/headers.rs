//! Outer and inner headers of a tunnel: DSCP, ECN, DF, identification, hop limit.

use std::sync::Arc;

use fastrand::Rng;
use towpath_ipsec::{Aead, Df, Direction, Dscp, Mode, Refusal, Sa, Suite, Tunnel};

use crate::common::{Case, checksum, frame, ip, keys, receive, sa, send};

fn pair(is_outer_v6: bool, is_inner_v6: bool, tunnel: Tunnel) -> (Case, Arc<Sa>, Arc<Sa>) {
    let mut random = Rng::with_seed(9);
    let suite = Suite::Aead(Aead::Aes256Gcm);
    let case = Case { suite, is_tunnel: true, is_outer_v6, is_inner_v6, is_udp: false, esn: false };
    let keys = keys(suite, &mut random);
    let [outbound, inbound] = [Direction::Outbound, Direction::Inbound].map(|direction| {
        let mut config = case.config(direction, keys.clone());
        config.mode = Mode::Tunnel(tunnel);
        sa(config)
    });
    (case, outbound, inbound)
}

/// Sets the traffic class of the IP header in a frame; keeps IPv4's checksum right.
fn set_class(frame: &mut [u8], class: u8) {
    if frame[14] >> 4 == 6 {
        frame[14] = 0x60 | class >> 4;
        frame[15] = frame[15] & 0xf | class << 4;
    } else {
        frame[15] = class;
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

fn class(frame: &[u8]) -> u8 {
    if frame[14] >> 4 == 6 { frame[14] << 4 | frame[15] >> 4 } else { frame[15] }
}

#[test]
fn the_traffic_class_is_copied_or_set() {
    for (is_outer_v6, is_inner_v6) in [(false, false), (false, true), (true, false), (true, true)] {
        for inner in 0..=255 {
            let set = Tunnel { dscp: Dscp::Set(10), ..Tunnel::default() };
            let no_ecn = Tunnel { ecn: false, ..Tunnel::default() };
            let cases = [(Tunnel::default(), inner), (set, 40 | inner & 3), (no_ecn, inner & !3)];
            for (tunnel, expected) in cases {
                let (case, outbound, inbound) = pair(is_outer_v6, is_inner_v6, tunnel);
                let mut packet = frame(&ip(&case, 253, b"x"));
                set_class(&mut packet, inner);
                let sent = send(&outbound, &packet).expect("it can be sent");
                assert_eq!(class(&sent), expected);
                assert_eq!(receive(&inbound, &sent), Ok(packet), "the inner class is kept");
            }
        }
    }
}

/// RFC 6040, figure 4, through packets.
#[test]
fn congestion_outside_is_seen_inside() {
    let (not, ect0, ect1, ce) = (0, 2, 1, 3);
    for (is_outer_v6, is_inner_v6) in [(false, false), (false, true), (true, false), (true, true)] {
        for (inner, outer, expected) in [
            (not, not, Some(not)),
            (not, ce, None),
            (ect0, ect1, Some(ect1)),
            (ect0, ce, Some(ce)),
            (ect1, ect0, Some(ect1)),
            (ect1, ce, Some(ce)),
            (ce, not, Some(ce)),
        ] {
            let (case, outbound, inbound) = pair(is_outer_v6, is_inner_v6, Tunnel::default());
            let mut packet = frame(&ip(&case, 253, b"x"));
            set_class(&mut packet, inner);
            let mut sent = send(&outbound, &packet).expect("it can be sent");
            set_class(&mut sent, outer);
            let expected = expected.map(|ecn| {
                set_class(&mut packet, ecn);
                packet
            });
            assert_eq!(receive(&inbound, &sent), expected.ok_or(Refusal::Congestion));
        }
    }
}

#[test]
fn the_outer_dscp_replaces_the_inner_one_if_asked() {
    let tunnel = Tunnel { decap_dscp: true, ecn: false, ..Tunnel::default() };
    let (case, outbound, inbound) = pair(false, false, tunnel);
    let mut packet = frame(&ip(&case, 253, b"x"));
    set_class(&mut packet, 46 << 2 | 1);
    let mut sent = send(&outbound, &packet).expect("it can be sent");
    set_class(&mut sent, 10 << 2 | 3);
    set_class(&mut packet, 10 << 2 | 1);
    assert_eq!(receive(&inbound, &sent), Ok(packet));
}

#[test]
fn dont_fragment_is_copied_set_or_cleared() {
    for (df, if_clear, if_set) in
        [(Df::Copy, false, true), (Df::Set, true, true), (Df::Clear, false, false)]
    {
        let (case, outbound, _) = pair(false, false, Tunnel { df, ..Tunnel::default() });
        let mut ids = Vec::new();
        for (flags, expected) in [(0, if_clear), (0x40, if_set), (0, if_clear)] {
            let mut packet = ip(&case, 253, b"x");
            packet[6] = flags;
            packet[10..12].fill(0);
            let sum = checksum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            let sent = send(&outbound, &frame(&packet)).expect("it can be sent");
            assert_eq!(sent[20] & 0x40 != 0, expected, "{df:?}");
            ids.push([sent[18], sent[19]]);
        }
        assert!(if_clear || ids[0] != ids[2], "fragments of two packets must differ");
    }
    let (case, outbound, _) = pair(false, true, Tunnel::default());
    let sent = send(&outbound, &frame(&ip(&case, 253, b"x"))).expect("it can be sent");
    assert_eq!(sent[20], 0x40, "IPv6 inside is not fragmented");
}

#[test]
fn the_hop_limit_is_the_tunnels() {
    for (is_v6, at) in [(false, 22), (true, 21)] {
        let (case, outbound, inbound) =
            pair(is_v6, false, Tunnel { hop_limit: 7, ..Tunnel::default() });
        let packet = frame(&ip(&case, 253, b"x"));
        let sent = send(&outbound, &packet).expect("it can be sent");
        assert_eq!(sent[at], 7);
        assert_eq!(receive(&inbound, &sent), Ok(packet));
    }
}

/// A key with the same nonce twice gives AES-GCM away. IVs of one SA differ, and so do those of the
/// next one with the same key, whose sequence numbers begin again.
#[test]
fn an_iv_never_comes_again() {
    for suite in [Suite::Aead(Aead::Aes128Gcm), Suite::Aead(Aead::ChaCha20Poly1305)] {
        let mut random = Rng::with_seed(10);
        let case = Case {
            suite,
            is_tunnel: true,
            is_outer_v6: false,
            is_inner_v6: false,
            is_udp: false,
            esn: false,
        };
        let keys = keys(suite, &mut random);
        let packet = frame(&ip(&case, 253, b"x"));
        let mut seen = std::collections::HashSet::new();
        for _restart in 0..100 {
            let sender = sa(case.config(Direction::Outbound, keys.clone()));
            for _ in 0..50 {
                let sent = send(&sender, &packet).expect("it can be sent");
                assert!(seen.insert(sent[14 + 20 + 8..][..8].to_vec()));
            }
        }
    }
}
