//! Work that a guest left to us is done, or handed to a guest that does it.

use towpath_engine::{Config, Hook, Link};
use towpath_workload::small;
use towpath_workload::virtio::GuestOptions;
use towpath_xdp::{LoadOptions, Program};

use crate::scene::Scene;

const GUEST_CSUM: u64 = 1 << 1;
const GUEST_TSO4: u64 = 1 << 7;
const MRG_RXBUF: u64 = 1 << 15;

/// TCP from 10.0.0.1 to 10.0.0.2 without a checksum, and the matching virtio header.
fn tcp(payload: usize, segment: u16) -> ([u8; 12], Vec<u8>) {
    let mut packet = vec![0x5a; 54 + payload];
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    let len = (40 + payload) as u16;
    packet[14..34]
        .copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet[16..18].copy_from_slice(&len.to_be_bytes());
    let check = !sum(&packet[14..34], 0);
    packet[24..26].copy_from_slice(&check.to_be_bytes());
    packet[34..54]
        .copy_from_slice(&[0, 80, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x50, 0x18, 16, 0, 0, 0, 0, 0]);
    let pseudo = sum(&packet[26..34], 6 + 20 + payload as u32);
    packet[50..52].copy_from_slice(&pseudo.to_be_bytes());
    let [low, high] = segment.to_le_bytes();
    let kind = u8::from(segment > 0);
    ([1, kind, 54 * kind, 0, low, high, 34, 0, 16, 0, 0, 0], packet)
}

/// The one's-complement sum of bytes and a number.
fn sum(bytes: &[u8], more: u32) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum = words.sum::<u32>() + more;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Whether the TCP checksum is right.
fn is_right(packet: &[u8]) -> bool {
    let tcp = &packet[34..];
    let pseudo = sum(&packet[26..34], 6 + tcp.len() as u32);
    sum(tcp, u32::from(pseudo)) == 0xffff
}

#[test]
fn a_missing_checksum_is_completed_for_who_wants_it() {
    let scene = Scene::new();
    let mut a = scene.guest(0, GuestOptions::default());
    let mut b = scene.guest(1, GuestOptions::default());
    for payload in [0, 1, 999, 1000] {
        let (header, packet) = tcp(payload, 0);
        assert!(!is_right(&packet));
        assert!(a.send(0, &header, &packet));
        let (header, received) = b.wait_for(0).unwrap();
        assert_eq!((header[0], received.len()), (0, packet.len()));
        assert!(is_right(&received), "of {payload} bytes");
    }
    scene.check();
}

#[test]
fn a_guest_that_does_it_is_told() {
    let scene = Scene::new();
    let mut a = scene.guest(0, GuestOptions { buffer: 16384, size: 64, ..GuestOptions::default() });
    let features = GUEST_CSUM | GUEST_TSO4 | MRG_RXBUF;
    let mut b = scene.guest(1, GuestOptions { features, ..GuestOptions::default() });
    for (payload, segment) in [(100, 0), (12_000, 1448)] {
        let (header, packet) = tcp(payload, segment);
        assert!(a.send(0, &header, &packet));
        let (received, bytes) = b.wait_for(0).unwrap();
        assert_eq!(received[..10], header[..10]);
        assert_eq!(bytes, packet);
    }
    scene.check();
}

#[test]
fn a_large_packet_is_cut_for_who_does_not() {
    let scene = Scene::new();
    let mut a = scene.guest(0, GuestOptions { buffer: 16384, size: 64, ..GuestOptions::default() });
    for features in [0, MRG_RXBUF, MRG_RXBUF | GUEST_CSUM] {
        let mut b = scene.guest(1, GuestOptions { features, ..GuestOptions::default() });
        let (header, packet) = tcp(12_000, 1448);
        assert!(a.send(0, &header, &packet));
        let mut payload: Vec<u8> = Vec::new();
        while payload.len() < 12_000 {
            let (header, segment) = b.wait_for(0).expect("all segments come");
            assert_eq!(header[1], 0);
            assert!(header[0] == 1 || is_right(&segment), "byte {} on", payload.len());
            assert!(segment.len() <= 1502);
            payload.extend(&segment[54..]);
        }
        assert_eq!(payload, packet[54..]);
        scene.check();
    }
}

#[test]
fn a_large_packet_goes_whole_or_not_at_all() {
    let scene = Scene::new();
    let mut a = scene.guest(0, GuestOptions { buffer: 16384, size: 64, ..GuestOptions::default() });
    // Nine segments, and room for eight frames.
    let mut b = scene.guest(1, GuestOptions { size: 8, ..GuestOptions::default() });
    let (header, packet) = tcp(12_000, 1448);
    assert!(a.send(0, &header, &packet));
    let (header, short) = tcp(10, 0);
    assert!(a.send(0, &header, &short));
    let received = b.wait_for(0).unwrap_or_else(|| panic!("{}", scene.story()));
    assert_eq!(received.1.len(), short.len());
    scene.check();
}

#[test]
fn a_program_sees_checksums_that_are_complete() {
    let scene = Scene::new();
    let mut a = scene.guest(0, GuestOptions { buffer: 16384, size: 64, ..GuestOptions::default() });
    let features = GUEST_CSUM | GUEST_TSO4 | MRG_RXBUF;
    let mut b = scene.guest(1, GuestOptions { features, ..GuestOptions::default() });
    let (header, packet) = tcp(100, 0);
    // The receiver would accept the packet without a checksum, and gets it so as long as no program
    // looks.
    assert!(a.send(0, &header, &packet));
    assert_eq!(b.wait_for(0).unwrap().0[0], 1);
    let program = Program::from_linked(small::returns(2), &LoadOptions::default()).unwrap();
    let link = Link::new(program, 1, 1);
    let set = |config: &mut Config| config.set_links(scene.ports[0], Hook::Rx, vec![link]);
    scene.engine.change(set).unwrap();
    assert!(a.send(0, &header, &packet));
    let (header, seen) = b.wait_for(0).unwrap();
    assert_eq!(header[0], 0);
    assert!(is_right(&seen));
    // A large packet is several, and whole.
    let (header, packet) = tcp(12_000, 1448);
    assert!(a.send(0, &header, &packet));
    let (received, bytes) = b.wait_for(0).unwrap();
    assert_eq!((received[..10].to_vec(), bytes), (header[..10].to_vec(), packet));
    scene.check();
}
