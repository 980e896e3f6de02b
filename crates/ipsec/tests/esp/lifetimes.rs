//! Lifetimes, sequence numbers and what is wrong with descriptions.

use std::sync::Arc;

use fastrand::Rng;
use towpath_ipsec::{
    Aead, Cipher, Config, Direction, Dscp, Encapsulation, Esp, Hmac, Keys, Lifetime, Limits, Mode,
    OwnedBuffer, Refusal, Sa, Suite, Tunnel, finish,
};

use crate::common::{Case, decap, encap, frame, ip, keys, outer, receive, run, sa, send};

fn case() -> Case {
    let suite = Suite::Aead(Aead::Aes128Gcm);
    Case {
        suite,
        is_tunnel: true,
        is_outer_v6: false,
        is_inner_v6: false,
        is_udp: false,
        esn: false,
    }
}

fn outbound(change: impl FnOnce(&mut Config)) -> Arc<Sa> {
    let keys = keys(case().suite, &mut Rng::with_seed(10));
    let mut config = case().config(Direction::Outbound, keys);
    change(&mut config);
    sa(config)
}

fn packet() -> Vec<u8> {
    frame(&ip(&case(), 253, &[1; 80]))
}

#[test]
fn packets_and_bytes_end_an_sa() {
    for (soft, hard) in [
        (
            Limits { packets: Some(3), ..Limits::default() },
            Limits { packets: Some(5), ..Limits::default() },
        ),
        (
            Limits { bytes: Some(300), ..Limits::default() },
            Limits { bytes: Some(500), ..Limits::default() },
        ),
    ] {
        let sa = outbound(|config| config.lifetime = Lifetime { soft, hard });
        for number in 1..=5 {
            assert!(!sa.is_expired());
            assert!(send(&sa, &packet()).is_ok());
            let events = sa.take_events();
            assert_eq!((events.soft, events.hard), (number == 3, number == 5), "{number}");
        }
        assert!(sa.is_expired());
        assert_eq!(send(&sa, &packet()), Err(Refusal::Expired));
        assert!(sa.take_events().is_empty(), "an event is told once");
        assert_eq!(sa.statistics().packets, 5);
        assert_eq!(sa.statistics().bytes, 500);
        assert_eq!(sa.statistics().refused.get(Refusal::Expired), 1);
    }
}

#[test]
fn time_ends_an_sa_with_and_without_packets() {
    let lifetime = Lifetime {
        soft: Limits { seconds: Some(10), ..Limits::default() },
        hard: Limits { seconds: Some(20), ..Limits::default() },
    };
    let sa = outbound(|config| config.lifetime = lifetime);
    assert!(encap(&sa, OwnedBuffer::new(&packet()), 9).is_ok());
    assert!(sa.take_events().is_empty());
    sa.expire(10);
    assert!(sa.take_events().soft);
    assert!(encap(&sa, OwnedBuffer::new(&packet()), 19).is_ok());
    let refused = encap(&sa, OwnedBuffer::new(&packet()), 20).expect_err("it has ended");
    assert_eq!(refused.reason, Refusal::Expired);
    assert_eq!(refused.buffer.as_ref(), packet());
    assert!(sa.take_events().hard);
    assert_eq!(sa.statistics().used, 19);
}

/// An inbound SA counts packets whose integrity is known, and no others.
#[test]
fn an_inbound_sa_counts_what_it_accepts() {
    let mut random = Rng::with_seed(11);
    let keys = keys(case().suite, &mut random);
    let sender = sa(case().config(Direction::Outbound, keys.clone()));
    let mut config = case().config(Direction::Inbound, keys);
    config.lifetime.hard.packets = Some(2);
    let receiver = sa(config);
    for number in 0..3 {
        let mut sent = send(&sender, &packet()).expect("it can be sent");
        *sent.last_mut().expect("a byte") ^= 1;
        assert_eq!(
            receive(&receiver, &sent),
            Err(if number < 2 { Refusal::BadIcv } else { Refusal::Expired })
        );
        *sent.last_mut().expect("a byte") ^= 1;
        assert_eq!(receive(&receiver, &sent).is_ok(), number < 2);
    }
    assert_eq!(receiver.statistics().packets, 2);
}

#[test]
fn sequence_numbers_never_wrap() {
    let keys = keys(case().suite, &mut Rng::with_seed(12));
    let last = u64::from(u32::MAX) - 1;
    let mut config = case().config(Direction::Outbound, keys.clone());
    config.replay.last = last;
    let sender = sa(config.clone());
    let mut inbound = case().config(Direction::Inbound, keys);
    inbound.replay.last = last;
    let sent = send(&sender, &packet()).expect("one is left");
    assert_eq!(receive(&sa(inbound.clone()), &sent), Ok(packet()));
    assert!(sender.take_events().soft, "there was a warning");
    assert_eq!(send(&sender, &packet()), Err(Refusal::SequenceExhausted));
    assert_eq!(sender.statistics().sequence, u32::MAX.into());

    (config.replay.esn, inbound.replay.esn) = (true, true);
    let (sender, receiver) = (sa(config.clone()), sa(inbound));
    for _ in 0..200 {
        let sent = send(&sender, &packet()).expect("2^64 are many");
        assert_eq!(receive(&receiver, &sent), Ok(packet()));
    }
    assert_eq!(receiver.statistics().sequence, last + 200);
    config.replay.last = u64::MAX;
    assert_eq!(send(&sa(config), &packet()), Err(Refusal::SequenceExhausted));
}

/// The warning comes while there is time to agree on new keys.
#[test]
fn the_end_of_sequence_numbers_is_announced() {
    let sa = outbound(|config| config.replay.last = (7 << 29) - 2);
    assert!(send(&sa, &packet()).is_ok());
    assert!(sa.take_events().is_empty());
    assert!(send(&sa, &packet()).is_ok());
    assert!(sa.take_events().soft);
}

/// A refused packet uses up no number, so that the peer sees no gap.
#[test]
fn refused_packets_have_no_number() {
    let sa = outbound(|config| config.pmtu = 200);
    assert_eq!(send(&sa, &frame(&ip(&case(), 253, &[0; 400]))), Err(Refusal::TooBig));
    assert_eq!(send(&sa, &packet()[..20]), Err(Refusal::Truncated));
    assert_eq!(sa.statistics().sequence, 0);
    sa.set_pmtu(0);
    assert!(send(&sa, &frame(&ip(&case(), 253, &[0; 400]))).is_ok());
    assert_eq!(sa.statistics().sequence, 1);
}

/// Two packets of one number in an engine at the same time: the second one is refused at its end.
#[test]
fn a_replay_beside_its_original() {
    let mut random = Rng::with_seed(13);
    let (sender, receiver) = case().pair(&mut random);
    let sent = send(&sender, &packet()).expect("it can be sent");
    let esp = Esp::of_frame(&sent).expect("ESP");
    let job = || decap(&receiver, OwnedBuffer::new(&sent), &esp).expect("both may be new");
    let (first, second) = (job(), job());
    let (first, second) = (run(first), run(second));
    assert!(finish(first, 0).is_ok());
    let refused = finish(second, 0).expect_err("it is a replay");
    assert_eq!(refused.reason, Refusal::Replayed);
    assert!(!refused.buffer.as_ref().windows(40).any(|it| it == [1; 40]), "no plaintext");
}

#[test]
fn invalid_descriptions_are_refused() {
    let suite = Suite::CipherThenHmac(Cipher::Aes128Cbc, Hmac::Sha1_96);
    let good = || {
        let (from, to) = outer(false);
        Config::outbound(256, from, to, suite, Keys::new(vec![0; 16], vec![0; 20]))
    };
    assert!(Sa::new(1, good(), 0).is_ok());
    type Change = fn(&mut Config);
    let cases: [(Change, &str); 14] = [
        (|it| it.spi = 0, "SPI 0 is reserved: the SPI of an SA is 256 or higher"),
        (|it| it.spi = 255, "SPI 255 is reserved: the SPI of an SA is 256 or higher"),
        (
            |it| it.destination = outer(true).1,
            "source 192.0.2.1 and destination 2001:db8::2 have different address families",
        ),
        (
            |it| it.source = std::net::Ipv4Addr::UNSPECIFIED.into(),
            "0.0.0.0 is not a valid end of an SA: source and destination need addresses",
        ),
        (
            |it| it.keys = Keys::new(vec![0; 15], vec![0; 20]),
            "AES-CBC-128 with HMAC-SHA1-96 needs an encryption key of 16 bytes (an AEAD's includes \
             the salt of 4), not 15",
        ),
        (
            |it| it.keys = Keys::new(vec![0; 16], vec![0; 32]),
            "AES-CBC-128 with HMAC-SHA1-96 needs an integrity key of 20 bytes, not 32",
        ),
        (
            |it| it.replay.window = 31,
            "a replay window must have 32 to 4096 numbers, or 0 for no protection, not 31",
        ),
        (
            |it| it.replay.window = 4097,
            "a replay window must have 32 to 4096 numbers, or 0 for no protection, not 4097",
        ),
        (
            |it| {
                it.direction = Direction::Inbound;
                (it.replay.esn, it.replay.window) = (true, 0);
            },
            "an inbound SA with extended sequence numbers needs a replay window",
        ),
        (
            |it| it.replay.last = 1 << 32,
            "sequence number 4294967296 needs extended sequence numbers",
        ),
        (
            |it| (it.lifetime.soft.bytes, it.lifetime.hard.bytes) = (Some(5), Some(5)),
            "the soft limit of 5 bytes is not below the hard limit of 5",
        ),
        (
            |it| {
                it.encapsulation = Some(Encapsulation { source_port: 4500, destination_port: 0 });
            },
            "a port of the UDP encapsulation is 0",
        ),
        (
            |it| it.mode = Mode::Tunnel(Tunnel { dscp: Dscp::Set(64), ..Tunnel::default() }),
            "a DSCP must be 0 to 63, not 64",
        ),
        (|it| it.pmtu = 67, "the path MTU must be at least 68 bytes, not 67"),
    ];
    for (change, sentence) in cases {
        let mut config = good();
        change(&mut config);
        let error = Sa::new(1, config, 0).expect_err(sentence);
        assert_eq!(error.to_string(), sentence);
    }
}

#[test]
fn keys_are_not_printed() {
    for suite in Suite::all() {
        let secret = |len| vec![0xa5; len];
        let keys = Keys::new(secret(suite.encryption_key_len()), secret(suite.integrity_key_len()));
        let (from, to) = outer(false);
        let config = Config::outbound(256, from, to, suite, keys);
        let sa = Sa::new(1, config.clone(), 0).expect("a good description");
        for text in [format!("{config:?}"), format!("{sa:?}"), format!("{:?}", sa.schedule())] {
            let text = text.to_lowercase();
            assert!(!text.contains("165, 165") && !text.contains("a5a5"), "{text}");
            assert!(!text.contains("a5, 0xa5"), "{text}");
        }
    }
}
