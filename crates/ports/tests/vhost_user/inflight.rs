//! Buffers that a back end had taken when it was ended, by the region that the front end keeps.

use rustix::io::{pread, pwrite};
use towpath_workload::virtio::{Guest, GuestOptions, HEADER_BYTES, guest_address};

use crate::PLAIN;
use crate::scene::{Scene, packet};

/// Entries of the rings.
const SIZE: u16 = 16;

/// A guest whose front end keeps the region.
pub(crate) fn guest(scene: &Scene, index: usize, options: GuestOptions) -> Guest {
    let mut guest = scene.guest(index, options);
    guest.inflight = Some(guest.front.make_inflight(2, options.size).unwrap());
    scene.reconnect(index, &mut guest);
    guest
}

/// Two guests whose front ends keep regions, the first of which has made four packets available
/// that are not taken: the back end was ended.
fn with_four(packed: bool) -> (Scene, Guest, Guest) {
    let mut scene = Scene::new();
    let options = GuestOptions { size: SIZE, packed, ..GuestOptions::default() };
    let (mut a, b) = (guest(&scene, 0, options), guest(&scene, 1, options));
    scene.reopen(0);
    for number in 0..4 {
        let queue = &mut a.tx[0];
        let at = queue.buffer(queue.next_buffer());
        a.memory.write(at, &PLAIN);
        a.memory.write(at + HEADER_BYTES as usize, &packet(60, number));
        queue.post(HEADER_BYTES + 60);
        queue.publish();
    }
    (scene, a, b)
}

fn expect(b: &mut Guest, numbers: &[u32]) {
    for &number in numbers {
        assert_eq!(b.wait_for(0).expect("a packet arrives").1, packet(60, number));
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(b.receive(0).is_none(), "none arrives twice");
}

/// The queue that the guest sends by is the second one of the region.
fn second_queue(packed: bool) -> u64 {
    let bytes: u64 = if packed { 32 + 32 * 16 } else { 16 + 16 * 16 };
    bytes.next_multiple_of(64)
}

#[test]
fn what_another_left_in_a_split_ring_comes_first() {
    let (scene, mut a, mut b) = with_four(false);
    // It took all four, gave back the third, and was ended before it noted that.
    let used = a.tx[0].places()[2];
    a.memory.write(used + 4, &[2, 0, 0, 0, 0, 0, 0, 0]);
    a.memory.store16(used + 2, 1);
    let region = &a.inflight.as_ref().unwrap().file;
    let start = second_queue(false);
    for (head, counter) in [(0u64, 5u64), (1, 6), (2, 7), (3, 8)] {
        pwrite(region, &[1, 0, 0, 0, 0, 0, 0, 0], start + 16 + 16 * head).unwrap();
        pwrite(region, &counter.to_ne_bytes(), start + 24 + 16 * head).unwrap();
    }
    pwrite(region, &[2, 0], start + 12).unwrap();
    scene.reconnect(0, &mut a);
    expect(&mut b, &[0, 1, 3]);
    let ids: Vec<u32> = (0..4).map(|place| a.memory.load32(used + 4 + 8 * place)).collect();
    assert_eq!((a.memory.load16(used + 2), ids), (4, vec![2, 0, 1, 3]));
    let region = &a.inflight.as_ref().unwrap().file;
    for head in 0..4 {
        let mut entry = [0; 1];
        pread(region, &mut entry, start + 16 + 16 * head).unwrap();
        assert_eq!(entry, [0], "nothing is in flight");
    }
    scene.check();
}

#[test]
fn what_another_left_in_a_packed_ring_comes_first() {
    let (scene, mut a, mut b) = with_four(true);
    // It took three, and gave back the second in the place of the first.
    let ring = a.tx[0].places()[0];
    let used: u64 = (1 << 7 | 1 << 15) << 48 | 1 << 32;
    let region = &a.inflight.as_ref().unwrap().file;
    let start = second_queue(true);
    let store = |at: u64, word: u64| pwrite(region, &word.to_ne_bytes(), start + at).unwrap();
    for (entry, buffer, counter) in [(0, 0usize, 5u64), (2, 2, 6)] {
        let at = 32 + 32 * entry;
        // In flight, itself the last one of one.
        store(at, 1 | entry << 32 | 1 << 48);
        store(at + 8, counter);
        store(at + 16, buffer as u64 | 1 << 7 << 16 | u64::from(HEADER_BYTES + 60) << 32);
        store(at + 24, guest_address(a.tx[0].buffer(buffer)));
    }
    // Used up to the second place, in the first lap.
    store(16, 1 | 1 << 16 | 1 << 32 | 1 << 40);
    a.memory.store64(ring + 8, used);
    scene.reconnect(0, &mut a);
    expect(&mut b, &[0, 2, 3]);
    let ids: Vec<u16> =
        (0..4).map(|place| (a.memory.load64(ring + 16 * place + 8) >> 32) as u16).collect();
    assert_eq!(ids, [1, 0, 2, 3]);
    scene.check();
}

#[test]
fn what_was_half_given_back_is_not_taken_twice() {
    let (scene, mut a, mut b) = with_four(true);
    // All four were one batch, of which the second and the third are marked: the first comes last.
    let ring = a.tx[0].places()[0];
    for place in [1, 2u64] {
        let used: u64 = (1 << 7 | 1 << 15) << 48 | place << 32;
        a.memory.store64(ring + 16 * place as usize + 8, used);
    }
    let region = &a.inflight.as_ref().unwrap().file;
    let places: u64 = 4 | 1 << 32 | 1 << 40;
    pwrite(region, &places.to_ne_bytes(), second_queue(true) + 16).unwrap();
    scene.reconnect(0, &mut a);
    expect(&mut b, &[0, 3]);
    scene.check();
}

#[test]
fn a_region_that_is_none_is_refused() {
    let scene = Scene::new();
    let mut a = scene.guest(0, GuestOptions::default());
    assert!(a.front.make_inflight(99, 16).is_err());
    let mut a = scene.guest(0, GuestOptions::default());
    let mut inflight = a.front.make_inflight(2, 16).unwrap();
    inflight.description[..8].copy_from_slice(&(1u64 << 40).to_ne_bytes());
    let refused = a.front.pass_inflight(&inflight).unwrap_err();
    assert_eq!(refused.to_string(), "request 32 is refused");
    let mut b = scene.guest(1, GuestOptions::default());
    assert!(a.send(0, &PLAIN, &packet(60, 1)), "it is as it was");
    assert_eq!(b.wait_for(0).unwrap().1, packet(60, 1));
}
