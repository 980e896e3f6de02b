//! As many ports and destinations as there can be.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use towpath_udp::{TxDatagram, UdpStack};

use super::owners::Owner;
use super::traffic::Ends;
use super::world::World;
use crate::lab::{FAR, NEAR, PATIENCE, at, errno, wait_for};

#[test]
fn ports_are_bound_until_there_is_no_room() {
    let Some(world) = World::new(Owner::Afxdp(1)) else { return };
    let ends = Ends::new(&world);
    ends.exchange_again("the start");
    let descriptors = world.daemon().descriptors();
    for _ in 0..3 {
        let (stack, start) = (UdpStack::open(ends.options()).unwrap(), Instant::now());
        let (mut bound, mut refusal) = (Vec::new(), None);
        for port in 10_000..20_000 {
            match stack.bind(at(NEAR[1], port)) {
                Ok(socket) => bound.push(socket),
                Err(error) => refusal = Some(errno(&error)),
            }
        }
        println!("{} of 10000 ports bound in {:?}", bound.len(), start.elapsed());
        assert_eq!(refusal, Some(Errno::NOBUFS));
        assert!(bound.len() > 500, "{}", bound.len());
        // Others go on, and the daemon answers.
        ends.exchange(20);
        world.reload_well();
        let start = Instant::now();
        drop((bound, stack));
        wait_for("ports", || {
            let sockets = &ends.sockets().stack;
            let all = [10_000, 10_100, 10_400].map(|port| sockets.bind(at(NEAR[1], port)));
            all.iter().all(Result::is_ok)
        });
        println!("all of them free after {:?}", start.elapsed());
        ends.exchange(5);
        assert!(world.daemon().descriptors() <= descriptors);
    }
}

/// Many hosts behind one router.
#[test]
fn ten_thousand_destinations() {
    let Some(world) = World::new(Owner::Afxdp(1)) else { return };
    world.near(&format!("ip route add 10.80.0.0/16 via {} dev stack0", FAR[0]));
    world.far("ip route add local 10.80.0.0/16 dev lo");
    let ends = Ends::new(&world);
    ends.exchange_again("the start");
    let there = world.kernel("0.0.0.0:9");
    let stack = UdpStack::open(ends.options()).unwrap();
    let socket = stack.bind(at(NEAR[1], 0)).unwrap();
    let mut seen = std::collections::HashSet::new();
    let destination = |number: u32| format!("10.80.{}.{}", number >> 8, number & 0xff);
    let start = Instant::now();
    for number in 0..10_000u32 {
        let to = at(&destination(number), 9);
        let payload = number.to_ne_bytes();
        wait_for("room", || match socket.send_batch(&[TxDatagram::new(&payload, to)]) {
            Ok(count) => count == 1,
            Err(error) => panic!("{error}"),
        });
        for it in there.received() {
            assert_eq!(it.destination.ip(), at(&destination(number_of(&it.payload)), 9).ip());
            assert!(seen.insert(number_of(&it.payload)), "twice");
        }
    }
    wait_for("datagrams", || {
        seen.extend(there.received().iter().map(|it| number_of(&it.payload)));
        seen.len() == 10_000
    });
    println!("10000 destinations were found in {:?}", start.elapsed());
    assert_eq!(stack.statistics().destinations, 10_000);
    // A new one is found as quickly as before, and others are not disturbed.
    std::thread::sleep(Duration::from_secs(2));
    let start = Instant::now();
    socket.send_batch(&[TxDatagram::new(&[7; 4], at("10.80.200.1", 9))]).unwrap();
    there.receive(1);
    let (one, start) = (start.elapsed(), Instant::now());
    ends.sockets().stack.bind(at(NEAR[0], 0)).unwrap();
    println!("with 10000 a new one is found in {one:?}, a port bound in {:?}", start.elapsed());
    assert!(one < Duration::from_millis(500), "{one:?}");
    ends.exchange(20);
    // Nobody asks for destinations that are not in use: the daemon rests.
    let before = world.daemon().cpu_time();
    std::thread::sleep(Duration::from_secs(3));
    let busy = world.daemon().cpu_time() - before;
    println!("the daemon worked {busy:?} in 3 s without traffic");
    assert!(busy < Duration::from_millis(600), "{busy:?}");
}

/// Somebody forges the addresses of many silent neighbours, and the application answers all.
#[test]
fn answers_to_forged_neighbours_disturb_nobody() {
    let Some(world) = World::new(Owner::Afxdp(1)) else { return };
    world.near("ip addr add 10.81.0.2/16 dev stack0");
    let ends = Ends::new(&world);
    ends.exchange_again("the start");
    let stack = UdpStack::open(ends.options()).unwrap();
    let socket = stack.bind(at("0.0.0.0", 0)).unwrap();
    let start = Instant::now();
    let mut errors = std::collections::BTreeMap::<i32, usize>::new();
    while start.elapsed() < Duration::from_secs(4) {
        let number = fastrand::u16(256..);
        let to = at(&format!("10.81.{}.{}", number >> 8, number & 0xff), 9);
        for _ in 0..3 {
            if let Err(error) = socket.send_batch(&[TxDatagram::new(&[9; 1200], to)]) {
                *errors.entry(errno(&error).raw_os_error()).or_default() += 1;
            }
        }
        if number % 64 == 0 {
            ends.exchange(1);
        }
    }
    let destinations = stack.statistics().destinations;
    println!("{destinations} destinations, errors {errors:?}");
    let start = Instant::now();
    drop(ends.sockets().stack.bind(at(NEAR[0], 0)).unwrap());
    let bound = start.elapsed();
    println!("a port is bound in {bound:?} meanwhile");
    assert!(bound < PATIENCE / 30, "{bound:?}");
    ends.exchange(20);
}

fn number_of(payload: &[u8]) -> u32 {
    u32::from_ne_bytes(payload.try_into().unwrap())
}
