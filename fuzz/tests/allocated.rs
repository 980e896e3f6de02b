//! Whatever a program does with objects of its own, it is the same in every way of running, and no
//! object is used again while somebody has it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use towpath_bpf::program::AttachType;
use towpath_bpf::verifier::{self, Verified};
use towpath_bpf::{Env, Object};
use towpath_maps::Map;
use towpath_xdp::{Exec, Frame, LoadOptions, Program, Trust};

/// Takes steps that the frame's bytes name.
const OBJECT: &[u8] = include_bytes!("../data/allocated.o");

/// What to do, and with which place.
type Step = (u8, u8);

#[test]
fn any_steps_do_the_same_in_every_way() {
    let verified = verified();
    bolero::check!().with_type::<Vec<Vec<Step>>>().for_each(|frames| {
        let interpreted = outcome(&verified, &LoadOptions::default(), frames);
        for trust in [Trust::Verified, Trust::Guest] {
            let mut options = LoadOptions { exec: Exec::Jit, ..LoadOptions::default() };
            options.jit.trust = trust;
            assert_eq!(outcome(&verified, &options, frames), interpreted, "{trust:?}");
        }
    });
}

#[test]
fn threads_leave_each_others_objects_alone() {
    let verified = verified();
    bolero::check!().with_type::<[Vec<Step>; WORKERS]>().for_each(|steps| {
        let options = LoadOptions { exec: Exec::Jit, workers: WORKERS, ..LoadOptions::default() };
        let program = Program::from_verified(verified.clone(), &options).expect("it was verified");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let user = scope.spawn(|| erase_places(&program, &is_over));
            let program = &program;
            let numbered = (0..).zip(steps);
            let workers: Vec<_> = numbered
                .map(|(number, steps)| scope.spawn(move || rounds(program, number, steps)))
                .collect();
            workers.into_iter().for_each(|worker| worker.join().expect("no fault"));
            is_over.store(true, Ordering::Relaxed);
            user.join().expect("it only deletes");
        });
        assert_eq!(total(&program, NOT_WHOLE), 0);
    });
}

/// What each frame's run returns, and how many objects were made.
fn outcome(verified: &Verified, options: &LoadOptions, frames: &[Vec<Step>]) -> (Vec<u32>, u64) {
    let program = Program::from_verified(verified.clone(), options).expect("it was verified");
    let mut worker = program.worker(0);
    let run = |steps: &Vec<Step>| {
        let ran = program.run(&mut worker, &mut frame(steps));
        ran.unwrap_or_else(|fault| panic!("accepted, but: {fault}")).returned
    };
    let returned = frames.iter().map(run).collect();
    assert_eq!(total(&program, NOT_WHOLE), 0);
    (returned, total(&program, MADE))
}

/// Takes the same steps again and again.
fn rounds(program: &Program, number: u32, steps: &[Step]) {
    let mut worker = program.worker(number);
    for _ in 0..ROUNDS {
        let ran = program.run(&mut worker, &mut frame(steps));
        ran.unwrap_or_else(|fault| panic!("accepted, but: {fault}"));
    }
    program.maps().domain().offline(number as usize);
}

/// Deletes what holds objects, as somebody who is no worker.
fn erase_places(program: &Program, is_over: &AtomicBool) {
    let slots = map(program, "slots");
    while !is_over.load(Ordering::Relaxed) {
        for place in 0..PLACES {
            let _absent = slots.user().delete(&place.to_le_bytes());
        }
        thread::yield_now();
    }
}

fn total(program: &Program, total: u32) -> u64 {
    let value = map(program, "totals").user().lookup(&total.to_le_bytes(), 0).expect("an array's");
    u64::from_le_bytes(value.bytes().try_into().expect("a number of 8 bytes"))
}

fn map<'p>(program: &'p Program, name: &str) -> &'p Map {
    program.maps().maps().iter().find(|map| map.name() == name).expect("the object has it")
}

fn frame(steps: &[Step]) -> Frame {
    let mut bytes = vec![0; 14];
    bytes.extend(steps.iter().take(STEPS_MAX).flat_map(|(step, place)| [*step, *place]));
    Frame::new(&bytes).expect("neither short nor long")
}

fn verified() -> Verified {
    let object = Object::open(OBJECT, "allocated.o").expect("as it was made");
    let linked = object.link(0, &Env::builtin()).expect("as it was made");
    assert_eq!(linked.attach, AttachType::Xdp);
    verifier::verify(linked, &verifier::Options::default()).expect("it is accepted")
}

const WORKERS: usize = 3;
/// Frames of each worker.
const ROUNDS: usize = 50;
/// Numbers of the array.
const MADE: u32 = 0;
const NOT_WHOLE: u32 = 1;
/// Those of `data/allocated.c`.
const PLACES: u32 = 4;
const STEPS_MAX: usize = 64;
