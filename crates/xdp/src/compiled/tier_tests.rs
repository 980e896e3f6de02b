//! Tests of programs that cannot run as requested, and of changes between tiers.

use std::time::{Duration, Instant};

use towpath_bpf::insn::*;
use towpath_bpf::program::MapType;
use towpath_bpf::proto::id;
use towpath_jit::{CodeCache, Options};

use super::{Exec, ExecStatus};
use crate::program::testing::{linked, map_def};
use crate::{Burst, Frame, LoadOptions, Program};

const LONG: Duration = Duration::from_secs(60);

/// A program that counts frames in an array and returns the count modulo 4.
fn program(exec: Exec, change: impl FnOnce(&mut Options)) -> Program {
    let insn = Insn::new;
    let (mov, call) = (BPF_ALU64 | BPF_MOV, BPF_JMP | BPF_CALL);
    let insns = [
        insn(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0),
        insn(mov | BPF_X, 2, 10, 0, 0),
        insn(BPF_ALU64 | BPF_ADD, 2, 0, 0, -4),
        insn(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0),
        Insn::default(),
        insn(call, 0, 0, 0, id::MAP_LOOKUP_ELEM as i32),
        insn(BPF_JMP | BPF_JNE, 0, 0, 1, 0),
        insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        insn(BPF_LDX | BPF_MEM | BPF_DW, 1, 0, 0, 0),
        insn(BPF_ALU64 | BPF_ADD, 1, 0, 0, 1),
        insn(BPF_STX | BPF_MEM | BPF_DW, 0, 1, 0, 0),
        insn(mov | BPF_X, 0, 1, 0, 0),
        insn(BPF_ALU64 | BPF_AND, 0, 0, 0, 3),
        insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ];
    let mut options = LoadOptions { exec, ..LoadOptions::default() };
    options.jit.cache = CodeCache::Off;
    change(&mut options.jit);
    let maps = [map_def(MapType::Array, 4, 8, 1)];
    Program::from_linked(linked(&insns, &maps), &options).unwrap()
}

fn status_of(exec: Exec, change: impl FnOnce(&mut Options)) -> ExecStatus {
    let program = program(exec, change);
    program.wait_for_tier2(LONG);
    // The program runs with every executor.
    let mut frame = Frame::new(&[0; 60]).unwrap();
    assert_eq!(program.run(&mut program.worker(0), &mut frame).unwrap().returned, 1);
    program.exec_status()
}

#[track_caller]
fn assert_falls_back(status: ExecStatus, runs: Exec, why: &str) {
    assert_eq!(status.runs, runs, "{status:?}");
    let fallback = status.fallback.unwrap_or_default();
    assert!(fallback.contains(why), "{fallback}");
}

/// Whether this machine has a tier 2.
fn has_tier2() -> bool {
    program(Exec::Llvm, |_| {}).wait_for_tier2(LONG)
}

#[test]
fn what_runs_as_asked_has_nothing_to_explain() {
    for exec in [Exec::Interp, Exec::Jit] {
        let status = status_of(exec, |_| {});
        assert_eq!(status, ExecStatus { wanted: exec, runs: exec, fallback: None, measured: None });
    }
    let status = status_of(Exec::Llvm, |_| {});
    assert_eq!(status.fallback.is_none(), status.runs == Exec::Llvm, "{status:?}");
}

#[test]
fn without_llvm_tier_1_runs_and_says_so() {
    if let Err(why) = towpath_jit::llvm_library() {
        assert_falls_back(status_of(Exec::Llvm, |_| {}), Exec::Jit, &why);
    }
}

#[test]
fn a_program_too_large_for_tier_2_stays_on_tier_1() {
    let status = status_of(Exec::Llvm, |options| options.tier2_insts_max = 2);
    assert_falls_back(status, Exec::Jit, "the compiler takes at most 2");
}

#[test]
fn without_room_for_code_the_interpreter_runs() {
    for exec in [Exec::Jit, Exec::Llvm] {
        let status = status_of(exec, |options| options.code_bytes_max = 0);
        assert_falls_back(status, Exec::Interp, "exceed the limit of 0");
    }
}

#[test]
fn what_compiles_for_too_long_stays_on_tier_1() {
    let status = status_of(Exec::Llvm, |options| options.tier2_limit = Duration::ZERO);
    let why = if has_tier2() { "longer than 0ns" } else { "" };
    assert_falls_back(status, Exec::Jit, why);
    // Later programs do not wait behind it.
    program(Exec::Llvm, |_| {}).wait_for_tier2(LONG);
}

#[test]
fn frames_do_not_wait_for_tier_2_and_none_is_lost_to_it() {
    let program = program(Exec::Llvm, |_| {});
    let (mut worker, mut burst) = (program.worker(0), Burst::default());
    let (start, mut count, mut changed) = (Instant::now(), 0, false);
    // Bursts until the tier changed and some after that.
    let mut rounds_left = 100;
    while rounds_left > 0 && start.elapsed() < LONG {
        let upgraded = program.exec() == Exec::Llvm;
        changed |= upgraded;
        let mut frames = [(); 7].map(|()| Frame::new(&[0; 60]).unwrap());
        program.run_burst(&mut worker, &mut frames, &mut burst).unwrap();
        for frame in 0..frames.len() {
            count += 1;
            assert_eq!(burst.returned(frame), count & 3, "frame {count}");
        }
        rounds_left -= u32::from(upgraded || program.exec_status().fallback.is_some());
    }
    assert_eq!(changed, has_tier2());
}

#[test]
fn the_faster_tier_is_found_while_frames_go_on() {
    let program = program(Exec::Auto, |_| {});
    assert_eq!(program.exec(), Exec::Jit, "nothing is known yet");
    let has_tier2 = program.wait_for_tier2(LONG);
    let (mut worker, mut burst) = (program.worker(0), Burst::default());
    let mut count = 0;
    for _ in 0..400 {
        let mut frames = [(); 3].map(|()| Frame::new(&[0; 60]).unwrap());
        program.run_burst(&mut worker, &mut frames, &mut burst).unwrap();
        for frame in 0..frames.len() {
            count += 1;
            assert_eq!(burst.returned(frame), count & 3, "frame {count}");
        }
    }
    let status = program.exec_status();
    assert_eq!(status.wanted, Exec::Auto);
    assert_eq!(status.measured.is_some(), has_tier2, "{status:?}");
    if !has_tier2 {
        assert_falls_back(status, Exec::Jit, &towpath_jit::llvm_library().unwrap_err());
    }
}

#[test]
fn a_program_may_go_while_it_is_being_compiled() {
    for _ in 0..20 {
        drop(program(Exec::Llvm, |_| {}));
    }
    let last = program(Exec::Llvm, |_| {});
    let upgraded = last.wait_for_tier2(LONG);
    assert_eq!(upgraded, last.exec() == Exec::Llvm);
}

/// `bpf_probe_read_kernel` reads unchecked addresses, so a compiler must assume that it may read
/// any memory.
#[test]
fn callees_see_what_lies_behind_addresses_that_nobody_checks() {
    let insn = Insn::new;
    let (mov, add) = (BPF_ALU64 | BPF_MOV, BPF_ALU64 | BPF_ADD);
    let store = |offset, value| insn(BPF_ST | BPF_MEM | BPF_DW, 10, 0, offset, value);
    let insns = [
        store(-8, 4),
        store(-16, 3),
        store(-24, 0),
        insn(mov | BPF_X, 1, 10, 0, 0),
        insn(add, 1, 0, 0, -24),
        insn(mov, 2, 0, 0, 8),
        insn(mov | BPF_X, 3, 10, 0, 0),
        insn(add, 3, 0, 0, -16),
        insn(BPF_JMP | BPF_CALL, 0, 0, 0, id::PROBE_READ_KERNEL as i32),
        insn(BPF_LDX | BPF_MEM | BPF_DW, 0, 10, -24, 0),
        insn(BPF_LDX | BPF_MEM | BPF_DW, 1, 10, -8, 0),
        insn(add | BPF_X, 0, 1, 0, 0),
        insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ];
    for exec in [Exec::Interp, Exec::Jit, Exec::Llvm] {
        let mut options = LoadOptions { exec, ..LoadOptions::default() };
        options.jit.cache = CodeCache::Off;
        let program = Program::from_linked(linked(&insns, &[]), &options).unwrap();
        program.wait_for_tier2(LONG);
        let mut frame = Frame::new(&[0; 60]).unwrap();
        let returned = program.run(&mut program.worker(0), &mut frame).unwrap().returned;
        assert_eq!(returned, 7, "{exec:?}");
    }
}

/// The helper's prototype has the format and its size only.
#[test]
fn what_is_printed_is_handed_over() {
    let mut insns: Vec<Insn> = (0i16..)
        .zip(b"a=%d b=%llx c=%u\0")
        .map(|(at, &byte)| Insn::new(BPF_ST | BPF_MEM | BPF_B, 10, 0, at - 24, i32::from(byte)))
        .collect();
    let number = |reg, imm| Insn::new(BPF_ALU64 | BPF_MOV, reg, 0, 0, imm);
    insns.extend([
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 1, 10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 1, 0, 0, -24),
        number(2, 17),
        number(3, -5),
        number(4, -1),
        number(5, 7),
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::TRACE_PRINTK as i32),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ]);
    for exec in [Exec::Interp, Exec::Jit, Exec::Llvm] {
        if exec == Exec::Llvm && !has_tier2() {
            continue;
        }
        let options = LoadOptions { exec, ..LoadOptions::default() };
        let program = Program::from_linked(linked(&insns, &[]), &options).expect("a correct one");
        program.wait_for_tier2(Duration::from_secs(60));
        let mut frame = Frame::new(&[0; 60]).expect("a frame");
        program.run(&mut program.worker(0), &mut frame).expect("nothing can go wrong");
        let printed = program.surroundings().trace.take();
        assert_eq!(printed, ["a=-5 b=ffffffffffffffff c=7"], "{exec:?}");
    }
}
