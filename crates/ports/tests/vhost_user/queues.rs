//! Queues that stop, change and come while others run.

use towpath_engine::counters::DropReason;
use towpath_engine::port::Device as _;
use towpath_ports::vhost_user::{self, VhostUser};
use towpath_workload::virtio::{Guest, GuestOptions, Layout};
use towpath_xdp::{Arena, Pool};

use crate::PLAIN;
use crate::scene::{Scene, packet, socket, until};

/// Sends one way and the other, by these pairs.
#[track_caller]
fn must_pass(a: &mut Guest, b: &mut Guest, pairs: std::ops::Range<u32>, number: u32) {
    for pair in pairs {
        let sent = packet(100, number + pair);
        assert!(a.send(pair, &PLAIN, &sent));
        let mut received = None;
        until("it comes by one of the pairs", || {
            received = (0..b.rx.len() as u32).find_map(|pair| b.receive(pair));
            received.is_some()
        });
        assert_eq!(received.unwrap().1, sent);
    }
}

#[test]
fn a_queue_is_reset_with_another_size_while_others_run() {
    for packed in [false, true] {
        let scene = Scene::with(1, |options| options.queues = 2);
        let options = GuestOptions { pairs: 2, packed, ..GuestOptions::default() };
        let (mut a, mut b) = (scene.guest(0, options), scene.guest(1, options));
        must_pass(&mut a, &mut b, 0..2, 0);
        for (round, size) in [64, 16, 128, 256].into_iter().enumerate() {
            // The guest's transmit queue of pair 1; pair 0 keeps working.
            a.front.stop_queue(3).unwrap();
            must_pass(&mut a, &mut b, 0..1, 100);
            a.resize(3, size).unwrap();
            must_pass(&mut a, &mut b, 0..2, 200);
            // Its receive queue of pair 0.
            b.resize(0, size).unwrap();
            must_pass(&mut a, &mut b, 0..2, 300);
            assert!(scene.detail(0, "queues").contains(&format!(" {size}")), "round {round}");
        }
        assert_eq!(scene.failures(0), [""; 0]);
        scene.check();
    }
}

#[test]
fn pairs_come_and_go_while_frames_flow() {
    let scene = Scene::with(2, |options| options.queues = 4);
    let options = GuestOptions { pairs: 4, ..GuestOptions::default() };
    let (mut a, mut b) = (scene.guest(0, options), scene.guest(1, options));
    let set_pairs = |guest: &mut Guest, count: u32| {
        for index in 0..8 {
            guest.front.enable(index, index / 2 < count).unwrap();
        }
    };
    for count in [1, 4, 2, 3, 1, 4] {
        // As a driver does to have queues for `XDP_TX` of its own, and to give them back.
        set_pairs(&mut a, count);
        set_pairs(&mut b, count);
        for number in 0..40 {
            must_pass(&mut a, &mut b, 0..count, 1000 * count + number);
        }
    }
    // Packets of a disabled queue are not forwarded, but their buffers come back.
    set_pairs(&mut a, 2);
    assert!(a.send(3, &PLAIN, &packet(60, 1)));
    until("it comes back", || {
        a.tx[3].reap();
        a.tx[3].outstanding() == 0
    });
    until("it is counted", || scene.detail(0, "sent_while_disabled") == "1");
    must_pass(&mut a, &mut b, 0..2, 5);
    scene.check();
}

#[test]
fn a_flow_comes_back_by_the_pair_that_sent_it() {
    let scene = Scene::with(1, |options| options.queues = 4);
    let options = GuestOptions { pairs: 4, ..GuestOptions::default() };
    let (mut a, mut b) = (scene.guest(0, options), scene.guest(1, options));
    for number in 0..64u8 {
        let pair = u32::from(number % 4);
        let mut udp = packet(60, 0);
        udp[12..14].copy_from_slice(&[8, 0]);
        (udp[14], udp[20], udp[21], udp[23]) = (0x45, 0, 0, 17);
        udp[26..38].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 100, number, 0, 9]);
        assert!(a.send(pair, &PLAIN, &udp));
        let mut got = None;
        until("it arrives", || {
            got = (0..4).find_map(|pair| b.receive(pair));
            got.is_some()
        });
        udp[26..38].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1, 0, 9, 100, number]);
        assert!(b.send(3 - pair, &PLAIN, &udp));
        assert_eq!(a.wait_for(pair).expect("by the same pair").1, udp);
    }
}

#[test]
fn what_a_guest_does_not_take_is_dropped_as_ring_full() {
    let scene = Scene::new();
    let options = GuestOptions { size: 16, ..GuestOptions::default() };
    let mut a = scene.guest(0, options);
    // It never receives: 16 frames wait in its ring.
    let _b = scene.guest(1, options);
    for number in 0..100 {
        until("its ring is worked on", || a.send(0, &PLAIN, &packet(60, number)));
    }
    let full = || {
        scene.engine.read(|_, snapshot| {
            let counters = &snapshot.port(scene.ports[1]).unwrap().opened.counters;
            let reason = DropReason::RingFull as usize;
            let count = |of: &towpath_engine::counters::PortCounters| {
                of.drops[reason].get() + of.tx_drops[reason].get()
            };
            counters.iter().map(count).sum::<u64>()
        })
    };
    until("84 are dropped", || full() == 84);
    scene.check();
}

/// A chain of several descriptors takes one frame, however many places of a packed ring it takes.
#[test]
fn credit_is_buffers_and_not_places() {
    let arena = Arena::new(64).unwrap();
    let mut pool = Pool::new(&arena);
    for packed in [false, true] {
        for (layout, buffers) in
            [(Layout::Single, 16), (Layout::Chained, 8), (Layout::Indirect, 16)]
        {
            let options = vhost_user::Options::new(socket());
            let device = VhostUser::new(options.clone()).unwrap();
            let _rx = device.open_rx(0, &arena).unwrap();
            let mut tx = device.open_tx(0, &arena).unwrap();
            device.set_up(true);
            let shape = GuestOptions { size: 16, packed, layout, ..GuestOptions::default() };
            let _guest = Guest::connect(&options.path, shape).unwrap();
            until("the guest's queues run", || device.link());
            assert_eq!(tx.credit(), buffers, "packed: {packed}, {layout:?}");
            let mut frames: Vec<_> =
                (0..20).map(|number| pool.frame(&packet(60, number)).unwrap().unwrap()).collect();
            let few = &mut frames.split_off(17);
            tx.transmit(few, &mut pool).unwrap();
            assert_eq!((few.len(), tx.credit()), (0, buffers - 3));
            // It takes no more than it said.
            tx.transmit(&mut frames, &mut pool).unwrap();
            assert_eq!((frames.len(), tx.credit()), (17 - (buffers - 3), 0));
            pool.give_all(&mut frames);
        }
    }
}
