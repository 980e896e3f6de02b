//! Buffers in other pieces than drivers usually make, and some of each kind in one burst.

use towpath_workload::virtio::{GuestOptions, Queue, guest_address};

use crate::PLAIN;
use crate::hostile::{INDIRECT, NEXT, WRITE, describe, publish};
use crate::scene::{Scene, packet, until};

/// A buffer in pieces of these lengths, which lie one behind the other, in slots from `slot` on. In
/// a packed ring it is available by then.
fn pieces(queue: &Queue, slot: usize, at: usize, lengths: &[usize]) {
    let direction = if queue.shape.to_guest { WRITE } else { 0 };
    let start = |piece: usize| at + lengths[..piece].iter().sum::<usize>();
    // The head last: it makes all of them available.
    for (piece, &len) in lengths.iter().enumerate().rev() {
        let is_last = piece + 1 == lengths.len();
        let flags = direction | if is_last { 0 } else { NEXT };
        let number = if queue.shape.packed { slot } else { slot + piece + 1 };
        let place = slot + piece;
        describe(queue, place, guest_address(start(piece)), len as u64, flags, number as u64);
    }
}

/// CVE-2022-2132: a header in more than two descriptors.
#[test]
fn a_header_may_be_in_any_number_of_pieces() {
    for packed in [false, true] {
        let scene = Scene::new();
        let options = GuestOptions { size: 32, packed, ..GuestOptions::default() };
        let (mut a, mut b) = (scene.guest(0, options), scene.guest(1, options));
        let mut lengths = vec![1; 12];
        lengths.extend([3, 1, 56]);
        let sent = packet(60, 5);

        a.restart_empty(1).unwrap();
        let at = a.tx[0].buffer(0);
        a.memory.write(at, &PLAIN);
        a.memory.write(at + 12, &sent);
        pieces(&a.tx[0], 0, at, &lengths);
        publish(&a.tx[0], 1);
        assert_eq!(b.wait_for(0).unwrap().1, sent);

        a.restart_empty(0).unwrap();
        let at = a.rx[0].buffer(0);
        pieces(&a.rx[0], 0, at, &lengths);
        publish(&a.rx[0], 1);
        assert!(b.send(0, &PLAIN, &sent));
        let mut got = [0; 72];
        until("it is filled", || {
            a.memory.read(at, &mut got);
            got[12..] == sent
        });
        assert_eq!((&got[..10], &got[10..12]), (&[0; 10][..], &[1, 0][..]));
        assert_eq!(scene.failures(0), [""; 0]);
        scene.check();
    }
}

#[test]
fn a_burst_of_all_kinds_keeps_its_order() {
    for packed in [false, true] {
        let scene = Scene::new();
        let options = GuestOptions { size: 32, packed, ..GuestOptions::default() };
        let (mut a, mut b) = (scene.guest(0, options), scene.guest(1, options));
        a.restart_empty(1).unwrap();
        let behind_its_end = [1, 0, 0, 0, 0, 0, 59, 0, 0, 0, 0, 0];
        let whole: (&[usize], _) = (&[72], PLAIN);
        let kinds = [
            whole,
            (&[72], behind_its_end),
            whole,
            (&[25], PLAIN),
            (&[12, 60], PLAIN),
            whole,
            (&[72], behind_its_end),
        ];
        let (mut slot, mut heads) = (0, Vec::new());
        for (number, (lengths, header)) in kinds.iter().enumerate() {
            let at = a.tx[0].buffer(number);
            a.memory.write(at, header);
            a.memory.write(at + 12, &packet(60, number as u32));
            heads.push((slot, at, *lengths));
            slot += lengths.len();
        }
        let [_, available, _] = a.tx[0].places();
        // The first one last.
        for (place, &(slot, at, lengths)) in heads.iter().enumerate().rev() {
            if !packed {
                a.memory.store16(available + 4 + 2 * place, slot as u16);
            }
            pieces(&a.tx[0], slot, at, lengths);
        }
        publish(&a.tx[0], kinds.len() as u16);
        for number in [0, 2, 4, 5] {
            assert_eq!(b.wait_for(0).unwrap().1, packet(60, number));
        }
        until("the last one", || scene.detail(0, "malformed") == "3");
        assert_eq!(scene.failures(0), [""; 0]);
        scene.check();
    }
}

/// DPDK's driver sends a packet of several segments by a table whose entry for the header says that
/// the device may write to it.
#[test]
fn a_table_of_dpdk_s_is_taken() {
    let scene = Scene::new();
    let options = GuestOptions { size: 32, packed: true, ..GuestOptions::default() };
    let (mut a, mut b) = (scene.guest(0, options), scene.guest(1, options));
    let sent = packet(60, 6);
    a.restart_empty(1).unwrap();
    let (at, table) = (a.tx[0].buffer(0), a.tx[0].buffer(1));
    a.memory.write(at, &PLAIN);
    a.memory.write(at + 12, &sent);
    for (entry, (start, len, flags)) in
        [(0, 12, WRITE), (12, 40, NEXT), (52, 20, 0)].into_iter().enumerate()
    {
        let place = table + 16 * entry;
        a.memory.store64(place, guest_address(at + start));
        a.memory.store64(place + 8, flags << 48 | (entry as u64) << 32 | len);
    }
    describe(&a.tx[0], 0, guest_address(table), 48, INDIRECT, 0);
    assert_eq!(b.wait_for(0).unwrap().1, sent);
    assert_eq!(scene.failures(0), [""; 0]);
    scene.check();
}
