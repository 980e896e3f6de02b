//! An engine with ports whose other ends are in the test's hands.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::time::{Duration, Instant};

use towpath_bpf::program::Linked;
use towpath_engine::port::{Device, Rx, Tx};
use towpath_engine::{Engine, Hook, Link, Mode, Options, PortId, PortOptions, WorkerOptions};
use towpath_maps::Value;
use towpath_ports::pair::{self, Pair};
use towpath_xdp::{Exec, Frame, LoadOptions, Pool, Program};

/// The far end of a port.
pub(crate) struct Wire {
    pub(crate) port: PortId,
    /// While it is there the port has a carrier.
    _far: Pair,
    tx: Box<dyn Tx>,
    rx: Box<dyn Rx>,
    pool: Pool,
}

impl Wire {
    /// Adds a port of this name and ifindex to the engine.
    pub(crate) fn new(engine: &Engine, name: &str, ifindex: u32) -> Wire {
        Wire::with(engine, name, ifindex, pair::Options::default())
    }

    /// As [`Wire::new`], with options of the pair.
    pub(crate) fn with(engine: &Engine, name: &str, ifindex: u32, options: pair::Options) -> Wire {
        let port = PortOptions { ifindex: Some(ifindex), ..PortOptions::new(name) };
        Wire::of(engine, port, options)
    }

    /// As [`Wire::with`], with options of the port.
    pub(crate) fn of(engine: &Engine, options: PortOptions, pair: pair::Options) -> Wire {
        let (near, far) = Pair::new(pair);
        let port = engine.add_port(options, Box::new(near)).unwrap();
        Wire {
            port,
            tx: far.open_tx(0, engine.arena()).unwrap(),
            rx: far.open_rx(0, engine.arena()).unwrap(),
            pool: Pool::new(engine.arena()),
            _far: far,
        }
    }

    /// Lets these packets arrive at the port.
    pub(crate) fn send(&mut self, packets: &[Vec<u8>]) {
        let frame = |pool: &mut Pool, packet: &Vec<u8>| pool.frame(packet).unwrap().unwrap();
        let mut frames: Vec<Frame> = packets.iter().map(|p| frame(&mut self.pool, p)).collect();
        self.tx.transmit(&mut frames, &mut self.pool).unwrap();
        assert!(frames.is_empty(), "the ring took everything");
    }

    /// The packets that the port sent so far.
    pub(crate) fn received(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while self.rx.receive(&mut self.pool, &mut frames, 64).unwrap() > 0 {}
        let packets = frames.iter().map(|frame| frame.to_vec()).collect();
        self.pool.give_all(&mut frames);
        packets
    }
}

pub(crate) fn engine(workers: usize) -> Engine {
    let worker = WorkerOptions { cpu: None, mode: Mode::Adaptive, ..WorkerOptions::default() };
    Engine::start(&Options { workers: vec![worker; workers], frames: 4096 }).unwrap()
}

/// Waits until `done`, but not for ever.
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "still waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until `count` frames of a port are judged and delivered.
pub(crate) fn settled(engine: &Engine, port: PortId, count: u64) {
    wait_for("frames", || {
        let received = engine.read(|_, snapshot| {
            let counters = &snapshot.port(port).unwrap().opened.counters;
            counters.iter().map(|c| c.rx_packets.get()).sum::<u64>()
        });
        // A snapshot: frames handed over now may be taken over a moment later.
        let frames = engine.conservation();
        received >= count && frames.missing() == 0 && frames.is_settled()
    });
}

pub(crate) fn load(linked: Linked) -> Program {
    let options = LoadOptions { workers: 2, exec: Exec::Jit, ..LoadOptions::default() };
    Program::from_linked(linked, &options).unwrap()
}

/// Attaches programs with these chain-call actions.
pub(crate) fn attach(engine: &Engine, port: PortId, programs: &[(&Program, u32)]) {
    let links = (0..).zip(programs).map(|(index, &(program, actions))| {
        let mut link = Link::new(program.clone(), index + 1, engine.workers());
        (link.priority, link.chain_call_actions) = (index, actions);
        link
    });
    let links = links.collect();
    engine.change(|config| config.set_links(port, Hook::Rx, links)).unwrap();
}

/// Sets an entry of a program's map `targets`.
pub(crate) fn set_target<const N: usize>(program: &Program, key: u32, words: [u32; N]) {
    let map = program.maps().by_name("targets").unwrap();
    let value = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    map.user().update(&key.to_ne_bytes(), &Value::One(value), 0).unwrap();
}

/// A packet whose byte 14 is the verdict of programs that return it; the rest distinguishes it from
/// others.
pub(crate) fn packet(verdict: u8, number: u8) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5, verdict, number];
    packet.resize(64, 0);
    packet
}
