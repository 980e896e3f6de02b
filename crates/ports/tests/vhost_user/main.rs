//! Guests that are joined by an engine: one receives the frames that the other sends, with any kind
//! of ring, and through restarts of either.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]

mod chains;
mod hostile;
mod inflight;
mod lifetime;
mod offloads;
mod queues;
mod race;
mod scene;

use scene::{Scene, packet};
use towpath_workload::virtio::{GuestOptions, Layout};

const PLAIN: [u8; 12] = [0; 12];
const MRG_RXBUF: u64 = 1 << 15;
const EVENT_IDX: u64 = 1 << 29;
const IN_ORDER: u64 = 1 << 35;

#[test]
fn frames_cross_between_all_kinds_of_rings() {
    let layouts = [Layout::Single, Layout::Chained, Layout::Indirect];
    for packed in [false, true] {
        for layout in layouts {
            for features in [0, MRG_RXBUF | IN_ORDER, MRG_RXBUF | EVENT_IDX] {
                let options =
                    GuestOptions { size: 16, packed, layout, features, ..GuestOptions::default() };
                // Frames that don't fit a buffer need several.
                let longest = if features & MRG_RXBUF != 0 { 9000 } else { 2036 };
                eprintln!("{options:?}");
                exchange(options, longest);
            }
        }
    }
}

fn exchange(options: GuestOptions, longest: usize) {
    let scene = Scene::with(1, |options| options.mtu = 9000);
    let mut a = scene.guest(0, GuestOptions { buffer: 16384, ..options });
    let mut b = scene.guest(1, options);
    let lengths = [14, 60, 64, 1514, 2036, longest];
    // Several times around the rings.
    for number in 0..100u32 {
        let sent = packet(lengths[number as usize % lengths.len()].max(18), number);
        assert!(a.send(0, &PLAIN, &sent));
        let (header, received) = b.wait_for(0).unwrap_or_else(|| panic!("frame {number} is lost"));
        assert_eq!(received, sent);
        assert_eq!(header[..10], [0; 10]);
        let buffers = u16::from_le_bytes([header[10], header[11]]);
        assert_eq!(buffers as usize, (sent.len() + 12).div_ceil(2048), "of {} bytes", sent.len());
        let short = &sent[..sent.len().min(2036)];
        assert!(b.send(0, &PLAIN, short));
        assert_eq!(a.wait_for(0).unwrap().1, short);
    }
    assert_eq!(scene.failures(0), [""; 0]);
    scene.check();
}

#[test]
fn what_is_no_frame_is_dropped_and_counted() {
    let scene = Scene::new();
    let (mut a, mut b) =
        (scene.guest(0, GuestOptions::default()), scene.guest(1, GuestOptions::default()));
    assert!(a.send(0, &PLAIN, &[7; 13]), "shorter than an Ethernet header");
    // CVE-2024-11614: a checksum behind the end; a kind of large packet that is none.
    assert!(a.send(0, &[1, 0, 0, 0, 0, 0, 59, 0, 0, 0, 0, 0], &packet(60, 1)));
    assert!(a.send(0, &[1, 77, 0, 0, 9, 0, 34, 0, 6, 0, 0, 0], &packet(60, 2)));
    assert!(a.send(0, &PLAIN, &packet(60, 3)));
    assert_eq!(b.wait_for(0).unwrap().1, packet(60, 3));
    assert_eq!(scene.detail(0, "malformed"), "3");
    assert_eq!(scene.failures(0), [""; 0], "a queue is not broken by that");
    scene.check();
}

#[test]
fn a_frame_that_fits_no_buffer_is_dropped() {
    let scene = Scene::with(1, |options| options.mtu = 9000);
    let mut a = scene.guest(0, GuestOptions::default());
    let mut b = scene.guest(1, GuestOptions { features: 0, ..GuestOptions::default() });
    let long = packet(9000, 1);
    // It takes several of the sender's buffers as well.
    for part in [&long[..1000], &packet(60, 2)] {
        assert!(a.send(0, &PLAIN, part));
        assert_eq!(b.wait_for(0).unwrap().1, part);
    }
    drop(a);
    let mut a = scene.guest(0, GuestOptions { buffer: 16384, size: 64, ..GuestOptions::default() });
    assert!(a.send(0, &PLAIN, &long));
    assert!(a.send(0, &PLAIN, &packet(60, 3)));
    assert_eq!(b.wait_for(0).unwrap().1, packet(60, 3));
    scene.check();
}
