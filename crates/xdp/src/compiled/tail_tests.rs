//! Tests of tail calls between programs with any combination of executors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use towpath_bpf::MapDef;
use towpath_bpf::btf::Btf;
use towpath_bpf::insn::*;
use towpath_bpf::program::MapType;
use towpath_bpf::proto::id;
use towpath_bpf::verifier::{Options, verify};
use towpath_maps::{AnyEnvironment, Map};

use super::Exec;
use crate::program::testing::{linked, load_over, map_def};
use crate::program::{LoadOptions, Shared};
use crate::{Burst, Frame, Program};

const MOV_K: u8 = BPF_ALU64 | BPF_MOV;
const MOV_X: u8 = BPF_ALU64 | BPF_MOV | BPF_X;
const EXIT: Insn = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
const ADD_ATOMIC: Insn = Insn::new(BPF_STX | BPF_ATOMIC | BPF_DW, 1, 2, 0, BPF_ADD as i32);

/// Programs that share a program array, each with its own counter.
struct World {
    shared: Shared,
    array: Arc<Map>,
}

impl World {
    fn new(slots: u32) -> World {
        World::of_workers(slots, 1)
    }

    fn of_workers(slots: u32, workers: usize) -> World {
        let shared = Shared::new(&LoadOptions { workers, ..LoadOptions::default() });
        let array = map(&shared, &map_def(MapType::ProgArray, 4, 4, slots));
        World { shared, array }
    }

    /// A program that counts, tries slot `slot`, and returns `otherwise`.
    fn step(&self, exec: Exec, slot: i32, otherwise: i32) -> Program {
        let mut insns = vec![Insn::new(MOV_X, 6, 1, 0, 0)];
        insns.extend(pair(1, PSEUDO_MAP_VALUE, 1));
        insns.extend([mov(2, 1), ADD_ATOMIC, Insn::new(MOV_X, 1, 6, 0, 0)]);
        insns.extend(pair(2, PSEUDO_MAP_FD, 0));
        insns.extend([mov(3, slot), call(id::TAIL_CALL), mov(0, otherwise), EXIT]);
        self.load(exec, &insns)
    }

    fn load(&self, exec: Exec, insns: &[Insn]) -> Program {
        let defs = [self.array.def().clone(), map_def(MapType::Array, 4, 8, 1)];
        let verified = verify(linked(insns, &defs), &Options::default()).unwrap();
        let maps = vec![Arc::clone(&self.array), map(&self.shared, &defs[1])];
        load_over(&self.shared, verified, maps, exec)
    }

    fn put(&self, slot: u32, program: &Program) {
        self.array.set_program(slot, program.id()).unwrap();
    }
}

fn map(shared: &Shared, def: &MapDef) -> Arc<Map> {
    shared.create_map(def, &Btf::default(), Arc::new(AnyEnvironment)).unwrap()
}

fn mov(register: u8, value: i32) -> Insn {
    Insn::new(MOV_K, register, 0, 0, value)
}

fn call(helper: u32) -> Insn {
    Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, helper as i32)
}

fn pair(register: u8, what: u8, number: i32) -> [Insn; 2] {
    [Insn::new(BPF_LD | BPF_IMM | BPF_DW, register, what, 0, number), Insn::default()]
}

/// Number of runs of a program.
fn runs(program: &Program) -> u64 {
    let value = program.maps().map(1).unwrap().user().lookup(&[0; 4], 0).unwrap();
    u64::from_le_bytes(value.bytes().try_into().unwrap())
}

/// A program's return value for each of two frames.
fn returned(program: &Program) -> [u32; 2] {
    program.wait_for_tier2(std::time::Duration::from_secs(60));
    let mut frames = [0, 1].map(|_| Frame::new(&[0; 60]).unwrap());
    let mut burst = Burst::default();
    program.run_burst(&mut program.worker(0), &mut frames, &mut burst).unwrap();
    assert!(burst.faults().is_empty(), "{:?}", burst.faults());
    [burst.returned(0), burst.returned(1)]
}

const ALL: [Exec; 3] = [Exec::Interp, Exec::Jit, Exec::Llvm];

#[test]
fn any_program_calls_any_other_and_each_has_its_own_maps() {
    for first in ALL {
        for second in ALL {
            for third in ALL {
                let world = World::new(2);
                let a = world.step(first, 0, 1);
                assert_eq!(returned(&a), [1; 2], "an empty slot falls through");
                let (b, c) = (world.step(second, 1, 2), world.step(third, 7, 3));
                world.put(0, &b);
                assert_eq!(returned(&a), [2; 2], "{first:?} {second:?}");
                world.put(1, &c);
                assert_eq!(returned(&a), [3; 2], "{first:?} {second:?} {third:?}");
                assert_eq!([&a, &b, &c].map(runs), [6, 4, 2]);
            }
        }
    }
}

#[test]
fn a_run_makes_33_tail_calls_whoever_makes_them() {
    for first in ALL {
        for second in ALL {
            let world = World::new(2);
            let (a, b) = (world.step(first, 1, 1), world.step(second, 0, 2));
            world.put(0, &a);
            world.put(1, &b);
            assert_eq!(returned(&a), [2; 2], "{first:?} {second:?}");
            assert_eq!([&a, &b].map(runs), [34, 34], "17 of each for each frame");
        }
    }
}

/// A program whose function `tail` makes a tail call; then it has `bpf_loop` call its function
/// `add`, which adds 1 to a word on the stack, and returns the word plus the result of `tail`.
fn caller() -> Vec<Insn> {
    let slot = |target: usize, at: usize| (target - at - 1) as i32;
    let (tail, add) = (13, 19);
    let mut insns = vec![
        Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 0),
        Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, slot(tail, 1)),
        Insn::new(MOV_X, 6, 0, 0, 0),
        mov(1, 5),
    ];
    insns.extend(pair(2, PSEUDO_FUNC, slot(add, 4)));
    insns.extend([
        Insn::new(MOV_X, 3, 10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 3, 0, 0, -8),
        mov(4, 0),
        call(id::LOOP),
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 0, 10, -8, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, 0, 6, 0, 0),
    ]);
    insns.push(EXIT);
    assert_eq!(insns.len(), tail);
    insns.extend(pair(2, PSEUDO_MAP_FD, 0));
    insns.extend([mov(3, 0), call(id::TAIL_CALL), mov(0, 9), EXIT]);
    assert_eq!(insns.len(), add);
    insns.extend([
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 3, 2, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 3, 0, 0, 1),
        Insn::new(BPF_STX | BPF_MEM | BPF_DW, 2, 3, 0, 0),
        mov(0, 0),
        EXIT,
    ]);
    insns
}

#[test]
fn the_caller_of_a_function_that_was_left_goes_on_as_itself() {
    for first in ALL {
        for second in ALL {
            let world = World::new(1);
            let a = world.load(first, &caller());
            let b = world.step(second, 7, 10);
            world.put(0, &b);
            assert_eq!(returned(&a), [15; 2], "{first:?} {second:?}");
        }
    }
}

#[test]
fn any_number_of_programs_is_found() {
    for exec in ALL {
        let world = World::new(1);
        let a = world.step(exec, 0, 1);
        // More than the first table of programs has room for.
        let many: Vec<Program> =
            (0..200).map(|number| world.step(Exec::Interp, 7, 100 + number)).collect();
        for (number, program) in (0..).zip(&many) {
            world.put(0, program);
            assert_eq!(returned(&a), [100 + number; 2]);
        }
        // Ids that no program has.
        for id in [0, 100_000, u32::MAX] {
            world.array.set_program(0, id).unwrap();
            assert_eq!(returned(&a), [1; 2]);
        }
    }
}

#[test]
fn a_removed_program_is_not_called_and_goes_when_nobody_is_in_it() {
    for exec in ALL {
        let world = World::new(1);
        let (a, b) = (world.step(exec, 0, 1), world.step(exec, 7, 2));
        world.put(0, &b);
        assert_eq!(returned(&a), [2; 2]);
        let code = Arc::downgrade(b.code());
        world.shared.forget(&b);
        drop(b);
        assert!(code.upgrade().is_some(), "worker 0 was not quiescent since");
        assert_eq!(returned(&a), [1; 2]);
        world.shared.forget(&world.step(exec, 0, 0));
        assert!(code.upgrade().is_none(), "{exec:?}");
    }
}

#[test]
fn slots_change_while_bursts_run() {
    for exec in ALL {
        let world = World::of_workers(1, 2);
        let entry = world.step(exec, 0, 1);
        entry.wait_for_tier2(std::time::Duration::from_secs(60));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let bursts = || {
                let mut worker = entry.worker(1);
                let mut frames: Vec<_> = (0..64).map(|_| Frame::new(&[0; 60]).unwrap()).collect();
                let mut burst = Burst::default();
                while !is_over.load(Ordering::Relaxed) {
                    entry.run_burst(&mut worker, &mut frames, &mut burst).unwrap();
                    assert!(burst.faults().is_empty());
                    let known = |frame| [1, 2].contains(&burst.returned(frame));
                    assert!((0..frames.len()).all(known));
                }
            };
            scope.spawn(bursts);
            world.shared.domain().offline(0);
            for round in 0..200 {
                let how = ALL[round % 2];
                let called = world.step(how, 7, 2);
                world.put(0, &called);
                std::thread::yield_now();
                if round % 3 == 0 {
                    world.array.user().delete(&[0; 4]).unwrap();
                }
                world.shared.forget(&called);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(runs(&entry) > 0);
    }
}
