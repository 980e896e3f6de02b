//! Each reason for a refusal.

use fastrand::Rng;
use towpath_ipsec::{
    Aead, Direction, Esp, Flow, OwnedBuffer, Prefix, Refusal, Selector, Suite, Table, finish,
};

use crate::common::{
    Case, SPI, decap, frame, ip, ip_packet, keys, open, outer, receive, run, sa, send, send_from,
    table, udp,
};
use crate::vectors::Raw;

const SUITE: Suite = Suite::Aead(Aead::Aes128Gcm);

fn tunnel() -> Case {
    Case {
        suite: SUITE,
        is_tunnel: true,
        is_outer_v6: false,
        is_inner_v6: false,
        is_udp: false,
        esn: false,
    }
}

/// The outcome for a frame that goes through a table with one inbound SA.
fn receive_by(table: &Table, bytes: &[u8]) -> Result<(), Refusal> {
    let esp = Esp::of_frame(bytes)?;
    let view = table.read();
    let sa = view.inbound(&esp)?;
    let job = decap(sa, OwnedBuffer::new(bytes), &esp).map_err(|it| it.reason)?;
    finish(run(job), 0).map(|_| ()).map_err(|it| it.reason)
}

#[test]
fn packets_that_are_no_esp() {
    let (from, to) = outer(false);
    let esp = |spi: u32| [&spi.to_be_bytes()[..], &[0; 40]].concat();
    let v4 = |protocol, payload: &[u8]| frame(&ip_packet(from, to, protocol, payload));
    let good = v4(50, &esp(SPI));
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let mut fragment = good.clone();
    (fragment[20], fragment[24]) = (0x20, fragment[24].wrapping_sub(0x20));
    let mut arp = good.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    let (from6, to6) = outer(true);
    let v6 = |next, payload: &[u8]| frame(&ip_packet(from6, to6, next, payload));
    let cases = [
        (good[..13].to_vec(), Refusal::Truncated),
        (good[..33].to_vec(), Refusal::Truncated),
        (good[..good.len() - 1].to_vec(), Refusal::Truncated),
        (arp, Refusal::NotIp),
        (changed(14, 0x65), Refusal::BadIpHeader),
        (changed(14, 0x44), Refusal::BadIpHeader),
        (changed(22, 1), Refusal::BadIpChecksum),
        (fragment, Refusal::Fragment),
        (v4(6, &[0; 40]), Refusal::NotEsp),
        (v4(50, &esp(SPI)[..7]), Refusal::BadLength),
        (v4(50, &esp(0)), Refusal::ReservedSpi),
        (v4(50, &esp(255)), Refusal::ReservedSpi),
        (v4(50, &esp(256)), Refusal::UnknownSpi),
        (v4(17, &udp(4500, 4500, &[0xff])), Refusal::Keepalive),
        (v4(17, &udp(4500, 4500, &[0xfe])), Refusal::BadLength),
        (v4(17, &udp(4500, 4500, &[])), Refusal::BadLength),
        (v4(17, &udp(4500, 4500, &[0; 30])), Refusal::Ike),
        (v4(17, &udp(4500, 4500, &esp(1))), Refusal::ReservedSpi),
        (v4(17, &[0; 7]), Refusal::Truncated),
        (v6(44, &[50, 0, 0, 1, 0, 0, 0, 0]), Refusal::Fragment),
        (v6(43, &[50, 9, 0, 0, 0, 0, 0, 0]), Refusal::Truncated),
        (v6(60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(20)), Refusal::BadIpHeader),
        (v6(58, &[0; 40]), Refusal::NotEsp),
    ];
    let table = table();
    for (number, (bytes, reason)) in cases.into_iter().enumerate() {
        assert_eq!(receive_by(&table, &bytes), Err(reason), "case {number}");
    }
}

#[test]
fn packets_of_another_kind_of_sa() {
    let mut random = Rng::with_seed(14);
    let in_udp = Case { is_udp: true, ..tunnel() };
    let (outbound, inbound) = tunnel().pair(&mut random);
    let (outbound_udp, inbound_udp) = in_udp.pair(&mut random);
    let packet = frame(&ip(&tunnel(), 253, b"x"));
    let (plain, udp) =
        (send(&outbound, &packet).expect("sent"), send(&outbound_udp, &packet).expect("sent"));
    assert_eq!(receive(&inbound, &udp), Err(Refusal::WrongEncapsulation));
    assert_eq!(receive(&inbound_udp, &plain), Err(Refusal::WrongEncapsulation));
    let mut other_port = udp.clone();
    other_port[37] ^= 1;
    assert_eq!(receive(&inbound_udp, &other_port), Err(Refusal::WrongEncapsulation));
    assert_eq!(receive(&outbound, &plain), Err(Refusal::WrongDirection));
    assert_eq!(send(&inbound, &packet), Err(Refusal::WrongDirection));
    let counted = inbound.statistics().refused;
    assert_eq!(counted.get(Refusal::WrongEncapsulation), 1);
    assert_eq!(counted.get(Refusal::WrongDirection), 1);
    assert_eq!(counted.total(), 2);
    let named: Vec<_> = counted.iter().map(|(reason, count)| (reason.name(), count)).collect();
    assert_eq!(named, [("wrong_direction", 1), ("wrong_encapsulation", 1)]);
}

/// Packets that are sealed right, around a plaintext that is wrong.
#[test]
fn wrong_contents() {
    let inner = ip(&tunnel(), 253, &[b's'; 32]);
    let mut wrong_version = inner.clone();
    wrong_version[0] = 0x65;
    let mut too_long = inner.clone();
    too_long[3] = 60;
    let cases: [(&[u8], &[u8], Refusal); 12] = [
        (&inner, &[1, 2, 2, 5], Refusal::BadNextHeader),
        (&inner, &[1, 2, 2, 41], Refusal::BadInnerPacket),
        (&inner, &[1, 1, 2, 4], Refusal::BadPadding),
        (&inner, &[0, 1, 2, 4], Refusal::BadPadding),
        (&inner, &[1, 2, 99, 4], Refusal::BadPadding),
        (&inner, &[1, 2, 255, 4], Refusal::BadPadding),
        (&inner, &[1, 2, 2, 59], Refusal::Dummy),
        (&inner[..48], &[1, 2, 2, 4], Refusal::BadInnerPacket),
        (&wrong_version, &[1, 2, 2, 4], Refusal::BadInnerPacket),
        (&too_long, &[1, 2, 2, 4], Refusal::BadInnerPacket),
        (&[], &[1, 2, 2, 4], Refusal::BadInnerPacket),
        (&[], &[1, 2, 3, 4], Refusal::BadPadding),
    ];
    let keys = keys(SUITE, &mut Rng::with_seed(15));
    let inbound = sa(tunnel().config(Direction::Inbound, keys.clone()));
    for (number, (payload, trailer, reason)) in cases.into_iter().enumerate() {
        let sequence = number as u32 + 1;
        let header = [SPI.to_be_bytes(), sequence.to_be_bytes()].concat();
        let iv = u64::from(sequence).to_be_bytes();
        let nonce = [&keys.encryption.bytes()[16..], &iv].concat();
        let text = [payload, trailer].concat();
        let raw = Raw::new(SUITE, keys.clone(), &nonce, &header, &text);
        let sealed = raw.run(towpath_ipsec::Operation::Seal).bytes;
        let esp = [&header[..], &iv, &sealed].concat();
        let (from, to) = outer(false);
        let (refused, buffer) =
            open(&inbound, &frame(&ip_packet(from, to, 50, &esp))).expect_err("it is wrong");
        assert_eq!(refused, reason, "case {number}");
        assert!(!buffer.windows(8).any(|it| it == [b's'; 8]), "no plaintext in case {number}");
        assert_eq!(inbound.statistics().refused.total(), u64::from(sequence));
    }
    assert_eq!(inbound.statistics().packets, 0);
}

#[test]
fn no_room() {
    let mut random = Rng::with_seed(16);
    for suite in Suite::all() {
        let case = Case { suite, ..tunnel() };
        let (outbound, inbound) = case.pair(&mut random);
        let packet = frame(&ip(&case, 253, &[7; 50]));
        let front = 20 + 8 + suite.iv_len();
        let len = send(&outbound, &packet).expect("there is room").len();
        let behind = len - packet.len() - front;
        let room = |front, behind| OwnedBuffer::with_room(&packet, front, behind);
        assert_eq!(send_from(&outbound, room(front - 1, behind)), Err(Refusal::NoHeadroom));
        assert_eq!(send_from(&outbound, room(front, behind - 1)), Err(Refusal::NoTailroom));
        let sent = send_from(&outbound, room(front, behind)).expect("there is just enough");
        assert_eq!(receive(&inbound, &sent), Ok(packet));
    }
}

#[test]
fn too_long_for_the_path_or_for_ip() {
    let mut random = Rng::with_seed(17);
    for is_outer_v6 in [false, true] {
        let case = Case { is_outer_v6, ..tunnel() };
        let (outbound, inbound) = case.pair(&mut random);
        let outer_len = if is_outer_v6 { 40 } else { 20 };
        let around = outer_len + 8 + 8 + 16;
        let most = if is_outer_v6 { 65_575 } else { 65_535 };
        // The inner packet, pad length and next header end at a multiple of 4.
        let longest = (most - around) / 4 * 4 - 2;
        for (len, fits) in [(longest, true), (longest + 1, false), (65_535, false)] {
            let packet = frame(&ip(&case, 253, &vec![3; len - 20]));
            match send(&outbound, &packet) {
                Ok(sent) if fits => assert_eq!(receive(&inbound, &sent), Ok(packet)),
                other => assert_eq!((other, fits), (Err(Refusal::TooLong), false), "{len}"),
            }
        }
        outbound.set_pmtu(1400);
        let longest = (1400 - around) / 4 * 4 - 2;
        let packet = |len| frame(&ip(&case, 253, &vec![3; len - 20]));
        let sent = send(&outbound, &packet(longest)).expect("it fits");
        assert!(sent.len() - 14 <= 1400);
        assert_eq!(send(&outbound, &packet(longest + 1)), Err(Refusal::TooBig));
    }
}

#[test]
fn fragments_are_for_tunnels_only() {
    let mut random = Rng::with_seed(18);
    for is_tunnel in [true, false] {
        let case = Case { is_tunnel, ..tunnel() };
        let (outbound, inbound) = case.pair(&mut random);
        let mut packet = ip(&case, 17, &[7; 64]);
        packet[6] = 0x20;
        let packet = frame(&packet);
        let sent = send(&outbound, &packet);
        match is_tunnel {
            true => assert_eq!(receive(&inbound, &sent.expect("it is sent")), Ok(packet)),
            false => assert_eq!(sent, Err(Refusal::Fragment)),
        }
    }
}

/// An SA brings only what it was made for.
#[test]
fn packets_outside_of_the_selector() {
    let mut random = Rng::with_seed(19);
    for is_tunnel in [true, false] {
        for is_v6 in [false, true] {
            let case = Case { is_tunnel, is_outer_v6: is_v6, is_inner_v6: is_v6, ..tunnel() };
            let packet = |port| frame(&ip(&case, 17, &udp(7, port, b"payload")));
            let flow = Flow::of_frame(&packet(53)).expect("a packet of UDP");
            assert_eq!((flow.protocol, flow.destination_port), (17, 53));
            let (any4, any6) = ("0.0.0.0".parse(), "::".parse());
            let any = if is_v6 { any6 } else { any4 };
            let any = Prefix { address: any.expect("an address"), len: 0 };
            let selector = Selector { destination_port: Some(53), ..Selector::between(any, any) };
            let keys = keys(SUITE, &mut random);
            let outbound = sa(case.config(Direction::Outbound, keys.clone()));
            let mut config = case.config(Direction::Inbound, keys);
            config.selector = Some(selector);
            let inbound = sa(config);
            let sent = send(&outbound, &packet(53)).expect("sent");
            assert_eq!(receive(&inbound, &sent), Ok(packet(53)));
            let sent = send(&outbound, &packet(54)).expect("sent");
            let (reason, buffer) = open(&inbound, &sent).expect_err("another port");
            assert_eq!(reason, Refusal::SelectorMismatch);
            assert_eq!(buffer[..38], sent[..38], "the outer header is as it was");
            assert!(!buffer.windows(7).any(|it| it == b"payload"));
        }
    }
}

#[test]
fn every_reason_has_a_name_and_a_sentence() {
    let mut names: Vec<_> = Refusal::ALL.iter().map(|reason| reason.name()).collect();
    assert!(names.contains(&"bad_icv"));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Refusal::ALL.len());
    assert!(Refusal::ALL.iter().all(|reason| reason.to_string().contains(' ')));
}
