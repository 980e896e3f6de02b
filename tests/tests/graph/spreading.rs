//! Ports that spread their flows over workers: all of them run the program, each flow stays in its
//! order whatever changes, and no frame is lost.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use towpath_bpf::program::MapType;
use towpath_engine::counters::DropReason;
use towpath_engine::{
    ControlTask, Engine, Hook, Link, Options, PortId, PortOptions, Spread, TaskContext,
    WorkerOptions,
};
use towpath_maps::Domain;
use towpath_workload::random::Random;
use towpath_workload::small;
use towpath_xdp::{LoadOptions, Program};

use crate::flows::{Flows, FlowsInOrder};
use crate::{Lab, Sends, set_entry, wait_for};

/// A number of workers, and a source that passes every frame to a target.
struct Scene {
    lab: Lab,
    workers: usize,
    from: PortId,
    source: Flows,
    target: FlowsInOrder,
}

impl Scene {
    fn new(workers: usize, options: PortOptions) -> Scene {
        let engine = Options { workers: vec![WorkerOptions::default(); workers], frames: 8192 };
        let (lab, target) =
            (Lab { engine: Engine::start(&engine).unwrap() }, FlowsInOrder::default());
        lab.add("to", 100, Box::new(Sends(target.clone())));
        let source = Flows::new(&target);
        let from = lab.engine.add_port(options, Box::new(source.clone())).unwrap();
        lab.upper(from, "to");
        Scene { lab, workers, from, source, target }
    }

    fn program(&self, linked: towpath_bpf::program::Linked) -> Program {
        let options = LoadOptions { workers: self.workers, ..LoadOptions::default() };
        Program::from_linked(linked, &options).unwrap()
    }

    fn attach(&self, program: &Program) {
        let links = vec![Link::new(program.clone(), 1, self.workers)];
        let attach =
            |config: &mut towpath_engine::Config| config.set_links(self.from, Hook::Rx, links);
        self.lab.engine.change(attach).unwrap();
    }

    /// Number of frames that the port's program saw, by worker.
    fn runs(&self) -> Vec<u64> {
        self.lab.engine.read(|config, _| {
            let links = config.links(self.from, Hook::Rx).unwrap();
            links[0].counters().iter().map(|it| it.runs.get()).collect()
        })
    }

    /// Waits until that many more frames came.
    fn wait_more(&self, count: u64) {
        let until = self.source.sent() + count;
        wait_for("frames", || self.target.count() >= until);
    }

    fn check_all(&self) {
        self.source.run(false);
        wait_for("the last frame", || self.target.count() == self.source.sent());
        assert_eq!(self.target.strays(), 0, "of {}", self.target.count());
        self.lab.check_conservation();
        let frames = self.lab.engine.conservation();
        assert_eq!((frames.received, frames.delivered), (self.source.sent(), self.source.sent()));
    }
}

fn spreads(name: &str) -> PortOptions {
    PortOptions { spread: Spread::Flow, ifindex: Some(7), ..PortOptions::new(name) }
}

#[test]
fn every_worker_runs_the_program_and_each_flow_stays_in_order() {
    for workers in [2, 4] {
        let scene = Scene::new(workers, spreads("from"));
        scene.attach(&scene.program(small::returns(2)));
        scene.source.run(true);
        scene.wait_more(50_000);
        scene.source.run(false);
        wait_for("the last frame", || scene.target.count() == scene.source.sent());
        let (runs, sent) = (scene.runs(), scene.source.sent());
        assert_eq!(runs.iter().sum::<u64>(), sent);
        let fair = sent / workers as u64;
        assert!(runs.iter().all(|it| (fair / 2..2 * fair).contains(it)), "{runs:?}");
        // They arrived where they were received, and once.
        let arrived = |worker: usize| {
            let port = scene.lab.engine.port(scene.from).unwrap();
            port.opened.counters[worker].rx_packets.get()
        };
        assert_eq!((0..workers).map(arrived).filter(|it| *it > 0).collect::<Vec<_>>(), [sent]);
        scene.check_all();
    }
}

#[test]
fn only_the_workers_of_a_port_take_part() {
    let options = PortOptions { workers: vec![1, 3], ..spreads("from") };
    let scene = Scene::new(4, options);
    scene.attach(&scene.program(small::returns(2)));
    scene.source.run(true);
    scene.wait_more(10_000);
    let runs = scene.runs();
    assert!(runs[1] > 0 && runs[3] > 0, "{runs:?}");
    assert_eq!((runs[0], runs[2]), (0, 0));
    scene.check_all();
}

/// The queue moves, the port spreads or does not, programs are replaced, frames are handed on by a
/// cpumap.
#[test]
fn what_changes_while_frames_move_loses_nothing_and_keeps_the_order() {
    let scene = Scene::new(3, spreads("from"));
    let mut random = Random::new(7);
    let passes = scene.program(small::returns(2));
    let hands_on = scene.program(small::redirect_map(MapType::Cpumap, 1, 0, 0));
    set_entry(&hands_on, 0, [4096, 0]);
    scene.attach(&passes);
    scene.source.run(true);
    for round in 0..400 {
        let engine = &scene.lab.engine;
        match random.below(8) {
            0..3 => {
                let to = random.below(3);
                engine.change(|config| config.move_queue(scene.from, 0, to)).unwrap();
            }
            3..5 => {
                let spread = if random.one_in(2) { Spread::Flow } else { Spread::Off };
                engine.change(|config| config.set_spread(scene.from, spread)).unwrap();
            }
            5 => scene.attach(&passes),
            6 => {
                let up = random.one_in(2);
                engine.change(|config| config.set_up(scene.from, up)).unwrap();
                engine.change(|config| config.set_up(scene.from, true)).unwrap();
            }
            _ => engine.change(|_| Ok(())).unwrap(),
        }
        if round % 8 == 0 {
            scene.wait_more(300);
        }
    }
    scene.check_all();
}

#[test]
fn frames_that_are_handed_on_twice_stay_in_order() {
    let scene = Scene::new(3, spreads("from"));
    let program = scene.program(small::redirect_map(MapType::Cpumap, 1, 0, 0));
    set_entry(&program, 0, [4096, 0]);
    scene.attach(&program);
    scene.source.run(true);
    for round in 0..100 {
        scene.lab.engine.change(|config| config.move_queue(scene.from, 0, round % 3)).unwrap();
        scene.wait_more(100);
    }
    scene.check_all();
}

#[test]
fn a_port_that_goes_leaves_nothing_behind() {
    for _ in 0..20 {
        let scene = Scene::new(3, spreads("from"));
        scene.attach(&scene.program(small::returns(2)));
        scene.source.run(true);
        scene.wait_more(1000);
        scene.lab.engine.remove_port(scene.from).unwrap();
        let frames = scene.lab.engine.conservation();
        assert_eq!((frames.in_flight, frames.dropped), (0, 0), "{frames:?}");
        assert_eq!(scene.target.count(), scene.source.sent());
        assert_eq!(scene.target.strays(), 0);
        scene.lab.check_conservation();
    }
}

/// Holds the first worker up.
struct Holds {
    program: Program,
    held: Sender<()>,
    release: Receiver<()>,
}

impl ControlTask for Holds {
    fn domain(&self) -> &Arc<Domain> {
        self.program.maps().domain()
    }

    fn step(&mut self, _context: &mut TaskContext<'_>) -> bool {
        let _nobody_waits = self.held.send(());
        let _gone = self.release.recv();
        true
    }
}

#[test]
fn what_a_worker_has_no_room_for_is_dropped_where_it_arrived() {
    let scene = Scene::new(2, spreads("from"));
    scene.lab.engine.change(|config| config.move_queue(scene.from, 0, 1)).unwrap();
    let program = scene.program(small::returns(2));
    scene.attach(&program);
    let ((held, holds), (releases, release)) = (channel(), channel());
    std::thread::scope(|scope| {
        let task = Holds { program: program.clone(), held, release };
        let running = scope.spawn(|| scene.lab.engine.run_task(task));
        holds.recv().unwrap();
        scene.source.flood(6000);
        let full = DropReason::RingFull as usize;
        let dropped = || scene.lab.sum(scene.from, |it| it.drops[full].get());
        let all = || dropped() + scene.lab.engine.conservation().in_flight + scene.target.count();
        wait_for("all frames to be somewhere", || scene.source.sent() >= 6000 && all() >= 6000);
        assert_eq!(scene.lab.engine.conservation().in_flight, 1024);
        assert!(dropped() > 0);
        scene.source.run(false);
        releases.send(()).unwrap();
        assert!(running.join().unwrap().is_some());
        wait_for("the rest", || scene.target.count() + dropped() == scene.source.sent());
    });
    scene.lab.check_conservation();
}

/// Memory that an application lends is used by one worker alone.
#[test]
fn a_port_that_spreads_receives_into_its_own_memory() {
    let scene = Scene::new(2, PortOptions::new("from"));
    let can = || scene.lab.engine.read(|config, _| config.can_zero_copy(scene.from));
    assert!(can());
    let set = |spread| scene.lab.engine.change(|it| it.set_spread(scene.from, spread)).unwrap();
    set(Spread::Flow);
    assert!(!can());
    set(Spread::Off);
    assert!(can());
    scene.lab.engine.stop();
}
