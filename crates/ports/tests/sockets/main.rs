//! Frames to and from AF_XDP sockets, seen by the sockets' packets and the engine's counters.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]

mod fake;
#[path = "../engine/wire.rs"]
mod wire;

use std::sync::Arc;
use std::time::Duration;

use fake::Fake;
use towpath_bpf::program::{Linked, MapType};
use towpath_engine::counters::DropReason;
use towpath_engine::{Engine, Hook, Link, QueueId, UpperName};
use towpath_workload::{random::Random, small};
use towpath_xdp::Program;
use wire::{Wire, attach, engine, load, packet, set_target, settled, wait_for};

const PASS: u32 = 1 << 2;
const HERE: QueueId = QueueId { ifindex: 11, queue: 0 };
const ELSEWHERE: QueueId = QueueId { ifindex: 12, queue: 0 };

/// An engine with a port `a` whose program redirects by key and flags in the packet, and with a
/// port `b` above it.
struct Lab {
    engine: Engine,
    a: Wire,
    b: Wire,
    program: Program,
}

impl Lab {
    fn new() -> Lab {
        Lab::with(small::redirect_map_by_bytes(MapType::Xskmap, 8))
    }

    fn with(program: Linked) -> Lab {
        let engine = engine(1);
        let a = Wire::new(&engine, "a", HERE.ifindex);
        let b = Wire::new(&engine, "b", ELSEWHERE.ifindex);
        let upper = UpperName::Named("b".to_owned());
        engine.change(|config| config.set_upper(a.port, upper)).unwrap();
        let program = load(program);
        attach(&engine, a.port, &[(&program, PASS)]);
        Lab { engine, a, b, program }
    }

    fn socket(&self, id: u32, place: QueueId, room: usize) -> Arc<Fake> {
        let fake = Fake::new(id, place, room);
        self.engine.change(|config| config.add_socket(Arc::clone(&fake) as _)).unwrap();
        fake
    }

    fn set(&self, key: u32, id: u32) {
        if id != 0 {
            return set_target(&self.program, key, [id]);
        }
        let map = self.program.maps().by_name("targets").unwrap();
        map.user().delete(&key.to_ne_bytes()).unwrap();
    }

    fn arrive(&mut self, packets: &[Vec<u8>]) {
        let before = self.count(|counters| counters.rx_packets.get());
        self.a.send(packets);
        settled(&self.engine, self.a.port, before + packets.len() as u64);
    }

    fn drops(&self, why: DropReason) -> u64 {
        self.count(|counters| counters.drops[why as usize].get())
    }

    fn count(&self, what: impl Fn(&towpath_engine::counters::PortCounters) -> u64) -> u64 {
        self.engine.read(|_, snapshot| {
            snapshot.port(self.a.port).unwrap().opened.counters.iter().map(&what).sum()
        })
    }
}

/// Numbered packets with these flags and this key.
fn packets(flags: u8, key: u8, numbers: std::ops::Range<u8>) -> Vec<Vec<u8>> {
    let numbered = |number| {
        let mut packet = packet(flags, key);
        packet[16] = number;
        packet
    };
    numbers.map(numbered).collect()
}

#[test]
fn a_burst_reaches_its_socket_in_one_call() {
    let mut lab = Lab::new();
    let socket = lab.socket(5, HERE, 1000);
    lab.set(1, 5);
    let sent = packets(0, 1, 0..50);
    lab.arrive(&sent);
    assert_eq!(socket.state().received, sent);
    assert!(socket.state().calls < 50, "{} calls", socket.state().calls);
    assert_eq!(lab.engine.conservation().delivered, 50);
}

#[test]
fn bpf_redirect_xsk_is_bpf_redirect_map() {
    let outcome = |program: Linked, entry: Option<u32>| {
        let mut lab = Lab::with(program);
        let socket = lab.socket(5, HERE, 1000);
        if let Some(key) = entry {
            lab.set(key, 5);
        }
        lab.arrive(&packets(0, 1, 0..9));
        let received = socket.state().received.len();
        (
            received,
            lab.b.received().len(),
            lab.drops(DropReason::Aborted),
            lab.drops(DropReason::Verdict),
        )
    };
    let (pass, drop, unknown) = (2, 1, 4);
    for (entry, flags, expected) in [
        (Some(1), 0, (9, 0, 0, 0)),
        (Some(2), pass, (0, 9, 0, 0)),
        (None, drop, (0, 0, 0, 9)),
        (Some(1), unknown, (0, 0, 9, 0)),
    ] {
        let xsk = outcome(small::redirect_xsk(MapType::Xskmap, 8, 1, flags), entry);
        let map = outcome(small::redirect_map(MapType::Xskmap, 8, 1, flags), entry);
        assert_eq!((xsk, map), (expected, expected), "entry {entry:?}, flags {flags}");
    }
    let device = small::redirect_xsk(MapType::Devmap, 8, 1, pass);
    assert_eq!(outcome(device, None), (0, 0, 9, 0), "no map of sockets");
}

#[test]
fn what_a_socket_does_not_take_is_dropped_and_not_passed() {
    let mut lab = Lab::new();
    let socket = lab.socket(5, HERE, 3);
    let other = lab.socket(6, ELSEWHERE, 100);
    lab.set(1, 5);
    lab.set(2, 6);
    lab.set(3, 77);
    let to_pass = 2;
    lab.arrive(&packets(to_pass, 1, 0..5));
    assert_eq!(lab.drops(DropReason::SocketFull), 2, "no room");
    lab.arrive(&packets(to_pass, 2, 0..5));
    lab.arrive(&packets(to_pass, 3, 0..5));
    assert_eq!(lab.drops(DropReason::NoSocket), 10, "another port's, and nobody's");
    socket.state().place = None;
    lab.arrive(&packets(to_pass, 1, 0..2));
    assert_eq!(lab.drops(DropReason::NoSocket), 12, "unbound");
    assert_eq!(lab.b.received(), Vec::<Vec<u8>>::new());
    // Only an empty slot has the fallback.
    lab.arrive(&packets(to_pass, 4, 0..2));
    assert_eq!(lab.b.received(), packets(to_pass, 4, 0..2));
    assert_eq!(other.state().received.len(), 0);
    assert_eq!(socket.state().received, packets(to_pass, 1, 0..3));
}

#[test]
fn a_socket_that_was_removed_gets_nothing() {
    let mut lab = Lab::new();
    let socket = lab.socket(5, HERE, 100);
    lab.set(1, 5);
    lab.engine
        .change(|config| {
            config.remove_socket(5);
            Ok(())
        })
        .unwrap();
    lab.arrive(&packets(0, 1, 0..5));
    assert_eq!((socket.state().calls, lab.drops(DropReason::NoSocket)), (0, 5));
    lab.engine.change(|config| config.add_socket(Arc::clone(&socket) as _)).unwrap();
    assert!(lab.engine.change(|config| config.add_socket(Arc::clone(&socket) as _)).is_err());
    lab.arrive(&packets(0, 1, 0..5));
    assert_eq!(socket.state().received.len(), 5);
}

#[test]
fn what_sockets_send_leaves_by_their_port() {
    let mut lab = Lab::new();
    let socket = lab.socket(5, HERE, 0);
    let sent = packets(0, 1, 0..100);
    socket.state().to_send.extend(sent.clone());
    wait_for("the socket's packets", || socket.state().sent == 100);
    assert_eq!(lab.a.received(), sent);
    // A transmit hook judges them, too.
    let hook = load(small::returns_byte(14));
    let link = Link::new(hook, 9, 1);
    lab.engine.change(|config| config.set_links(lab.a.port, Hook::Tx, vec![link])).unwrap();
    socket.state().to_send.extend([packet(1, 7), packet(2, 8)]);
    wait_for("the socket's packets", || socket.state().sent == 102);
    assert_eq!(lab.a.received(), [packet(2, 8)]);
    let sum = lab.engine.conservation();
    assert_eq!((sum.created, sum.delivered, sum.dropped, sum.missing()), (102, 101, 1, 0));
}

/// The ring of a pair has 1024 places: packets that do not fit stay with the application
/// (`-EAGAIN`).
#[test]
fn packets_wait_for_a_port_whose_ring_is_full() {
    let mut lab = Lab::new();
    let socket = lab.socket(5, HERE, 0);
    let sent: Vec<_> = (0..30).flat_map(|round| packets(round, 1, 0..50)).collect();
    socket.state().to_send.extend(sent.clone());
    wait_for("a full ring", || socket.state().sent >= 1024);
    assert_eq!(socket.state().to_send.len(), 1500 - 1024);
    let mut received = lab.a.received();
    wait_for("the rest", || socket.state().sent == 1500);
    received.extend(lab.a.received());
    assert_eq!(received, sent);
    assert_eq!(lab.engine.conservation().missing(), 0);
    assert_eq!(lab.engine.conservation().dropped, 0);
}

/// A step of the property test.
#[derive(Debug, Clone)]
enum Step {
    Burst(Vec<Vec<u8>>),
    Entry(u32, u32),
    Room(usize, usize),
    /// Binds a socket to a place, or unbinds it. Workers learn of it.
    Bind(usize, Option<QueueId>),
}

const SOCKETS: usize = 3;

fn step(random: &mut Random, number: &mut u8) -> Step {
    let place =
        |random: &mut Random| *random.pick(&[Some(HERE), Some(HERE), Some(ELSEWHERE), None]);
    match random.below(8) {
        0 => Step::Entry(random.below(4) as u32, random.below(SOCKETS + 2) as u32),
        1 => Step::Room(random.below(SOCKETS), random.below(40)),
        2 => Step::Bind(random.below(SOCKETS), place(random)),
        _ => {
            let is_alike = random.one_in(2);
            let mut kind = (random.below(4) as u8, random.below(4) as u8);
            let mut burst = Vec::new();
            for _ in 0..=random.below(24) {
                if !is_alike {
                    kind = (random.below(5) as u8, random.below(5) as u8);
                }
                *number = number.wrapping_add(1);
                burst.extend(packets(kind.0, kind.1, *number..number.saturating_add(1)));
            }
            Step::Burst(burst)
        }
    }
}

/// The packets of each socket, the packets that passed, and the counters.
type Outcome = (Vec<Vec<Vec<u8>>>, Vec<Vec<u8>>, Vec<u64>);

/// Runs the steps; with `alone` frames come one by one, and no queue has only one socket.
fn run(steps: &[Step], alone: bool) -> Outcome {
    let mut lab = Lab::new();
    let sockets: Vec<_> = (1..=SOCKETS as u32).map(|id| lab.socket(id, HERE, 10)).collect();
    if alone {
        lab.socket(98, HERE, 0);
        lab.socket(99, HERE, 0);
    }
    for step in steps {
        match step {
            Step::Burst(burst) if alone => {
                burst.iter().for_each(|packet| lab.arrive(std::slice::from_ref(packet)));
            }
            Step::Burst(burst) => lab.arrive(burst),
            Step::Entry(key, id) => lab.set(*key, *id),
            Step::Room(socket, room) => sockets[*socket].state().room = *room,
            Step::Bind(socket, place) => {
                sockets[*socket].state().place = *place;
                lab.engine.change(|_| Ok(())).unwrap();
            }
        }
    }
    let received = sockets.iter().map(|socket| socket.state().received.clone()).collect();
    let mut counts: Vec<u64> = DropReason::ALL.iter().map(|&why| lab.drops(why)).collect();
    counts.extend((0..5).map(|action| lab.count(|counters| counters.actions[action].get())));
    counts.extend(sockets.iter().map(|socket| socket.state().refused as u64));
    assert_eq!(lab.engine.conservation().missing(), 0);
    (received, lab.b.received(), counts)
}

/// A burst gives the same results as its frames one by one: same order, same drops, same fallback,
/// for any map entries, rings and places.
#[test]
fn a_burst_means_what_its_frames_mean_one_by_one() {
    for seed in 0..4 {
        let (mut random, mut number) = (Random::new(seed), 0);
        let steps: Vec<_> = (0..60).map(|_| step(&mut random, &mut number)).collect();
        assert_eq!(run(&steps, false), run(&steps, true), "seed {seed}");
    }
}

#[test]
fn a_second_program_on_the_port_does_not_change_where_frames_go() {
    let mut lab = Lab::new();
    let socket = lab.socket(5, HERE, 100);
    lab.set(1, 5);
    let plain = load(small::redirect_map(MapType::Xskmap, 4, 1, 0));
    attach(&lab.engine, lab.a.port, &[(&plain, PASS)]);
    lab.arrive(&packets(0, 1, 0..2));
    assert_eq!(lab.drops(DropReason::Aborted), 2, "its map is empty");
    set_target(&plain, 1, [5]);
    lab.arrive(&packets(0, 1, 0..2));
    assert_eq!(socket.state().received.len(), 2);
}

/// Frames flooded to two guests are answered by both guests' programs, and meet in one burst at a
/// socket of one of them (`xsk_rcv_check` looks at each frame).
#[test]
fn a_socket_gets_nothing_that_arrived_at_another_port() {
    let engine = engine(1);
    engine.change(|config| config.add_bridge("br", Duration::from_secs(300))).unwrap();
    let mut a = Wire::new(&engine, "a", 10);
    let guests = [Wire::new(&engine, "b", HERE.ifindex), Wire::new(&engine, "c", 12)];
    let back = load(small::returns(3));
    let to_socket = load(small::redirect_map_by_bytes(MapType::Xskmap, 8));
    for (place, port) in [a.port, guests[0].port, guests[1].port].into_iter().enumerate() {
        let upper = UpperName::Named("br".to_owned());
        engine.change(|config| config.set_upper(port, upper)).unwrap();
        if place > 0 {
            attach(&engine, port, &[(&to_socket, PASS)]);
            let links = vec![Link::new(back.clone(), 9, engine.workers())];
            engine.change(|config| config.set_links(port, Hook::GuestRx, links)).unwrap();
        }
    }
    let socket = Fake::new(5, HERE, 1000);
    engine.change(|config| config.add_socket(Arc::clone(&socket) as _)).unwrap();
    set_target(&to_socket, 1, [5]);
    let sent = packets(0, 1, 0..40);
    a.send(&sent);
    settled(&engine, a.port, 40);
    assert_eq!(socket.state().received, sent, "what arrived at its own port, once");
    let drops = |port| {
        engine.read(|_, snapshot| {
            let counters = &snapshot.port(port).unwrap().opened.counters;
            counters.iter().map(|it| it.drops[DropReason::NoSocket as usize].get()).sum::<u64>()
        })
    };
    assert_eq!([drops(guests[0].port), drops(guests[1].port)], [0, 40]);
}
