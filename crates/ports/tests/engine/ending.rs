//! Frames that wait for a worker when their port goes, or the engine stops.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use towpath_bpf::program::MapType;
use towpath_engine::counters::DropReason;
use towpath_engine::{ControlTask, Engine, PortOptions, TaskContext};
use towpath_maps::Domain;
use towpath_ports::pair;
use towpath_workload::small;
use towpath_xdp::Program;

use crate::wire::{Wire, attach, engine, load, packet, set_target, wait_for};
use crate::{PASS, upper};

/// Keeps the first worker from its bursts, for a time between each two. The first pause begins
/// when all frames wait.
struct Slow {
    program: Program,
    pauses: Vec<Duration>,
    begun: Sender<()>,
    all_wait: Receiver<()>,
}

impl ControlTask for Slow {
    fn domain(&self) -> &Arc<Domain> {
        self.program.maps().domain()
    }

    fn step(&mut self, _context: &mut TaskContext<'_>) -> bool {
        let _test_is_past_that = self.begun.send(());
        let _only_the_first_time = self.all_wait.recv();
        self.pauses.pop().map(std::thread::sleep).is_none()
    }
}

/// Frames that arrive at `a`, at the second worker, are handed to the first, and pass to `b`.
struct Lab {
    engine: Engine,
    a: Wire,
    b: Wire,
}

impl Lab {
    fn new() -> Lab {
        let engine = engine(2);
        let ring = pair::Options { ring: 4096, ..pair::Options::default() };
        let a = PortOptions { ifindex: Some(11), workers: vec![1], ..PortOptions::new("a") };
        let a = Wire::of(&engine, a, ring);
        let b = Wire::with(&engine, "b", 12, ring);
        upper(&engine, a.port, "b");
        let program = load(small::redirect_map(MapType::Cpumap, 2, 0, 0));
        set_target(&program, 0, [4096, 0]);
        attach(&engine, a.port, &[(&program, PASS)]);
        Lab { engine, a, b }
    }

    /// Does something while frames wait for the first worker, which makes pauses.
    fn while_waiting<T: Send>(
        &mut self,
        count: u64,
        pauses: Vec<Duration>,
        act: impl FnOnce(&Engine) -> T + Send,
    ) -> T {
        let Lab { engine, a, .. } = self;
        let ((begun, begins), (wait, all_wait)) = (channel(), channel());
        let slow = Slow { program: load(small::returns(2)), pauses, begun, all_wait };
        std::thread::scope(|scope| {
            scope.spawn(|| engine.run_task(slow));
            begins.recv().unwrap();
            let before = waiting(engine);
            a.send(&(0..count).map(|n| packet(0, n as u8)).collect::<Vec<_>>());
            wait_for("frames", || waiting(engine) == before + count);
            drop(wait);
            act(engine)
        })
    }
}

fn waiting(engine: &Engine) -> u64 {
    engine.conservation().in_flight
}

const LONG: Duration = Duration::from_millis(60);

#[test]
fn what_waits_for_a_worker_is_done_before_the_engine_stops() {
    let mut lab = Lab::new();
    lab.while_waiting(1000, vec![LONG], |engine| engine.stop());
    let frames = lab.engine.conservation();
    assert_eq!((frames.received, frames.delivered), (1000, 1000), "{frames:?}");
    assert_eq!(lab.b.received().len(), 1000);
}

#[test]
fn what_waits_for_a_worker_is_done_before_its_port_goes() {
    let mut lab = Lab::new();
    let port = lab.a.port;
    lab.while_waiting(1000, vec![LONG], |engine| engine.remove_port(port).unwrap());
    assert_eq!(lab.b.received().len(), 1000);
    let frames = lab.engine.conservation();
    assert_eq!((frames.delivered, frames.in_flight), (1000, 0), "{frames:?}");
}

#[test]
fn who_stops_waits_for_no_worker_for_long() {
    let mut lab = Lab::new();
    let took = lab.while_waiting(2000, vec![Duration::from_millis(30); 100], |engine| {
        let start = Instant::now();
        engine.stop();
        start.elapsed()
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
    let frames = lab.engine.conservation();
    assert_eq!((frames.missing(), frames.in_flight), (0, 0), "{frames:?}");
    assert!(frames.dropped > 0 && frames.delivered > 0, "{frames:?}");
    assert_eq!(frames.dropped + frames.delivered, 2000, "{frames:?}");
    assert_eq!(lab.b.received().len() as u64, frames.delivered);
}

/// Nothing passes a program of a cpumap's entry because that is gone.
#[test]
fn a_program_that_is_gone_is_not_passed_by() {
    let mut lab = Lab::new();
    let program = load(small::redirect_map(MapType::Cpumap, 2, 0, 0));
    set_target(&program, 0, [64, 9]);
    attach(&lab.engine, lab.a.port, &[(&program, PASS)]);
    lab.a.send(&[packet(2, 1)]);
    wait_for("a drop", || crate::drops(&lab.engine, lab.a.port, DropReason::BadTarget) == 1);
    assert!(lab.b.received().is_empty());
}

/// No thread waits for a worker that is gone, and its end is reported.
#[test]
fn a_worker_that_panics_is_missed() {
    struct Panics(Program);
    impl ControlTask for Panics {
        fn domain(&self) -> &Arc<Domain> {
            self.0.maps().domain()
        }

        fn step(&mut self, _context: &mut TaskContext<'_>) -> bool {
            panic!("on purpose")
        }
    }
    let mut lab = Lab::new();
    assert_eq!(lab.engine.panicked(), None);
    assert!(lab.engine.run_task(Panics(load(small::returns(2)))).is_none());
    wait_for("the news", || lab.engine.panicked().is_some());
    assert_eq!(lab.engine.panicked().unwrap(), "worker 0 panicked: on purpose");
    // The other goes on, and hands it nothing.
    lab.a.send(&[packet(0, 1)]);
    wait_for("a drop", || crate::drops(&lab.engine, lab.a.port, DropReason::RingFull) == 1);
    lab.engine.change(|config| config.set_mtu(lab.b.port, Some(9000))).unwrap();
    lab.engine.stop();
}
