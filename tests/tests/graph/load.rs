//! Reported load of workers, beside their actual one: none, or one program without end.

use std::time::{Duration, Instant};

use towpath_engine::{Engine, Hook, Mode, Options, WorkerLoad, WorkerOptions};
use towpath_workload::small;
use towpath_xdp::{Exec, LoadOptions, Program};

use super::counting::{Counting, Sends};
use super::repeating::Repeating;
use super::{Lab, packet, wait_for};

/// Two workers; all queues of these ports are the first one's.
fn lab(mode: Mode) -> Lab {
    let workers = vec![WorkerOptions { cpu: None, mode, ..WorkerOptions::default() }; 2];
    Lab { engine: Engine::start(&Options { workers, frames: 4096 }).unwrap() }
}

fn load(lab: &Lab, worker: usize) -> WorkerLoad {
    lab.engine.loads().swap_remove(worker)
}

#[test]
fn who_finds_nothing_does_not_work_however_much_it_looks() {
    for mode in [Mode::Adaptive, Mode::Busy] {
        let lab = lab(mode);
        lab.add("idle", 11, Box::new(Repeating::new(&packet(), 0)));
        std::thread::sleep(Duration::from_millis(100));
        for it in lab.engine.loads() {
            assert_eq!((it.worked, it.received), (Duration::ZERO, 0), "{mode:?} {it:?}");
            assert!(it.programs.is_empty(), "{it:?}");
        }
    }
}

#[test]
fn who_is_in_a_program_works_all_the_time_and_says_in_which() {
    let lab = lab(Mode::Adaptive);
    lab.engine.set_patience(Duration::from_secs(3600));
    let source = Repeating::new(&packet(), 0);
    let from = lab.add("from", 11, Box::new(source.clone()));
    let options = LoadOptions { workers: 2, exec: Exec::Jit, ..LoadOptions::default() };
    lab.attach(from, &Program::from_linked(small::endless(), &options).unwrap());
    source.repeat(1);
    wait_for("a frame", || load(&lab, 0).received == 1);
    // Each reading of the one clock lies between two of another one.
    let read = || {
        let before = Instant::now();
        let worked = load(&lab, 0).worked;
        (before, worked, Instant::now())
    };
    let (first, then) = (read(), {
        std::thread::sleep(Duration::from_millis(50));
        read()
    });
    let worked = then.1 - first.1;
    assert!(worked >= then.0 - first.2 && worked <= then.2 - first.0, "{worked:?}");
    assert_eq!(load(&lab, 1).worked, Duration::ZERO, "the other one has no queue");
    wait_for("most looks to be in it", || {
        let programs = load(&lab, 0).programs;
        programs.first().is_some_and(|(it, share)| it.program() == "endless" && *share > 0.9)
    });
    lab.engine.change(|config| config.set_links(from, Hook::Rx, vec![])).unwrap();
}

#[test]
fn what_was_done_is_counted_and_ends() {
    let lab = lab(Mode::Adaptive);
    let (source, target) = (Repeating::new(&packet(), 0), Counting::with_room(usize::MAX));
    let from = lab.add("from", 11, Box::new(source.clone()));
    lab.add("to", 12, Box::new(Sends(target.clone())));
    lab.upper(from, "to");
    let start = Instant::now();
    source.repeat(10_000);
    wait_for("frames", || target.count() == 10_000);
    let after = start.elapsed();
    // It works no more once a round has found nothing.
    wait_for("a pause", || {
        let (one, other) = (load(&lab, 0).worked, load(&lab, 0).worked);
        one == other
    });
    let it = load(&lab, 0);
    assert_eq!((it.received, it.taken_over), (10_000, 0));
    assert!(it.worked > Duration::ZERO, "{it:?}");
    // The machine may have kept the worker from its pause: that is all there may be beside.
    assert!(it.worked <= after.max(start.elapsed()), "{it:?} {after:?}");
}
