//! The graph of sources, hooks and targets, with a source and a target that the engine does not
//! know, and with what is bad for it: entries that lead nowhere, targets that fill, programs and
//! queues that are replaced while frames move.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::print_stderr, reason = "what was skipped")]

mod asking;
mod counting;
mod credit;
mod flows;
mod load;
mod mixed;
mod moving;
mod numbered;
mod quiet;
mod repeating;
mod spreading;
mod stuck;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use asking::Asking;
use counting::{Counting, Sends};
use repeating::Repeating;
use towpath_bpf::program::{AttachType, Linked, MapType};
use towpath_engine::counters::{DropReason, PortCounters};
use towpath_engine::port::Device;
use towpath_engine::{Engine, Hook, Link, Mode, Options, PortId, PortOptions, QueueId, UpperName};
use towpath_engine::{Error, WorkerOptions};
use towpath_maps::Value;
use towpath_workload::small;
use towpath_xdp::{LoadOptions, Program};

#[test]
fn a_source_and_a_target_of_others_are_as_good_as_ours() {
    let lab = Lab::new();
    let (source, target) = (Repeating::new(&packet(), 0), Counting::with_room(usize::MAX));
    let from = lab.add("from", 11, Box::new(source.clone()));
    lab.add("to", 12, Box::new(Sends(target.clone())));
    lab.upper(from, "to");
    source.repeat(1000);
    wait_for("frames", || target.count() == 1000);
    lab.check_conservation();
}

#[test]
fn what_a_target_has_no_room_for_is_dropped_with_the_reason() {
    let lab = Lab::new();
    let (source, target) = (Repeating::new(&packet(), 0), Counting::with_room(10));
    let from = lab.add("from", 11, Box::new(source.clone()));
    let to = lab.add("to", 12, Box::new(Sends(target.clone())));
    lab.upper(from, "to");
    source.repeat(64);
    wait_for("drops", || lab.sum(to, |it| it.tx_drops[DropReason::RingFull as usize].get()) == 54);
    assert_eq!((target.count(), target.refused()), (10, 54));
    lab.check_conservation();
}

/// A source that can wait is given no more than there is credit for, and loses nothing.
#[test]
fn a_source_that_can_wait_waits_for_credit() {
    let lab = Lab::new();
    let target = Counting::with_room(0);
    let to = lab.add("to", 12, Box::new(Sends(target.clone())));
    let place = QueueId { ifindex: 12, queue: 0 };
    let socket = Arc::new(Asking::new(place, 1000, packet()));
    lab.engine.change(|config| config.add_socket(Arc::clone(&socket) as _)).unwrap();
    for round in 0..20 {
        target.set_room(50);
        wait_for("room to be used", || target.count() == (round + 1) * 50);
    }
    wait_for("the ring to be empty", || socket.left.load(Ordering::SeqCst) == 0);
    // With nothing to send, a port isn't asked whether it has room, however often rings are polled.
    let polls = || socket.polls.load(Ordering::SeqCst);
    let (asked, before) = (target.asked(), polls());
    wait_for("polls", || polls() > before + 10);
    assert_eq!(target.asked(), asked);
    assert_eq!(target.refused(), 0, "credit is never exceeded");
    assert_eq!(lab.sum(to, |it| it.tx_drops.iter().map(|it| it.get()).sum()), 0);
    lab.check_conservation();
    assert_eq!(lab.engine.conservation().created, 1000);
}

#[test]
fn a_target_that_fills_while_a_broadcast_is_half_done_costs_the_others_nothing() {
    let lab = Lab::new();
    let source = Repeating::new(&packet(), 0);
    let from = lab.add("from", 11, Box::new(source.clone()));
    let targets = [(12, usize::MAX), (13, 5), (14, usize::MAX)].map(|(ifindex, room)| {
        let target = Counting::with_room(room);
        (lab.add(&format!("to{ifindex}"), ifindex, Box::new(Sends(target.clone()))), target)
    });
    let program = load(small::redirect_map(MapType::Devmap, 8, 0, 8)); // BPF_F_BROADCAST
    for (key, ifindex) in (12..15).enumerate() {
        set_entry(&program, key as u32, [ifindex, 0]);
    }
    lab.attach(from, &program);
    source.repeat(640);
    let counts = || targets.each_ref().map(|(_, target)| target.count());
    wait_for("copies", || counts() == [640, 5, 640]);
    let (full, _) = targets[1];
    wait_for("drops", || {
        lab.sum(full, |it| it.tx_drops[DropReason::RingFull as usize].get()) == 635
    });
    lab.check_conservation();
}

/// An entry is what its number means now: a port that is not there yet, is gone, or came back as
/// another one; with a program of the entry's own, and without.
#[test]
fn entries_mean_the_port_that_is_there_now() {
    for program_id in [0, 5] {
        let lab = Lab::new();
        let source = Repeating::new(&packet(), 0);
        let from = lab.add("from", 11, Box::new(source.clone()));
        let program = load(small::redirect_map(MapType::Devmap, 4, 1, 0));
        set_entry(&program, 1, [12, program_id]);
        let mut entry = small::returns(2);
        entry.attach = AttachType::Devmap;
        lab.engine.change(|config| config.set_entry_program(5, Some(load(entry)))).unwrap();
        lab.attach(from, &program);
        let bad = || lab.sum(from, |it| it.drops[DropReason::BadTarget as usize].get());
        source.repeat(100);
        wait_for("drops before", || bad() == 100);

        let target = Counting::with_room(usize::MAX);
        let to = lab.add("to", 12, Box::new(Sends(target.clone())));
        source.repeat(100);
        wait_for("frames", || target.count() == 100);

        lab.engine.remove_port(to).unwrap();
        source.repeat(100);
        wait_for("drops after", || bad() == 200);

        let options = PortOptions { mtu: Some(20), ..options("to", 12) };
        let to = lab.engine.add_port(options, Box::new(Sends(target.clone()))).unwrap();
        source.repeat(100);
        let long = || lab.sum(to, |it| it.tx_drops[DropReason::TooLong as usize].get());
        wait_for("drops of another one", || long() == 100);
        assert_eq!(target.count(), 100);

        lab.engine.change(|config| config.set_entry_program(5, None)).unwrap();
        lab.engine.change(|config| config.set_mtu(to, None)).unwrap();
        source.repeat(100);
        let lost = || lab.sum(to, |it| it.tx_drops[DropReason::BadTarget as usize].get());
        wait_for("the end", || target.count() + lost() == 200);
        assert_eq!(lost(), if program_id == 0 { 0 } else { 100 }, "its program is gone");
        lab.check_conservation();
    }
}

/// Programs go while frames that they judged wait for the end of the burst.
#[test]
fn programs_are_replaced_while_frames_move() {
    let lab = Lab::new();
    let source = Repeating::new(&packet(), 200_000);
    let from = lab.add("from", 11, Box::new(source.clone()));
    let target = Counting::with_room(usize::MAX);
    let to = lab.add("to", 12, Box::new(Sends(target.clone())));
    let mut number = 0;
    wait_for("frames", || {
        number += 1;
        let program = load(small::redirect_map(MapType::Devmap, 4, 1, 0));
        set_entry(&program, 1, [12, number % 3]);
        let mut entry = small::returns(if number % 2 == 0 { 2 } else { 1 });
        entry.attach = AttachType::Devmap;
        let entry = (number % 5 != 0).then(|| load(entry));
        let leaving = (number % 4 == 0).then(|| link(&load(small::returns(2))));
        let changed = lab.engine.change(|config| {
            config.set_entry_program(1 + number % 2, entry)?;
            config.set_links(to, Hook::Tx, leaving.into_iter().collect())?;
            config.set_links(from, Hook::Rx, vec![link(&program)])
        });
        changed.unwrap();
        source.left() == 0
    });
    lab.check_conservation();
    let frames = lab.engine.conservation();
    assert_eq!(frames.received, 200_000);
    assert_eq!(frames.delivered, target.count());
}

#[test]
fn queues_start_and_stop_while_their_port_runs() {
    let lab = Lab::new();
    let source = Repeating::new(&packet(), 0);
    let from = lab.add("from", 11, Box::new(source.clone()));
    let target = Counting::with_room(usize::MAX);
    lab.add("to", 12, Box::new(Sends(target.clone())));
    lab.upper(from, "to");
    let queues = || lab.engine.read(|_, it| it.port(from).unwrap().opened.open_queues());
    lab.engine.stop_queue(from, 0).unwrap();
    assert_eq!((source.open(), queues()), (0, vec![]), "closed when the call returns");
    source.repeat(500);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(target.count(), 0);
    lab.engine.start_queue(from, 0).unwrap();
    lab.engine.start_queue(from, 0).unwrap();
    assert_eq!(source.open(), 1);
    wait_for("frames", || target.count() == 500);

    source.set_queues(3);
    source.set_mtu(9000);
    lab.engine.refresh_port(from).unwrap();
    assert_eq!((source.open(), queues()), (3, vec![0, 1, 2]));
    assert_eq!(lab.engine.read(|_, it| it.port(from).unwrap().mtu), 9000);
    source.repeat(5000);
    for round in 0..50 {
        lab.engine.stop_queue(from, round % 3).unwrap();
        lab.engine.start_queue(from, round % 3).unwrap();
    }
    wait_for("more frames", || target.count() == 5500);
    source.set_queues(1);
    lab.engine.refresh_port(from).unwrap();
    assert_eq!((source.open(), queues()), (1, vec![0]));
    source.repeat(100);
    wait_for("the last frames", || target.count() == 5600);
    lab.check_conservation();
    let unknown = lab.engine.stop_queue(PortId(99), 0);
    assert!(matches!(unknown, Err(Error::NoPortId(99))), "{unknown:?}");
}

/// An engine of two workers.
struct Lab {
    engine: Engine,
}

impl Lab {
    fn new() -> Lab {
        let worker = WorkerOptions { cpu: None, mode: Mode::Adaptive, ..WorkerOptions::default() };
        let engine = Engine::start(&Options { workers: vec![worker; 2], frames: 4096 });
        Lab { engine: engine.unwrap() }
    }

    fn add(&self, name: &str, ifindex: u32, device: Box<dyn Device>) -> PortId {
        self.engine.add_port(options(name, ifindex), device).unwrap()
    }

    fn upper(&self, port: PortId, name: &str) {
        let upper = UpperName::Named(name.to_owned());
        self.engine.change(|config| config.set_upper(port, upper)).unwrap();
    }

    fn attach(&self, port: PortId, program: &Program) {
        let links = vec![link(program)];
        self.engine.change(|config| config.set_links(port, Hook::Rx, links)).unwrap();
    }

    fn sum(&self, port: PortId, read: impl Fn(&PortCounters) -> u64) -> u64 {
        self.engine
            .read(|_, snapshot| snapshot.port(port).unwrap().opened.counters.iter().map(read).sum())
    }

    fn check_conservation(&self) {
        wait_for("frames to settle", || self.engine.conservation().is_settled());
        self.engine.stop();
        assert_eq!(self.engine.conservation().missing(), 0);
    }
}

fn options(name: &str, ifindex: u32) -> PortOptions {
    PortOptions { ifindex: Some(ifindex), ..PortOptions::new(name) }
}

fn link(program: &Program) -> Link {
    Link::new(program.clone(), 1, 2)
}

fn load(linked: Linked) -> Program {
    let options = LoadOptions { workers: 2, ..LoadOptions::default() };
    Program::from_linked(linked, &options).unwrap()
}

fn set_entry(program: &Program, key: u32, words: [u32; 2]) {
    let map = program.maps().by_name("targets").unwrap();
    let value = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    map.user().update(&key.to_ne_bytes(), &Value::One(value), 0).unwrap();
}

fn packet() -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    packet.resize(64, 0);
    packet
}

/// Waits until `done`, but not for ever.
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "still waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
