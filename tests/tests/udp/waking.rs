//! Sleepers are woken, by datagrams that others read and by room that others wait for as well.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use towpath_udp::{Options, TxDatagram, UdpSocket, UdpStack};

use crate::kernel::Kernel;
use crate::lab::{FAR, Lab, NEAR, PATIENCE, at, find_way, number, wait_for};

#[test]
fn a_datagram_that_another_socket_reads_wakes_its_owner() {
    let Some(lab) = Lab::acquainted("") else { return };
    let stack = lab.stack();
    let [reader, sleeper] = [6700, 6701].map(|port| stack.bind(at(NEAR[0], port)).unwrap());
    let there = lab.kernel(&at(FAR[0], 0).to_string());
    let (rounds, received) = (number("TOWPATH_UDP_ROUNDS", 3000), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while received.load(Ordering::Acquire) < rounds {
                assert!(sleeper.wait_recv(Some(PATIENCE)).unwrap(), "not woken");
                let count = sleeper.recv_batch(64, |it| assert_eq!(it.payload, b"wake up"));
                received.fetch_add(count, Ordering::Release);
            }
        });
        for round in 0..rounds {
            there.send_to(b"wake up", sleeper.local_addr());
            // This one reads all the time, or sleeps as well.
            wait_for("datagram", || {
                if round % 2 == 0 {
                    reader.wait_recv(Some(Duration::from_millis(1))).unwrap();
                }
                assert_eq!(reader.recv_batch(64, |_| {}), 0);
                received.load(Ordering::Acquire) > round
            });
        }
    });
}

#[test]
fn wake_ups_for_others_do_not_end_a_wait() {
    let Some(lab) = Lab::acquainted("") else { return };
    let stack = lab.stack();
    let [idle, busy] = [6710, 6711].map(|port| stack.bind(at(NEAR[0], port)).unwrap());
    let there = lab.kernel(&at(FAR[0], 0).to_string());
    let (is_over, received) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut waits = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                there.send_to(b"for the other one", busy.local_addr());
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                busy.wait_recv(Some(PAUSE)).unwrap();
                received.fetch_add(busy.recv_batch(64, |_| {}), Ordering::Relaxed);
            }
        });
        let start = Instant::now();
        // A panic here would wait for the other threads.
        while start.elapsed() < 10 * PAUSE || received.load(Ordering::Relaxed) == 0 {
            let start = Instant::now();
            // A datagram that nobody has read may be for this one.
            let may_have_one = idle.wait_recv(Some(PAUSE)).unwrap();
            waits.push((may_have_one, start.elapsed()));
            idle.recv_batch(64, |_| {});
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let too_short = |(may_have_one, time): &&(bool, Duration)| !may_have_one && *time < PAUSE;
    assert_eq!(waits.iter().find(too_short), None, "of {}", waits.len());
}

#[test]
fn a_socket_that_waits_for_room_still_wakes_its_receiver() {
    let Some(lab) = Lab::acquainted("") else { return };
    let small = Options { entries: 64, chunks: 128, ..lab.options() };
    let stack = UdpStack::open(&small).unwrap();
    let socket = stack.bind(at(NEAR[0], 6720)).unwrap();
    let there = lab.kernel(&at(FAR[0], 0).to_string());
    find_way(&socket, &there, FAR[0]);
    let (rounds, received) = (number("TOWPATH_UDP_ROUNDS", 3000), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while received.load(Ordering::Acquire) < rounds {
                assert!(socket.wait_recv(Some(PATIENCE)).unwrap(), "not woken");
                let count = socket.recv_batch(64, |it| assert_eq!(it.payload, b"wake up"));
                received.fetch_add(count, Ordering::Release);
            }
        });
        scope.spawn(|| {
            while received.load(Ordering::Acquire) < rounds {
                fill(&socket, &there, 10);
            }
        });
        for round in 0..rounds {
            there.send_to(b"wake up", socket.local_addr());
            wait_for("datagram", || received.load(Ordering::Acquire) > round);
        }
    });
}

#[test]
fn who_waits_for_room_is_woken() {
    let Some(lab) = Lab::acquainted("") else { return };
    let small = Options { entries: 64, chunks: 128, ..lab.options() };
    let (one, other) = (UdpStack::open(&small).unwrap(), UdpStack::open(&small).unwrap());
    let there = lab.kernel(&at(FAR[0], 0).to_string());
    let bind = |stack: &UdpStack, port| stack.bind(at(NEAR[0], port)).unwrap();
    // Two share rings, one has rings of its own.
    let sockets = [bind(&one, 6800), bind(&one, 6801), bind(&other, 6802)];
    sockets.iter().for_each(|socket| find_way(socket, &there, FAR[0]));
    let rounds = number("TOWPATH_UDP_ROUNDS", 3000);
    let blocked: usize = std::thread::scope(|scope| {
        let fill = |socket| {
            let there = &there;
            scope.spawn(move || fill(socket, there, rounds))
        };
        let threads = sockets.each_ref().map(fill);
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert!(blocked > rounds / 10, "only {blocked} of {rounds} rounds found full rings");
    let sent = one.statistics().sent + other.statistics().sent;
    assert_eq!(sent, 3 + 3 * 64 * rounds as u64);
}

/// Sends runs that fill the ring; returns how often there was no room.
fn fill(socket: &UdpSocket, there: &Kernel, rounds: usize) -> usize {
    let to = at(FAR[0], there.port());
    let run = TxDatagram { segment_size: Some(1), ..TxDatagram::new(&[1; 64], to) };
    let (mut sent, mut blocked) = (0, 0);
    while sent < rounds {
        match socket.send_batch(&[run]) {
            Ok(_) => sent += 1,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                blocked += 1;
                assert!(socket.wait_send(Some(PATIENCE)).unwrap(), "not woken");
            }
            Err(error) => panic!("{error}"),
        }
    }
    blocked
}

#[test]
fn who_waits_while_nothing_can_leave_is_woken_later() {
    let Some(lab) = Lab::acquainted("") else { return };
    let small = Options { entries: 64, chunks: 128, ..lab.options() };
    let stack = UdpStack::open(&small).unwrap();
    let socket = stack.bind(at(NEAR[0], 6900)).unwrap();
    let there = lab.kernel(&at(FAR[0], 0).to_string());
    let run =
        TxDatagram { segment_size: Some(1), ..TxDatagram::new(&[1; 64], at(FAR[0], there.port())) };
    for _ in 0..3 {
        lab.far.run("ip link set far down").unwrap();
        for _ in 0..100 {
            let _full = socket.send_batch(&[run]);
        }
        lab.far.run("ip link set far up").unwrap();
        wait_for("datagram", || {
            if socket.send_batch(&[run]).is_err() {
                socket.wait_send(Some(Duration::from_secs(1))).unwrap();
            }
            !there.received().is_empty()
        });
    }
}

const PAUSE: Duration = Duration::from_millis(100);
