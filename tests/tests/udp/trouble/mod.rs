//! Products of the owner of a port, an event, and the moment at which it happens.
//!
//! After each event what still should work works: datagrams reach their socket, once and unchanged.
//! What cannot work gives an error, in time. Nothing is left behind in the daemon.
//!
//! Some events happen in every run of the tests. `make troubles` has all of them happen at all
//! moments (`TOWPATH_UDP_ALL`), and then random pairs: `TOWPATH_UDP_EVENTS` is their number, and
//! `TOWPATH_UDP_SEED` their seed. `TOWPATH_UDP_ONLY` names one event.

mod connections;
mod events;
mod limits;
mod owners;
mod rights;
mod traffic;
mod world;

use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;

use self::events::{EVENTS, Event, Expect, FEW};
use self::owners::Owner;
use self::traffic::Ends;
use self::world::World;
use crate::lab::{number, wait_for};

/// The traffic while an event happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Idle,
    /// Datagrams of which none may be lost, where the event allows that.
    Flow,
    /// As many as possible in both directions.
    Flood,
}

#[test]
fn afxdp() {
    products(Owner::Afxdp(1));
}

#[test]
fn afxdp_with_queues() {
    products(Owner::Afxdp(2));
}

#[test]
fn packet() {
    products(Owner::Packet);
}

#[test]
fn tap() {
    products(Owner::Tap);
}

#[test]
fn pair() {
    products(Owner::Pair);
}

#[test]
fn bond() {
    products(Owner::Bond);
}

/// Events at moments, and then random pairs of events.
fn products(owner: Owner) {
    let Some(mut world) = World::new(owner) else { return };
    let only = std::env::var("TOWPATH_UDP_ONLY").ok();
    let is_all = only.is_some() || std::env::var_os("TOWPATH_UDP_ALL").is_some();
    let (events, moments, pairs) = match is_all {
        true => (&EVENTS[..], &[Moment::Idle, Moment::Flow, Moment::Flood][..], 5),
        false => (&FEW[..], &[Moment::Flow][..], 0),
    };
    let ends = Ends::new(&world);
    ends.exchange_again("the start");
    let mut descriptors = world.daemon().descriptors();
    for event in events.iter().copied().filter(|event| event.is_possible(owner)) {
        let is_restart = matches!(event, Event::DaemonKilled | Event::DaemonEnded);
        if only.as_ref().is_some_and(|only| *only != format!("{event:?}")) {
            continue;
        }
        for moment in moments {
            eprintln!("{owner:?} {event:?} {moment:?}");
            disturb(&mut world, &ends, event, *moment);
            check(&mut world, &ends);
            // Some are opened once: by the first such event, or by another daemon.
            if *moment == moments[0] || is_restart {
                descriptors = world.daemon().descriptors();
            }
            // Devices are closed a moment later.
            wait_for("end of its descriptors", || world.daemon().descriptors() <= descriptors);
        }
    }
    let mut rng = Rng::with_seed(number("TOWPATH_UDP_SEED", 34) as u64);
    for _ in 0..number("TOWPATH_UDP_EVENTS", pairs) {
        let event = std::iter::repeat_with(|| EVENTS[rng.usize(..EVENTS.len())]);
        let pair: Vec<_> = event.filter(|event| event.is_possible(owner)).take(2).collect();
        eprintln!("{owner:?} {pair:?}");
        disturb(&mut world, &ends, pair[0], Moment::Flood);
        disturb(&mut world, &ends, pair[1], Moment::Idle);
        check(&mut world, &ends);
    }
    drop(ends);
    wait_for("end of all sockets", || world.daemon().sockets().is_empty());
}

/// Has an event begin and end.
fn disturb(world: &mut World, ends: &Ends, event: Event, moment: Moment) {
    let (is_over, expect) = (AtomicBool::new(false), event.expect());
    let is_lossless = expect == Expect::Nothing && moment == Moment::Flow;
    let before = ends.sockets();
    std::thread::scope(|scope| {
        let _ends_all = OnDrop(&is_over);
        match moment {
            Moment::Idle => {}
            Moment::Flow if is_lossless => drop(scope.spawn(|| ends.flow(&is_over))),
            Moment::Flow => drop(scope.spawn(|| ends.drain_until(&is_over))),
            Moment::Flood => {
                scope.spawn(|| ends.flood(&is_over));
                scope.spawn(|| ends.drain_until(&is_over));
            }
        }
        event.begin(world, ends);
        match expect {
            Expect::Nothing if is_lossless => {}
            Expect::Nothing => assert!(!ends.exchange_again(&format!("{event:?}"))),
            Expect::Loss => {}
            Expect::Silence => {
                ends.ledger.shut(true);
                (0..20).for_each(|_| drop(ends.send(100)));
                ends.ledger.shut(false);
            }
            Expect::End => ends.check_gone(),
        }
        event.end(world);
        if !is_lossless {
            ends.exchange_again(&format!("the end of {event:?}"));
        }
    });
    let is_same = std::sync::Arc::ptr_eq(&before, &ends.sockets());
    assert_eq!(is_same, expect != Expect::End, "whether the sockets live on after {event:?}");
    ends.exchange(5);
}

/// Sets a flag at its end, also when a thread panics that others wait for.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Nothing is left behind.
fn check(world: &mut World, ends: &Ends) {
    world.daemon.as_mut().unwrap().check();
    let queues = ends.sockets().stack.queues();
    let daemon = world.daemon();
    wait_for("end of other sockets", || {
        let sockets = daemon.sockets();
        let has_addresses = |it: &serde_json::Value| it["udp"].as_array().unwrap().len() == 3;
        sockets.len() == queues && sockets.iter().all(has_addresses)
    });
    wait_for("all frames", || daemon.missing() == 0);
    let failures = daemon.get("/v1/status")["failures"].clone();
    assert_eq!(failures, serde_json::json!([]));
}
