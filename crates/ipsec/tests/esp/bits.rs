//! Whatever happens to a packet on its way, nothing of it is accepted, and no plaintext is left.

use fastrand::Rng;
use towpath_ipsec::{Esp, Refusal, Suite};

use crate::common::{Case, checksum, frame, ip, open, send, udp};

/// A text that is found in no ciphertext by chance.
const MARK: &[u8] = b"plaintext that must not be seen";

#[test]
fn every_bit_of_a_packet() {
    let mut random = Rng::with_seed(7);
    for case in Suite::all().flat_map(Case::all) {
        let (outbound, inbound) = case.pair(&mut random);
        let packet = frame(&ip(&case, 17, &udp(1, 2, MARK)));
        let sent = send(&outbound, &packet).expect("it can be sent");
        for bit in covered_from(&case) * 8..sent.len() * 8 {
            let mut changed = sent.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let (reason, buffer) = open(&inbound, &changed).expect_err("a changed packet");
            let has_mark = buffer.windows(8).any(|it| MARK.windows(8).any(|mark| mark == it));
            assert!(is_null(&case) && !is_checked(reason) || !has_mark, "{case:?} bit {bit}");
        }
        assert_eq!(open(&inbound, &sent), Ok(packet), "no wrong packet has moved the window");
    }
}

/// The byte from which on every bit is checked: by the checksum of IPv4, else by ESP.
fn covered_from(case: &Case) -> usize {
    match (case.is_outer_v6, case.is_udp) {
        (false, false) => 14,
        (true, false) => 14 + 40,
        // The port and the checksum of UDP may change on the way.
        (false, true) => 14 + 20 + 8,
        (true, true) => 14 + 40 + 8,
    }
}

/// Without encryption the text is in the packet before anything looks at it.
fn is_null(case: &Case) -> bool {
    case.suite.iv_len() == 0
}

/// Whether the packet came as far as the engine.
fn is_checked(reason: Refusal) -> bool {
    reason == Refusal::BadIcv
}

/// A packet cut at every length is refused, also if its headers say that length.
#[test]
fn every_length_of_a_packet() {
    let mut random = Rng::with_seed(8);
    for suite in Suite::all() {
        for is_udp in [false, true] {
            let case = Case {
                suite,
                is_tunnel: true,
                is_outer_v6: false,
                is_inner_v6: false,
                is_udp,
                esn: false,
            };
            let (outbound, inbound) = case.pair(&mut random);
            let packet = frame(&ip(&case, 17, &udp(1, 2, &[b'p'; 300])));
            let sent = send(&outbound, &packet).expect("it can be sent");
            for len in 0..sent.len() {
                assert!(open(&inbound, &sent[..len]).is_err());
                if len >= 34 {
                    assert!(open(&inbound, &with_length(&sent[..len], is_udp)).is_err());
                }
            }
            assert_eq!(open(&inbound, &sent), Ok(packet));
        }
    }
}

/// The frame with headers that say its length.
fn with_length(frame: &[u8], is_udp: bool) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    if is_udp && frame.len() >= 40 {
        frame[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    }
    frame
}

/// Frames of every length from 0 to 65535, of zeros, of ones, and with an IP header.
#[test]
fn every_length_of_a_frame() {
    let mut zeros = vec![0; 65_535];
    let ones = vec![0xff; 65_535];
    for len in 0..=65_535 {
        assert!(Esp::of_frame(&zeros[..len]).is_err());
        assert!(Esp::of_frame(&ones[..len]).is_err());
    }
    for (ethertype, first) in [([8, 0], 0x45), ([8, 0], 0x4f), ([0x86, 0xdd], 0x60)] {
        zeros[12..14].copy_from_slice(&ethertype);
        zeros[14] = first;
        for total in (0..=65_535u16).step_by(7) {
            let at = if first == 0x60 { 18 } else { 16 };
            zeros[at..at + 2].copy_from_slice(&total.to_be_bytes());
            for len in [0, 13, 14, 33, 34, 60, usize::from(total), 65_535] {
                assert!(Esp::of_frame(&zeros[..len]).is_err());
            }
        }
    }
}
