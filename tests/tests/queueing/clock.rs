//! Schedulers whose clock jumps: nothing waits for time that was never asked for, and nothing is
//! dropped for a wait that it never had. Programs are run by hand here, at times that the test
//! sets.

use std::time::Duration;

use towpath_bpf::Errno;
use towpath_xdp::{Dequeued, Exec, Frame, FrameQueue, Program, RedirectTarget, Worker};

use super::schedulers::udp;
use super::{load, program_of};

/// The programs of one object, a worker, and a clock.
struct Hand {
    put: Program,
    dequeue: Program,
    worker: Worker,
    now: Duration,
}

impl Hand {
    /// `None` without a compiler.
    fn new(object: &str, dequeue: &str, globals: &[(&str, u64)], now: Duration) -> Option<Hand> {
        let programs = load(object, Exec::Jit, 1, globals)?;
        let (put, dequeue) =
            (program_of(&programs, object).clone(), program_of(&programs, dequeue).clone());
        let mut hand = Hand { put, dequeue, worker: Worker::new(0), now };
        hand.set(now);
        Some(hand)
    }

    fn set(&mut self, now: Duration) {
        self.now = now;
        self.put.surroundings().clock.set(now.as_nanos() as u64);
    }

    fn pass(&mut self, time: Duration) {
        self.set(self.now + time);
    }

    fn put(&mut self, packets: impl IntoIterator<Item = Vec<u8>>) {
        for packet in packets {
            let mut frame = Frame::new(&packet).unwrap();
            let verdict = self.put.run(&mut self.worker, &mut frame).unwrap();
            let Some(RedirectTarget::Entry { map, key, .. }) = verdict.target else { continue };
            frame.set_rank(key);
            let (mut frames, mut refused) = (vec![frame], Vec::<(Frame, Errno)>::new());
            let queue = FrameQueue::of(&map).unwrap();
            queue.push_all(&mut frames, self.now.as_nanos() as u64, &mut refused);
            assert!(refused.is_empty(), "{:?}", refused[0].1);
        }
    }

    /// Runs the dequeue program until it has nothing; gives the packets with their launch times,
    /// and how many were dropped.
    fn take(&mut self) -> (Vec<(Vec<u8>, Duration)>, usize) {
        let (mut taken, mut dropped) = (Vec::new(), 0);
        loop {
            let mut out = Dequeued::default();
            self.dequeue.dequeue(&mut self.worker, (12, 1), 0, &mut out).unwrap();
            assert!(out.faults.is_empty());
            dropped += out.dropped.len();
            let launch = |frame: &Frame| Duration::from_nanos(frame.launch_time().unwrap_or(0));
            taken.extend(out.frames.iter().map(|frame| (frame.to_vec(), launch(frame))));
            if out.frames.is_empty() && out.dropped.is_empty() {
                return (taken, dropped);
            }
        }
    }

    /// Time until `count` packets have left, with a dequeue each millisecond.
    fn time_for(&mut self, count: usize) -> Duration {
        let start = self.now;
        let mut taken = 0;
        while taken < count {
            taken += self.take().0.len();
            assert!(self.now < start + Duration::from_secs(30), "{taken} of {count} left");
            self.pass(Duration::from_millis(1));
        }
        self.now - start
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn packets(count: u16) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|number| udp(0, 1, number, 1000))
}

#[test]
fn a_shaper_goes_on_at_its_rate() {
    let globals = [("bytes_per_second", 1_000_000), ("burst_bytes", 2000)];
    let Some(mut hand) = Hand::new("queue_shaper", "send_at_rate", &globals, 2 * HOUR) else {
        return;
    };
    hand.put(packets(60));
    // Half a millisecond ahead of a burst.
    assert_eq!(hand.take().0.len(), 3);
    let before = hand.time_for(10);
    assert!(before.as_millis().abs_diff(10) <= 1, "{before:?}");
    // An hour later there is a burst and no more.
    hand.pass(HOUR);
    let burst = hand.take().0;
    assert_eq!(burst.len(), 3);
    // An hour earlier nothing waits for that hour, and no launch time is in it.
    hand.set(hand.now - HOUR);
    let (taken, dropped) = hand.take();
    assert!(taken.len() <= 3 && dropped == 0, "{}", taken.len());
    let soon = hand.now + Duration::from_millis(100);
    assert!(taken.iter().all(|(_, launch)| *launch <= soon), "{taken:?}");
    let after = hand.time_for(10);
    assert!(after.as_millis().abs_diff(10) <= 3, "{after:?}");
}

#[test]
fn a_clock_that_has_just_begun_is_no_reason_to_wait() {
    // A bucket that takes longer to fill than the machine is up.
    let globals = [("bytes_per_second", 100), ("burst_bytes", 1514)];
    let up = Duration::from_millis(20);
    let Some(mut hand) = Hand::new("queue_shaper", "send_at_rate", &globals, up) else { return };
    hand.put(packets(1));
    assert_eq!(hand.take().0.len(), 1);
    let Some(mut hand) = Hand::new("queue_classes", "send_by_class", &[], up / 1000) else {
        return;
    };
    hand.put(packets(3));
    assert_eq!(hand.take().0.len(), 3);
}

#[test]
fn classes_go_on_at_their_rates() {
    let Some(mut hand) = Hand::new("queue_classes", "send_by_class", &[], 2 * HOUR) else { return };
    let map = hand.put.maps().by_name("rates").unwrap();
    for (class, rate) in (0u32..).zip([[0, 100_000], [0, 0], [0, 0], [0, 0], [0, 1_000_000]]) {
        let value = rate.iter().flat_map(|it: &u64| it.to_le_bytes()).collect();
        let value = towpath_maps::Value::One(value);
        map.user().update(&class.to_le_bytes(), &value, 0).unwrap();
    }
    hand.put(packets(30));
    let before = hand.time_for(3);
    hand.set(hand.now - HOUR);
    let after = hand.time_for(10);
    assert!(after.as_millis().abs_diff(100) <= 12, "{before:?}, then {after:?}");
    hand.pass(HOUR);
    assert!(hand.take().0.len() <= 2);
}

#[test]
fn a_fair_queue_drops_nothing_that_did_not_wait() {
    let Some(mut hand) = Hand::new("queue_fair", "send_in_turn", &[], 2 * HOUR) else { return };
    hand.put(packets(20));
    hand.set(hand.now - HOUR);
    let (first, dropped) = hand.take();
    assert_eq!((first.len(), dropped), (20, 0));
    // The clock goes back while the program drops late packets: it starts again.
    let wait = |hand: &mut Hand| {
        hand.put(packets(40));
        hand.pass(Duration::from_millis(10));
        let mut dropped = 0;
        for _ in 0..30 {
            let mut out = Dequeued::default();
            hand.dequeue.dequeue(&mut hand.worker, (12, 1), 0, &mut out).unwrap();
            dropped += out.dropped.len();
            hand.pass(Duration::from_millis(20));
        }
        dropped
    };
    let usual = wait(&mut hand);
    assert!((3..=15).contains(&usual), "{usual} dropped");
    hand.set(hand.now - HOUR);
    let (rest, dropped) = hand.take();
    assert!(rest.len() > 1 && dropped == 0, "{dropped}");
    let again = wait(&mut hand);
    assert!(again.abs_diff(usual) <= 3, "{usual}, then {again}");
    // An hour is no reason to drop all that waited for it at once.
    hand.pass(HOUR);
    let (rest, dropped) = hand.take();
    assert!(rest.len() > 1 && dropped <= 2, "{dropped}");
}
