//! No frame makes ESP's parser panic, and none but those that an SA's peer sent comes out of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use towpath_fuzz::corpus;
use towpath_ipsec::{
    Aead, Cipher, Config, Direct, Direction, Encapsulation, Engine, Esp, Flow, Hmac, Job, Keys,
    Mode, OwnedBuffer, Sa, Suite, finish,
};

#[test]
fn every_part_of_a_real_packet() {
    let ends = Ends::all();
    for packet in packets(&ends) {
        (0..=packet.len()).for_each(|len| ends.receive(&packet[..len], &packet));
    }
}

#[test]
fn a_real_packet_with_bytes_changed() {
    let ends = Ends::all();
    let packets = packets(&ends);
    bolero::check!().with_type::<(u8, Vec<(u16, u8)>, u8)>().for_each(|(choice, changes, cut)| {
        let original = &packets[usize::from(*choice) % packets.len()];
        let mut packet = original.clone();
        let len = packet.len();
        for (at, value) in changes {
            packet[usize::from(*at) % len] = *value;
        }
        packet.truncate(len.saturating_sub(usize::from(*cut) % 64));
        ends.receive(&packet, original);
    });
}

#[test]
fn any_frame_to_send() {
    let ends = Ends::all();
    let kinds = [[0x08, 0, 0x45, 0], [0x86, 0xdd, 0x60, 0], [0x81, 0, 0, 1], [0x08, 0, 0x4f, 0]];
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(choice, bytes)| {
        let mut packet = bytes.clone();
        if packet.len() >= 16 {
            packet[12..16].copy_from_slice(&kinds[usize::from(choice % 4)]);
        }
        let _flow = Flow::of_frame(&packet);
        for (outbound, _) in ends.pairs.iter() {
            let mut jobs = Vec::new();
            let refused = outbound.lock(0).encap(OwnedBuffer::new(&packet), &mut jobs).err();
            if let Some(refused) = refused {
                assert_eq!(refused.buffer.as_ref(), packet, "a refused packet is unchanged");
            }
        }
    });
}

/// Pairs of SAs: outbound and inbound.
struct Ends {
    pairs: AssertUnwindSafe<Vec<(Arc<Sa>, Arc<Sa>)>>,
}

impl Ends {
    fn all() -> Ends {
        let cbc = Suite::CipherThenHmac(Cipher::Aes128Cbc, Hmac::Sha1_96);
        let null = Suite::CipherThenHmac(Cipher::Null, Hmac::Sha256_128);
        let suites = [Suite::Aead(Aead::Aes128Gcm), Suite::Aead(Aead::ChaCha20Poly1305), cbc, null];
        let kinds = suites.into_iter().flat_map(|suite| (0..4).map(move |kind| (suite, kind)));
        let pairs = kinds.map(|(suite, kind)| (end(suite, kind, true), end(suite, kind, false)));
        Ends { pairs: AssertUnwindSafe(pairs.collect()) }
    }

    /// Decapsulates by every SA; only the original may come out, and of it only what was protected.
    fn receive(&self, packet: &[u8], original: &[u8]) {
        let Ok(esp) = Esp::of_frame(packet) else { return };
        for (_, inbound) in self.pairs.iter() {
            let mut jobs: Vec<Job<OwnedBuffer>> = Vec::new();
            let buffer = OwnedBuffer::new(packet);
            if inbound.lock(0).decap(buffer, &esp, &mut jobs).is_err() {
                continue;
            }
            let mut engine = Direct::new(1);
            engine.submit(&mut jobs);
            engine.complete(&mut jobs);
            match finish(jobs.remove(0), 0) {
                Ok(finished) => {
                    let text = has_text(finished.buffer.as_ref());
                    assert!(text, "a forged packet came out, {packet:x?} of {original:x?}");
                }
                Err(refused) => {
                    // Without encryption it may have been there before.
                    let seen = has_text(refused.buffer.as_ref()) && !has_text(packet);
                    assert!(!seen, "plaintext was left by {:?}", refused.reason);
                }
            }
        }
    }
}

fn has_text(bytes: &[u8]) -> bool {
    bytes.windows(TEXT.len()).any(|it| it == TEXT)
}

fn end(suite: Suite, kind: u8, is_outbound: bool) -> Arc<Sa> {
    let keys = Keys::new(
        (0..suite.encryption_key_len() as u8).collect(),
        (0..suite.integrity_key_len() as u8).collect(),
    );
    let [from, to] = match kind & 1 {
        0 => [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()],
        _ => [[0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 2].into()],
    };
    let mut config = Config::outbound(0x1000, from, to, suite, keys);
    config.direction = if is_outbound { Direction::Outbound } else { Direction::Inbound };
    // Without a window each packet can be tried again.
    config.replay.window = 0;
    if kind & 1 == 1 {
        config.mode = Mode::Transport;
    }
    if kind & 2 == 2 {
        let encapsulation = Encapsulation { source_port: 4500, destination_port: 4500 };
        config.encapsulation = Some(encapsulation);
    }
    Arc::new(Sa::new(1, config, 0).expect("a good description"))
}

/// A packet by each outbound SA, and those of `corpus/`.
fn packets(ends: &Ends) -> Vec<Vec<u8>> {
    let mut packets = corpus("ipsec", &["bin"]).expect("they are committed");
    assert!(!packets.is_empty());
    for (outbound, _) in ends.pairs.iter() {
        let is_v6 = outbound.destination().is_ipv6() && outbound.mode() == Mode::Transport;
        let mut plain = vec![2; 12];
        if is_v6 {
            plain.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, TEXT.len() as u8, 253, 64]);
            plain.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            plain.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        } else {
            let total = 20 + TEXT.len() as u8;
            plain.extend([8, 0, 0x45, 0, 0, total, 0, 0, 0, 0, 64, 253, 0, 0]);
            plain.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        }
        plain.extend(TEXT);
        let mut jobs = Vec::new();
        outbound.lock(0).encap(OwnedBuffer::new(&plain), &mut jobs).expect("it can be sent");
        let mut engine = Direct::new(1);
        engine.submit(&mut jobs);
        engine.complete(&mut jobs);
        let sent = finish(jobs.remove(0), 0).expect("the engine did it");
        packets.push(sent.buffer.as_ref().to_vec());
    }
    packets
}

const TEXT: &[u8] = b"text that only the peer may write";
