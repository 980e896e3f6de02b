//! Sleeping and waking.

use std::time::{Duration, Instant};

use towpath_xsk_client::abi::COPY;

use crate::packets::{PATIENCE, number, packet};
use crate::recorded::same_in_both;
use crate::socket::{Plan, Socket};
use crate::world::End;

fn one(from: &Socket, at: u32) -> towpath_ring::Desc {
    from.place(from.chunk_to_send(at, 64), &packet(at, 64))
}

/// The first packet wakes a sleeping application, and nothing else does.
#[test]
fn a_packet_ends_the_sleep() {
    same_in_both("poll", |world, out| {
        let mut from = world.open(&Plan { is_steered: false, ..Plan::new(End::Far) });
        let mut to = world.open(&Plan::new(End::Near));
        to.fill_half(256);
        say!(out, "nothing sent: {}", to.wait(Duration::from_millis(50)));
        for round in 0..200 {
            let desc = one(&from, round);
            from.send_all(&[desc]);
            assert!(to.wait(PATIENCE), "packet {round} wakes nobody");
            let came = to.receive();
            let numbers: Vec<_> = came.iter().map(|desc| number(&to.bytes(desc))).collect();
            assert_eq!(numbers, [Some(round)]);
            to.fill(came.iter().map(|desc| desc.addr));
            from.completed();
        }
        say!(out, "200 packets, each woke; then: {}", to.wait(Duration::from_millis(50)));
    });
}

/// The wake-up that the flag asks for is enough to send, after a pause of any length.
#[test]
fn sending_after_a_pause() {
    same_in_both("need wakeup", |world, out| {
        for flags in [COPY, Plan::new(End::Near).flags] {
            let mut from = world.open(&Plan { flags, is_steered: false, ..Plan::new(End::Far) });
            let mut to = world.open(&Plan { flags, ..Plan::new(End::Near) });
            to.fill_half(256);
            for (round, pause) in [0, 1, 20, 200].into_iter().enumerate() {
                std::thread::sleep(Duration::from_millis(pause));
                let desc = one(&from, round as u32);
                assert_eq!(from.transmit(&[desc]), 1);
                from.kick();
                let arrived = to.wait(PATIENCE) && to.receive().len() == 1;
                say!(out, "flags {flags}, after {pause} ms: {arrived}");
                let until = Instant::now() + PATIENCE;
                while from.completed().is_empty() {
                    assert!(Instant::now() < until, "not completed");
                }
            }
        }
    });
}

/// A full completion ring holds packets up, and loses none.
#[test]
fn completions_that_nobody_takes() {
    same_in_both("completion ring full", |world, out| {
        let rings = [0, 64, 64, 16];
        let mut from = world.open(&Plan { rings, is_steered: false, ..Plan::new(End::Far) });
        let mut to = world.open(&Plan::new(End::Near));
        to.fill_half(256);
        let descs: Vec<_> = (0..64).map(|at| one(&from, at)).collect();
        say!(out, "queued {}", from.transmit(&descs));
        let mut arrived = 0;
        for round in 0..4 {
            let until = Instant::now() + PATIENCE;
            while arrived < 16 * (round + 1) && Instant::now() < until {
                from.kick();
                arrived += to.receive().len();
            }
            // And no more.
            arrived += to.receive_all().len();
            say!(out, "round {round}: {arrived} arrived, {} wait", from.unsent());
            say!(out, "completed {}", from.completed().len());
        }
    });
}
