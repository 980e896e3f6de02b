//! Programs that keep their worker: whoever waits for it is answered, the worker's other ports go
//! on, and what the program was to keep out stays out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use towpath_engine::counters::DropReason;
use towpath_engine::{BURST, Engine, Hook, Mode, Options, WorkerOptions};
use towpath_workload::small;
use towpath_xdp::standing::{STOPS_MAX, Why};
use towpath_xdp::{Exec, LoadOptions, Program};

use super::counting::{Counting, Sends};
use super::repeating::Repeating;
use super::{Lab, link, packet, wait_for};

fn program(exec: Exec) -> Program {
    let options = LoadOptions { workers: 2, exec, ..LoadOptions::default() };
    Program::from_linked(small::endless(), &options).unwrap()
}

/// A worker, a port whose program does not return and its neighbour, with where both lead.
fn scene(exec: Exec) -> (Lab, Program, [Repeating; 2], [Counting; 2]) {
    let worker = WorkerOptions { cpu: None, mode: Mode::Adaptive, ..WorkerOptions::default() };
    let engine = Engine::start(&Options { workers: vec![worker], frames: 4096 }).unwrap();
    let lab = Lab { engine };
    let sources = [(); 2].map(|()| Repeating::new(&packet(), 0));
    let targets = [(); 2].map(|()| Counting::with_room(usize::MAX));
    for (number, (source, target)) in sources.iter().zip(&targets).enumerate() {
        let ifindex = 11 + 2 * number as u32;
        let name = format!("to{number}");
        let from = lab.add(&format!("from{number}"), ifindex, Box::new(source.clone()));
        lab.add(&name, ifindex + 1, Box::new(Sends(target.clone())));
        lab.upper(from, &name);
    }
    let program = program(exec);
    let first = lab.engine.read(|_, snapshot| snapshot.port_of_ifindex(11).unwrap().id);
    lab.attach(first, &program);
    (lab, program, sources, targets)
}

/// Longer than a busy machine keeps a thread waiting.
const PATIENCE: Duration = Duration::from_secs(2);
const EXECS: [Exec; 2] = [Exec::Interp, Exec::Jit];

#[test]
fn a_program_that_does_not_return_is_told_of_stopped_and_in_the_end_halted() {
    for exec in EXECS {
        let (lab, program, [stuck, neighbour], [behind, beside]) = scene(exec);
        lab.engine.set_patience(PATIENCE);
        stuck.repeat(64 * (STOPS_MAX as usize + 10));
        wait_for("somebody to tell", || !lab.engine.stuck().is_empty());
        let late = lab.engine.stuck();
        assert_eq!((late[0].worker, late[0].program.as_deref()), (0, Some("endless")));
        wait_for("its end", || program.standing().halted().is_some());
        neighbour.repeat(1000);
        wait_for("the neighbour's frames", || beside.count() == 1000);
        assert_eq!(program.standing().halted().map(|halt| halt.why), Some(Why::Stuck));
        let stops = lab.engine.take_stopped();
        assert_eq!(stops.len(), STOPS_MAX as usize, "{stops:?}");
        assert!(stops.iter().all(|stop| stop.program == "endless" && !stop.on_demand));
        assert!(stops[STOPS_MAX as usize - 1].is_halted);
        // Its first time costs the others most.
        assert!(stops[0].after >= PATIENCE, "{stops:?}");
        assert!(stops[1..].iter().all(|stop| stop.after < PATIENCE), "{stops:?}");
        wait_for("nobody to be late", || lab.engine.stuck().is_empty());
        // It stays where it is, and lets nothing through.
        let first = lab.engine.read(|_, snapshot| snapshot.port_of_ifindex(11).unwrap().id);
        let aborted = || lab.sum(first, |it| it.drops[DropReason::Aborted as usize].get());
        wait_for("all to be dropped", || aborted() == 64 * (u64::from(STOPS_MAX) + 10));
        assert_eq!(behind.count(), 0);
        lab.check_conservation();
    }
}

/// The burst that a worker is at is in its hands, and not lost, however long it takes.
#[test]
fn what_a_stuck_worker_has_in_hand_is_held_and_not_missing() {
    let (lab, _, [stuck, _], _) = scene(Exec::Jit);
    lab.engine.set_patience(Duration::from_secs(3600));
    stuck.repeat(BURST);
    wait_for("somebody to tell", || !lab.engine.stuck().is_empty());
    let frames = lab.engine.conservation();
    assert_eq!((frames.received, frames.held, frames.missing()), (BURST as u64, BURST as u64, 0));
    assert!(!frames.is_settled());
    let first = lab.engine.read(|_, snapshot| snapshot.port_of_ifindex(11).unwrap().id);
    lab.engine.change(|config| config.set_links(first, Hook::Rx, vec![])).unwrap();
    lab.check_conservation();
}

/// Workers that the machine hardly lets run, in the middle of bursts as well, lose nothing.
#[test]
fn nothing_is_missing_on_a_starved_machine() {
    let lab = Lab::new();
    let (source, target) = (Repeating::new(&packet(), 0), Counting::with_room(usize::MAX));
    let from = lab.add("from", 11, Box::new(source.clone()));
    lab.add("to", 12, Box::new(Sends(target)));
    lab.upper(from, "to");
    let is_over = AtomicBool::new(false);
    let others = 8 * std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let start = Instant::now();
        let mut held = 0;
        while start.elapsed() < Duration::from_secs(2) {
            source.repeat(1000);
            std::thread::sleep(Duration::from_millis(1));
            let frames = lab.engine.conservation();
            held = frames.held.max(held);
            if frames.missing() != 0 {
                is_over.store(true, Ordering::Relaxed);
            }
            assert_eq!(frames.missing(), 0, "{frames:?}");
        }
        is_over.store(true, Ordering::Relaxed);
        eprintln!("{held} were held at most");
    });
    lab.check_conservation();
}

#[test]
fn who_waits_for_a_worker_is_answered() {
    for exec in EXECS {
        let (lab, program, [stuck, neighbour], [_, beside]) = scene(exec);
        // By itself it would never be stopped.
        lab.engine.set_patience(Duration::from_secs(3600));
        stuck.repeat(1_000_000);
        wait_for("somebody to tell", || !lab.engine.stuck().is_empty());
        let first = lab.engine.read(|_, snapshot| snapshot.port_of_ifindex(11).unwrap().id);
        let start = Instant::now();
        lab.engine.change(|config| config.set_links(first, Hook::Rx, vec![])).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20), "unloaded in {:?}", start.elapsed());
        assert!(lab.engine.take_stopped().iter().all(|stop| stop.on_demand));
        assert_eq!(program.standing().stops(), 0, "it does not count");
        neighbour.repeat(1000);
        wait_for("the neighbour's frames", || beside.count() == 1000);

        lab.engine
            .change(|config| config.set_links(first, Hook::Rx, vec![link(&program)]))
            .unwrap();
        stuck.repeat(1_000_000);
        wait_for("somebody to tell", || !lab.engine.stuck().is_empty());
        let start = Instant::now();
        lab.engine.stop();
        assert!(start.elapsed() < Duration::from_secs(20), "ended in {:?}", start.elapsed());
        assert_eq!(lab.engine.conservation().missing(), 0);
    }
}
