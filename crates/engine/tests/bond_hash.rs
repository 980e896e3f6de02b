//! The bond's hash: the kernel's vectors, every truncation of them, and frames made of any headers
//! in any order, against a second implementation.

#[path = "bond/reference.rs"]
mod reference;

use fastrand::Rng;
use towpath_engine::bond::{XmitPolicy, hash};

/// `POLICY FRAME HASH` a line, made with the kernel's own functions; `-` is the empty frame.
const VECTORS: &str = include_str!("data/bond-hash-vectors.txt");

fn vectors() -> Vec<(XmitPolicy, Vec<u8>, u32)> {
    let lines = VECTORS.lines().filter(|line| !line.starts_with('#'));
    let parsed = lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [policy, frame, expected] = words[..] else { panic!("three words in {line:?}") };
        let frame = if frame == "-" { Vec::new() } else { bytes(frame) };
        let expected = u32::from_str_radix(expected, 16).expect("a hash");
        (policy.parse().expect("a policy"), frame, expected)
    });
    parsed.collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

#[track_caller]
fn agree(policy: XmitPolicy, frame: &[u8]) {
    let expected = reference::hash(policy as u8, frame);
    assert_eq!(hash(policy, frame), expected, "{policy} of {frame:02x?}");
}

#[test]
fn the_kernels_vectors_are_reproduced() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 1000);
    for (policy, frame, expected) in vectors {
        assert_eq!(hash(policy, &frame), expected, "{policy} of {frame:02x?}");
        assert_eq!(reference::hash(policy as u8, &frame), expected, "reference: {policy}");
    }
}

#[test]
fn every_truncation_agrees_with_the_reference() {
    for (_, frame, _) in vectors() {
        for len in 0..frame.len() {
            for policy in XmitPolicy::ALL {
                agree(policy, &frame[..len]);
            }
        }
    }
}

#[test]
fn headers_in_any_order_agree_with_the_reference() {
    let mut random = Rng::with_seed(1);
    let mut looked_through = 0;
    for _ in 0..60_000 {
        let mut frame = stack_of_headers(&mut random);
        if random.usize(..4) == 0 {
            frame.truncate(random.usize(..frame.len() + 1));
        }
        if random.usize(..4) == 0 && !frame.is_empty() {
            let at = random.usize(..frame.len());
            frame[at] = random.u8(..);
        }
        for policy in XmitPolicy::ALL {
            agree(policy, &frame);
        }
        let inner = hash(XmitPolicy::Encap23, &frame) != hash(XmitPolicy::Layer23, &frame);
        looked_through += usize::from(inner);
    }
    assert!(looked_through > 10_000, "only {looked_through} frames had anything to look through");
}

#[test]
fn a_frame_of_nothing_but_headers_ends() {
    // 15 steps are allowed: the address behind the 15th tag counts, behind the 16th no more.
    for tags in 0..40 {
        let mut frame = bytes("020000000002020000000001");
        frame.extend([0x81, 0, 0, 5].repeat(tags));
        frame.extend(bytes("08004500001c00000000401100000a0000010a0000021234567800080000"));
        for policy in XmitPolicy::ALL {
            agree(policy, &frame);
        }
        let found = hash(XmitPolicy::Encap34, &frame);
        assert_eq!(found, if tags <= 15 { 0x3d96_8c85 } else { 0 }, "{tags} tags");
    }
}

/// A frame of headers on headers, each with the type of the next one.
fn stack_of_headers(random: &mut Rng) -> Vec<u8> {
    let mut frame = some(random, 12);
    let mut kind = among(random, &LINK_TYPES);
    frame.extend(kind.to_be_bytes());
    for _ in 0..random.usize(..20) {
        let next = among(random, &LINK_TYPES);
        let Some(protocol) = link_header(&mut frame, kind, next, random) else { break };
        kind = next;
        if let Some(protocol) = protocol {
            match transport_headers(&mut frame, protocol, random) {
                Some(next) => kind = next,
                None => break,
            }
        }
    }
    let rest = random.usize(..24);
    frame.extend(some(random, rest));
    frame
}

/// Appends a header; the protocol it carries when it is IP's, `None` when nothing follows.
fn link_header(frame: &mut Vec<u8>, kind: u16, next: u16, random: &mut Rng) -> Option<Option<u8>> {
    let at = frame.len();
    match kind {
        0x0800 => {
            let words = [5, 5, 5, 6, 15, 4][random.usize(..6)];
            frame.extend(some(random, usize::max(words, 5) * 4));
            frame[at] = 0x40 | words as u8;
            let fragment = [0, 0, 0, 0, 0x4000, 0x2000, 0x0001][random.usize(..7)];
            frame[at + 6..at + 8].copy_from_slice(&u16::to_be_bytes(fragment));
            frame[at + 9] = among(random, &PROTOCOLS);
            Some(Some(frame[at + 9]))
        }
        0x86dd => {
            frame.extend(some(random, 40));
            frame[at + 6] = among(random, &PROTOCOLS);
            Some(Some(frame[at + 6]))
        }
        0x8100 | 0x88a8 => tagged(frame, next, some(random, 2)),
        0x88fb | 0x892f => tagged(frame, next, some(random, 4)),
        0x4305 => {
            let mut header = some(random, 22);
            header[..2].copy_from_slice(&[0x40, [15, 15, 15, 14][random.usize(..4)]]);
            tagged(frame, next, header)
        }
        0x8864 => {
            let ppp = match next {
                0x0800 => 0x0021,
                0x86dd => 0x0057,
                0x8847 => 0x0281,
                _ => among(random, &[0x0283, 0x8021, 0xc223, 0x2145]),
            };
            frame.extend([0x11, [0, 0, 0, 9][random.usize(..4)], 0, 7, 0, 30]);
            frame.extend(u16::to_be_bytes(ppp));
            Some(None)
        }
        _ => None,
    }
}

fn tagged(frame: &mut Vec<u8>, next: u16, header: Vec<u8>) -> Option<Option<u8>> {
    frame.extend(header);
    frame.extend(next.to_be_bytes());
    Some(None)
}

/// Appends extension headers and tunnels; the type of the header inside, if there is one.
fn transport_headers(frame: &mut Vec<u8>, protocol: u8, random: &mut Rng) -> Option<u16> {
    let mut protocol = protocol;
    while let 0 | 43 | 44 | 60 = protocol {
        let next = among(random, &PROTOCOLS);
        let units = if protocol == 44 { 0 } else { random.usize(..3) };
        frame.extend([next, units as u8]);
        frame.extend(some(random, 6 + 8 * units));
        protocol = next;
    }
    match protocol {
        4 => Some(0x0800),
        41 => Some(0x86dd),
        47 => {
            let flags: u16 =
                among(random, &[0, 0x2000, 0xb000, 0x2001, 0x3081, 0x4000, 0x0002, 0x8000]);
            let kind: u16 = among(random, &[0x0800, 0x86dd, 0x6558, 0x880b, 0x8100]);
            frame.extend(flags.to_be_bytes());
            frame.extend(kind.to_be_bytes());
            let words = [0x8000, 0x2000, 0x1000, 0x0080].map(|flag| usize::from(flags & flag != 0));
            frame.extend(some(random, 4 * words.iter().sum::<usize>()));
            let inner: u16 = among(random, &[0x0800, 0x86dd]);
            match kind {
                0x6558 => {
                    frame.extend(some(random, 12));
                    frame.extend(inner.to_be_bytes());
                    Some(inner)
                }
                0x880b => {
                    frame.extend([0xff, 3, 0, if inner == 0x0800 { 0x21 } else { 0x57 }]);
                    Some(inner)
                }
                _ => Some(kind),
            }
        }
        1 | 58 => {
            let kind = among(random, &[0, 3, 4, 8, 11, 12, 13, 1, 2, 128, 129, 135]);
            frame.extend([kind, 0, 1, 2, random.u8(..) & 1, random.u8(..) & 1, 0, 1]);
            Some(among(random, &[0x0800, 0x86dd]))
        }
        _ => None,
    }
}

const LINK_TYPES: [u16; 24] = [
    0x0800, 0x0800, 0x0800, 0x0800, 0x86dd, 0x86dd, 0x86dd, 0x8100, 0x8100, 0x88a8, 0x8864, 0x8864,
    0x88fb, 0x892f, 0x4305, 0x8847, 0x8848, 0x0806, 0x8035, 0x88ca, 0x8906, 0x88f7, 0x8902, 0x1234,
];

const PROTOCOLS: [u8; 24] =
    [6, 17, 6, 17, 4, 4, 41, 41, 47, 47, 47, 0, 43, 60, 44, 1, 58, 33, 50, 51, 132, 136, 137, 89];

fn some(random: &mut Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.u8(..)).collect()
}

fn among<T: Copy>(random: &mut Rng, choices: &[T]) -> T {
    choices[random.usize(..choices.len())]
}
