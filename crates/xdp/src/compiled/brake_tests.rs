//! Tests of programs that do not return, and programs that exceed their budget.

use std::time::{Duration, Instant};

use towpath_bpf::MapDef;
use towpath_bpf::insn::*;
use towpath_bpf::interp::Violation;
use towpath_bpf::program::MapType;
use towpath_bpf::proto::id;
use towpath_jit::CodeCache;
use towpath_workload::small::nested_loops;

use crate::program::testing::{linked, map_def};
use crate::standing::{OVER_MAX, Why};
use crate::{Burst, Exec, Frame, LoadOptions, Program, Trust, interrupt};

const EXIT: Insn = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);

const fn mov(register: u8, value: i32) -> Insn {
    Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, register, 0, 0, value)
}

const fn call(helper: u32) -> Insn {
    Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, helper as i32)
}

fn execs() -> &'static [Exec] {
    let all = &[Exec::Interp, Exec::Jit, Exec::Llvm];
    if towpath_jit::llvm_library().is_ok() { all } else { &all[..2] }
}

fn load(insns: &[Insn], maps: &[MapDef], exec: Exec) -> Program {
    let mut options = LoadOptions { exec, ..LoadOptions::default() };
    options.jit.cache = CodeCache::Off;
    let program = Program::from_linked(linked(insns, maps), &options).expect("it is correct");
    program.wait_for_tier2(Duration::from_secs(60));
    assert_eq!(program.exec(), exec);
    program
}

fn frames(count: usize) -> Vec<Frame> {
    (0..count).map(|_| Frame::new(&[0; 64]).expect("a packet")).collect()
}

/// Runs the program until it is asked to end; returns why it ended.
fn stopped(program: &Program) -> Vec<Violation> {
    let mut worker = program.worker(0);
    let brake = std::sync::Arc::clone(worker.brake());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let runs = scope.spawn(move || {
            tell.send(rustix::thread::gettid()).expect("somebody listens");
            let (mut frames, mut burst) = (frames(3), Burst::default());
            program.run_burst(&mut worker, &mut frames, &mut burst).expect("no timers");
            assert_eq!((burst.unanimous(), burst.len()), (Some(0), 3));
            burst.faults().iter().map(|(_, fault)| fault.violation.clone()).collect()
        });
        let thread = told.recv().expect("a thread");
        let start = Instant::now();
        while !runs.is_finished() {
            assert!(start.elapsed() < Duration::from_secs(20), "it does not end");
            if let Some(running) = brake.running() {
                assert_eq!(running.standing.expect("it is here").program(), "test");
                brake.ask(running.run);
                interrupt(thread);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        runs.join().expect("it does not panic")
    })
}

#[test]
fn a_program_that_does_not_return_ends_when_it_is_asked_to() {
    let key = Insn::new(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 1);
    let map = [Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0), Insn::default()];
    let key_address = [
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4),
    ];
    let lookup = [&[key][..], &map, &key_address, &[call(id::MAP_LOOKUP_ELEM)]].concat();
    let value_address = [
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 3, 10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, 3, 0, 0, -4),
        mov(4, 0),
    ];
    let update =
        [&[key][..], &map, &key_address, &value_address, &[call(id::MAP_UPDATE_ELEM)]].concat();
    // LLVM removes calls whose result is unused, so that the program returns by itself.
    let is_useful = |inner: &[Insn]| {
        inner.last().is_some_and(|call| call.imm.cast_unsigned() != id::MAP_LOOKUP_ELEM)
    };
    let random = vec![call(id::GET_PRANDOM_U32)];
    let inners = [vec![], random, vec![call(id::KTIME_GET_NS)], lookup, update];
    for inner in inners {
        for kind in [MapType::Hash, MapType::LruHash, MapType::Array] {
            let takes_time = |exec: &&Exec| **exec != Exec::Llvm || is_useful(&inner);
            for &exec in execs().iter().filter(takes_time) {
                let program = load(&nested_loops(&inner), &[map_def(kind, 4, 4, 8)], exec);
                let why = stopped(&program);
                assert_eq!(why, [Violation::Stopped], "{exec:?}, {kind:?}, {inner:?}");
            }
        }
    }
}

/// A program that updates an array's value, from another value of the map, as often as it has time.
fn updates(count: i32) -> Vec<Insn> {
    let map = [Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0), Insn::default()];
    let key = [
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4),
    ];
    let mut insns = vec![Insn::new(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0)];
    insns.extend([&map[..], &key, &[call(id::MAP_LOOKUP_ELEM)]].concat());
    insns.extend([
        Insn::new(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 2, 0),
        mov(0, 1),
        EXIT,
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 6, 0, 0, 0),
        mov(7, count),
        Insn::new(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 1),
    ]);
    let round = [
        &map[..],
        &key,
        &[
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 3, 6, 0, 0),
            mov(4, 0),
            call(id::MAP_UPDATE_ELEM),
            Insn::new(BPF_ALU64 | BPF_SUB | BPF_K, 7, 0, 0, 1),
        ],
    ]
    .concat();
    insns.extend_from_slice(&round);
    insns.push(Insn::new(BPF_JMP | BPF_JNE | BPF_K, 7, 0, -(round.len() as i16) - 1, 0));
    insns.extend([mov(0, 2), EXIT]);
    insns
}

fn guest(insns: &[Insn], maps: &[MapDef], exec: Exec) -> Program {
    let mut options = LoadOptions { exec, ..LoadOptions::default() };
    (options.jit.trust, options.jit.budget) = (Trust::Guest, Some(16384));
    options.limits.insns = 16384;
    options.burst_time = Some(Duration::from_millis(50));
    let program = Program::from_linked(linked(insns, maps), &options).expect("it is correct");
    assert_eq!(program.exec(), exec);
    program
}

#[test]
fn what_helpers_copy_is_taken_from_the_budget_and_the_rest_of_the_burst_is_given_up() {
    for exec in [Exec::Interp, Exec::Jit] {
        for bytes in [8, 256, 4096, 1 << 20] {
            let map = map_def(MapType::Array, 4, bytes, 2);
            let program = guest(&updates(2000), &[map], exec);
            let (mut worker, mut burst) = (program.worker(0), Burst::default());
            for round in 0..OVER_MAX {
                assert_eq!(program.standing().halted(), None, "{exec:?}, {bytes}: {round}");
                let mut frames = frames(64);
                program.run_burst(&mut worker, &mut frames, &mut burst).expect("no timers");
                assert_eq!(burst.unanimous(), Some(0), "all are aborted");
                let [(0, fault)] = burst.faults() else { panic!("{:?}", burst.faults()) };
                assert_eq!(fault.violation, Violation::Budget { limit: 16384 });
            }
            let why = program.standing().halted().map(|halt| halt.why);
            assert_eq!(why, Some(Why::Budget));
            program.run_burst(&mut worker, &mut frames(64), &mut burst).expect("no timers");
            assert_eq!((burst.unanimous(), burst.faults().len()), (Some(0), 0), "not run, aborted");
        }
    }
}

#[test]
fn what_is_within_its_budget_stays() {
    for exec in [Exec::Interp, Exec::Jit] {
        let program = guest(&updates(20), &[map_def(MapType::Array, 4, 8, 2)], exec);
        let (mut worker, mut burst) = (program.worker(0), Burst::default());
        for _ in 0..2 * OVER_MAX {
            program.run_burst(&mut worker, &mut frames(64), &mut burst).expect("no timers");
            assert_eq!(burst.unanimous(), Some(2), "{exec:?}: {:?}", burst.faults());
        }
        assert_eq!(program.standing().halted(), None);
    }
}
