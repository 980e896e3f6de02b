//! A guest one of whose processors writes to its rings at random, while another uses them.
//!
//! `TOWPATH_RACE_SECONDS` makes it longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use towpath_workload::random::Random;
use towpath_workload::virtio::{Guest, GuestMemory, GuestOptions, Layout, Queue};

use crate::PLAIN;
use crate::scene::{Scene, packet, until};

#[test]
fn no_race_of_a_guest_with_itself_hurts_anybody_else() {
    let seconds = std::env::var("TOWPATH_RACE_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(4)) / 2;
    for packed in [false, true] {
        race(packed, time);
    }
}

fn race(packed: bool, time: Duration) {
    // Two of its own, and two that have nothing to do with it.
    let (bad, good) = (Scene::new(), Scene::with(1, |_| {}));
    let plain = GuestOptions::default();
    let (mut a, mut b) = (good.guest(0, plain), good.guest(1, plain));
    let layouts = [Layout::Single, Layout::Chained, Layout::Indirect];
    let end = Instant::now() + time;
    let (mut rounds, mut passed) = (0u32, 0u32);
    while Instant::now() < end {
        let layout = layouts[rounds as usize % 3];
        let options = GuestOptions { size: 16, packed, layout, ..plain };
        let mut guest = bad.guest(0, options);
        let peer = bad.guest(1, plain);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (memory, ring) = (Arc::clone(&guest.memory), guest.tx[0].places()[0]);
            let (seed, stop) = (u64::from(rounds) << 8, &stop);
            scope.spawn(move || mutate(&memory, [0, ring], seed, stop));
            let _stop = SetWhenDropped(stop);
            let mut guest = Unchecked(&mut guest);
            for number in 0..60 {
                guest.stir(number);
                assert!(a.send(0, &PLAIN, &packet(64, number)));
                let (_, got) = b.wait_for(0).expect("nobody else's traffic is affected");
                assert_eq!(got, packet(64, number));
                passed += 1;
            }
        });
        drop((guest, peer));
        rounds += 1;
    }
    until("the guests are gone", || bad.detail(0, "front_end") == "waiting");
    assert!(rounds > 1 && passed > 60, "{rounds} rounds");
    bad.check();
    good.check();
}

/// Ends the other processor, also where an assertion fails: the scope waits for it.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A driver that ignores errors in its own rings.
struct Unchecked<'a>(&'a mut Guest);

impl Unchecked<'_> {
    /// Makes buffers available, as far as there seem to be any, and kicks.
    fn stir(&mut self, number: u32) {
        for queue in [&mut self.0.tx[0], &mut self.0.rx[0]] {
            let at = queue.buffer(number as usize % queue.capacity());
            queue.memory.write(at + 12, &packet(60, number));
            queue.post_again(100);
            queue.publish();
        }
        self.0.kick(0);
        self.0.kick(1);
    }
}

/// Writes valid and invalid numbers to both rings and their first buffers.
fn mutate(memory: &GuestMemory, rings: [usize; 2], seed: u64, stop: &AtomicBool) {
    let mut random = Random::new(seed);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..64 {
            let ring = rings[random.below(2)];
            // Descriptors; the driver's and the device's half; tables; headers.
            let starts = [0, 16 << 10, 20 << 10, 32 << 10, Queue::RING_BYTES];
            let at = ring + starts[random.below(5)] + random.below(80) * 2;
            let value = match random.below(4) {
                0 => random.below(20) as u16,
                1 => 1 << random.below(16),
                2 => memory.load16(at).wrapping_add(1),
                _ => random.below(1 << 16) as u16,
            };
            memory.store16(at, value);
        }
        std::thread::yield_now();
    }
}
