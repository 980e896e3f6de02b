//! Tests of the memory that a run lets a program access, and of helpers.

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::insn::*;
use towpath_bpf::interp::{Fault, Violation};
use towpath_bpf::program::{KfuncRef, MapType};
use towpath_bpf::proto::id;
use towpath_maps::{AnyEnvironment, Value};

use crate::program::Shared;
use crate::program::testing::{self, map_def};
use crate::{Action, Frame, LoadOptions, Program, RedirectTarget, Verdict};

const MOV_K: u8 = BPF_ALU64 | BPF_MOV;
const MOV_X: u8 = BPF_ALU64 | BPF_MOV | BPF_X;
const EXIT: Insn = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);

fn call(id: u32) -> Insn {
    Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id as i32)
}

fn mov(dst: u8, imm: i32) -> Insn {
    Insn::new(MOV_K, dst, 0, 0, imm)
}

/// `r{dst} = r10 + offset`
fn stack_pointer(dst: u8, offset: i32) -> [Insn; 2] {
    [Insn::new(MOV_X, dst, 10, 0, 0), Insn::new(BPF_ALU64 | BPF_ADD, dst, 0, 0, offset)]
}

fn map_pointer(dst: u8, index: i32) -> [Insn; 2] {
    [Insn::new(BPF_LD | BPF_IMM | BPF_DW, dst, PSEUDO_MAP_FD, 0, index), Insn::default()]
}

fn run(program: &Program, packet: &[u8]) -> Result<Verdict, Fault> {
    let mut frame = Frame::new(packet).unwrap();
    program.run(&mut program.worker(0), &mut frame)
}

/// Runs `insns` (r1 = context) and expects a memory violation; returns its reason.
fn refused(insns: &[Insn]) -> &'static str {
    let program = testing::program(insns, &[]);
    match run(&program, &[0; 64]).unwrap_err().violation {
        Violation::Memory { why, .. } => why,
        other => panic!("{other}"),
    }
}

#[test]
fn the_packet_ends_at_its_end() {
    let load = |at: i16, size: u8| {
        let data = Insn::new(BPF_LDX | BPF_MEM | BPF_W, 2, 1, 0, 0);
        [data, Insn::new(BPF_LDX | BPF_MEM | size, 0, 2, at, 0), EXIT]
    };
    let mut packet = vec![0; 64];
    packet[60] = 2;
    let verdict = run(&testing::program(&load(60, BPF_W), &[]), &packet).unwrap();
    assert_eq!(verdict.action, Action::Pass);
    let outside = "packet access outside [data_meta, data_end)";
    assert_eq!(refused(&load(61, BPF_W)), outside, "past the end");
    assert_eq!(refused(&load(-1, BPF_B)), outside, "headroom without metadata");
    assert_eq!(refused(&load(3000, BPF_B)), outside, "the rest of the buffer");
}

#[test]
fn context_and_stack_have_their_bounds() {
    let store = |size, dst, off| [Insn::new(BPF_ST | BPF_MEM | size, dst, 0, off, 0), EXIT];
    assert!(refused(&store(BPF_W, 1, 16)).contains("read-only"));
    assert!(refused(&[Insn::new(BPF_LDX | BPF_MEM | BPF_W, 0, 1, 2, 0), EXIT]).contains("4-byte"));
    assert!(refused(&[Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 0, 1, 0, 0), EXIT]).contains("4-byte"));
    assert!(refused(&store(BPF_DW, 10, -520)).contains("stack"));
    let unaligned =
        [Insn::new(BPF_STX | BPF_ATOMIC | BPF_DW, 10, 1, -12, i32::from(BPF_ADD)), EXIT];
    assert_eq!(refused(&unaligned), "an atomic is aligned to its size");
}

#[test]
fn redirects_are_part_of_the_verdict() {
    let insns = [mov(1, 7), mov(2, 0), call(id::REDIRECT), EXIT];
    let verdict = run(&testing::program(&insns, &[]), &[0; 64]).unwrap();
    assert_eq!(verdict.action, Action::Redirect);
    assert!(matches!(verdict.target, Some(RedirectTarget::Interface { ifindex: 7 })));

    let def = map_def(MapType::Devmap, 4, 4, 4);
    let mut insns = map_pointer(1, 0).to_vec();
    insns.extend([mov(2, 3), mov(3, 1), call(id::REDIRECT_MAP), EXIT]);
    let program = testing::program(&insns, &[def]);
    assert_eq!(run(&program, &[0; 64]).unwrap().action, Action::Drop, "a miss: the flags' action");
    let map = program.maps().map(0).unwrap();
    map.user().update(&3u32.to_ne_bytes(), &Value::One(vec![5, 0, 0, 0]), 0).unwrap();
    let verdict = run(&program, &[0; 64]).unwrap();
    let Some(RedirectTarget::Entry { key: 3, entry, .. }) = verdict.target else {
        panic!("{verdict:?}")
    };
    assert_eq!(entry.number, 5);
}

#[test]
fn loops_call_back_and_stop_when_told() {
    let round = |limit: i32| {
        let mut insns = vec![Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 0), mov(1, 100)];
        insns.push(Insn::new(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_FUNC, 0, 7));
        insns.push(Insn::default());
        insns.extend(stack_pointer(3, -8));
        insns.extend([mov(4, 0), call(id::LOOP), EXIT]);
        // The callback: *context += index; return index == limit.
        insns.push(EXIT);
        insns.truncate(9);
        insns.push(Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 3, 2, 0, 0));
        insns.push(Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, 3, 1, 0, 0));
        insns.push(Insn::new(BPF_STX | BPF_MEM | BPF_DW, 2, 3, 0, 0));
        insns.push(mov(0, 0));
        insns.push(Insn::new(BPF_JMP | BPF_JNE, 1, 0, 1, limit));
        insns.push(mov(0, 1));
        insns.push(EXIT);
        insns[2].imm = 6;
        run(&testing::program(&insns, &[]), &[0; 64]).unwrap().returned
    };
    assert_eq!(round(1000), 100);
    assert_eq!(round(41), 42);
}

#[test]
fn tail_calls_end_after_33() {
    // Counts its runs in map 1, then calls slot 0 of map 0.
    let mut insns = vec![Insn::new(MOV_X, 6, 1, 0, 0)];
    insns.push(Insn::new(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_MAP_VALUE, 0, 1));
    insns.push(Insn::default());
    insns.push(mov(3, 1));
    insns.push(Insn::new(BPF_STX | BPF_ATOMIC | BPF_DW, 2, 3, 0, i32::from(BPF_ADD)));
    insns.push(Insn::new(MOV_X, 1, 6, 0, 0));
    insns.extend(map_pointer(2, 0));
    insns.extend([mov(3, 0), call(id::TAIL_CALL), mov(0, 2), EXIT]);
    let defs = [map_def(MapType::ProgArray, 4, 4, 1), map_def(MapType::Array, 4, 8, 1)];
    let program = testing::program(&insns, &defs);
    let count = || {
        let value = program.maps().map(1).unwrap().user().lookup(&[0; 4], 0).unwrap();
        u64::from_le_bytes(value.bytes().try_into().unwrap())
    };
    assert_eq!(run(&program, &[0; 64]).unwrap().action, Action::Pass);
    assert_eq!(count(), 1, "an empty slot falls through");
    program.maps().map(0).unwrap().set_program(0, program.id()).unwrap();
    assert_eq!(run(&program, &[0; 64]).unwrap().action, Action::Pass);
    assert_eq!(count(), 1 + 34);
}

/// Each tail call is made by a called function, so callers pile up, 33 times.
#[test]
fn tail_calls_leave_the_callers_of_functions() {
    // r0 = function(r1) + 1; the function calls slot 0 of map 0, and returns 5 when that fails.
    let mut insns = vec![Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 2)];
    insns.extend([Insn::new(BPF_ALU64 | BPF_ADD, 0, 0, 0, 1), EXIT]);
    insns.extend(map_pointer(2, 0));
    insns.extend([mov(3, 0), call(id::TAIL_CALL), mov(0, 5), EXIT]);
    let program = testing::program(&insns, &[map_def(MapType::ProgArray, 4, 4, 1)]);
    assert_eq!(run(&program, &[0; 64]).unwrap().returned, 6);
    program.maps().map(0).unwrap().set_program(0, program.id()).unwrap();
    assert_eq!(run(&program, &[0; 64]).unwrap().returned, 5 + 34);
}

#[test]
fn elements_are_walked_with_lent_keys() {
    // The callback adds *key to *context.
    let mut insns = vec![Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 0)];
    insns.extend(map_pointer(1, 0));
    insns.push(Insn::new(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_FUNC, 0, 7));
    insns.push(Insn::default());
    insns.extend(stack_pointer(3, -8));
    insns.extend([mov(4, 0), call(id::FOR_EACH_MAP_ELEM)]);
    insns.push(Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 0, 10, -8, 0));
    insns.push(EXIT);
    insns.push(Insn::new(BPF_LDX | BPF_MEM | BPF_W, 1, 2, 0, 0));
    insns.push(Insn::new(BPF_STX | BPF_ATOMIC | BPF_DW, 4, 1, 0, i32::from(BPF_ADD)));
    insns.extend([mov(0, 0), EXIT]);
    let program = testing::program(&insns, &[map_def(MapType::Array, 4, 8, 10)]);
    assert_eq!(run(&program, &[0; 64]).unwrap().returned, 45);
}

/// Prints [`PRINTED`].
fn printing() -> Program {
    let text = b"a=%d b=%llx\0";
    let mut insns = Vec::new();
    for (at, byte) in text.iter().enumerate() {
        let off = at as i16 - 16;
        insns.push(Insn::new(BPF_ST | BPF_MEM | BPF_B, 10, 0, off, i32::from(*byte)));
    }
    insns.extend(stack_pointer(1, -16));
    insns.extend([mov(2, text.len() as i32), mov(3, -5), mov(4, -1)]);
    insns.extend([mov(5, 0), call(id::TRACE_PRINTK), EXIT]);
    testing::program(&insns, &[])
}

const PRINTED: &str = "a=-5 b=ffffffffffffffff";

#[test]
fn printed_lines_are_kept() {
    let program = printing();
    assert_eq!(run(&program, &[0; 64]).unwrap().returned as usize, PRINTED.len());
    assert_eq!(program.surroundings().trace.take(), [PRINTED]);
}

/// Printing then costs no more than formatting, which tells the program a length.
#[test]
fn while_nobody_listens_no_line_is_made_and_no_lock_taken() {
    let program = printing();
    let trace = &program.surroundings().trace;
    let print = || run(&program, &[0; 64]).unwrap().returned as usize;
    let held = trace.hold();
    assert_eq!((print(), trace.lost()), (PRINTED.len(), 1), "somebody has the lock");
    trace.keep(false);
    assert_eq!((print(), trace.lost()), (PRINTED.len(), 1), "nobody asked for the lock");
    drop(held);
    print();
    assert_eq!(trace.take(), [""; 0]);
}

#[test]
fn ring_records_are_ours_only_until_they_are_submitted() {
    let reserve = |after: &[Insn]| {
        let mut insns = map_pointer(1, 0).to_vec();
        insns.extend([mov(2, 16), mov(3, 0), call(id::RINGBUF_RESERVE)]);
        insns.push(Insn::new(MOV_X, 6, 0, 0, 0));
        insns.push(Insn::new(BPF_ST | BPF_MEM | BPF_DW, 6, 0, 8, 0x55));
        insns.extend_from_slice(after);
        insns.extend([mov(0, 2), EXIT]);
        testing::program(&insns, &[map_def(MapType::Ringbuf, 0, 0, 4096)])
    };
    let submit = [Insn::new(MOV_X, 1, 6, 0, 0), mov(2, 0), call(id::RINGBUF_SUBMIT)];
    let program = reserve(&submit);
    assert_eq!(run(&program, &[0; 64]).unwrap().action, Action::Pass);
    let mut seen = Vec::new();
    program.maps().map(0).unwrap().ringbuf().unwrap().consume(|record| {
        seen.push(record.to_vec());
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(seen, [[0, 0, 0, 0, 0, 0, 0, 0, 0x55, 0, 0, 0, 0, 0, 0, 0]]);

    let touch = Insn::new(BPF_ST | BPF_MEM | BPF_B, 6, 0, 0, 1);
    let late = reserve(&[submit[0], submit[1], submit[2], touch]);
    assert!(run(&late, &[0; 64]).unwrap_err().to_string().contains("not memory"));
    let beyond = reserve(&[Insn::new(BPF_ST | BPF_MEM | BPF_B, 6, 0, 16, 1)]);
    assert!(run(&beyond, &[0; 64]).unwrap_err().to_string().contains("not memory"));
    let twice = reserve(&[submit, submit].concat());
    assert!(run(&twice, &[0; 64]).unwrap_err().to_string().contains("has reserved"));
}

#[test]
fn perf_samples_carry_the_start_of_the_packet() {
    let mut insns = vec![Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 7)];
    insns.extend(map_pointer(2, 0));
    // flags: 20 bytes of the packet, BPF_F_CURRENT_CPU
    insns.push(Insn::new(BPF_LD | BPF_IMM | BPF_DW, 3, 0, 0, -1));
    insns.push(Insn::new(0, 0, 0, 0, 20));
    insns.extend(stack_pointer(4, -8));
    insns.extend([mov(5, 8), call(id::PERF_EVENT_OUTPUT), EXIT]);
    let program = testing::program(&insns, &[map_def(MapType::PerfEventArray, 4, 4, 1)]);
    let perf = || program.maps().map(0).unwrap().perf().unwrap();
    assert_eq!(run(&program, &[9; 64]).unwrap().returned as i32, -2, "nobody opened the slot");
    perf().open_all(4096);
    assert_eq!(run(&program, &[9; 64]).unwrap().returned, 0);
    let mut want = vec![7, 0, 0, 0, 0, 0, 0, 0];
    want.extend([9; 20]);
    assert_eq!(perf().read(0), Some(want));
}

#[test]
fn a_throw_unwinds_every_function() {
    // The entry calls a function that throws 7; nothing after the call runs.
    let insns = [
        Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 2),
        mov(0, 2),
        EXIT,
        mov(1, 7),
        Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, 0),
        EXIT,
    ];
    let throws = |kfunc: &str| {
        let mut linked = testing::linked(&insns, &[]);
        linked.kfuncs.push(KfuncRef { name: kfunc.to_owned(), type_id: None, weak: true });
        run(&testing::load(linked), &[0; 64])
    };
    assert_eq!(throws("bpf_throw").unwrap().returned, 7);
    let fault = throws("bpf_future_thing").unwrap_err();
    assert_eq!((fault.insn, fault.to_string().contains("bpf_future_thing")), (4, true), "{fault}");
}

/// One program sets a timer and is dropped; the next program runs the timer, with the maps of the
/// first.
#[test]
fn a_timer_runs_with_the_maps_of_its_program() {
    let shared = Shared::new(&LoadOptions::default());
    let defs = [map_def(MapType::Array, 4, 16, 1), map_def(MapType::Array, 4, 8, 1)];
    let create = |def| shared.create_map(def, &Btf::default(), Arc::new(AnyEnvironment)).unwrap();
    let maps: Vec<_> = defs.iter().map(create).collect();
    // r6 = the timer: map 0's value; its function adds 1 to map 1's.
    let value = |dst: u8, map: i32| {
        [Insn::new(BPF_LD | BPF_IMM | BPF_DW, dst, PSEUDO_MAP_VALUE, 0, map), Insn::default()]
    };
    let mut insns = value(6, 0).to_vec();
    insns.push(Insn::new(MOV_X, 1, 6, 0, 0));
    insns.extend(map_pointer(2, 0));
    insns.extend([mov(3, 1), call(id::TIMER_INIT), Insn::new(MOV_X, 1, 6, 0, 0)]);
    insns.extend([Insn::new(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_FUNC, 0, 7), Insn::default()]);
    insns.extend([call(id::TIMER_SET_CALLBACK), Insn::new(MOV_X, 1, 6, 0, 0)]);
    insns.extend([mov(2, 0), mov(3, 0), call(id::TIMER_START), EXIT]);
    insns.extend(value(1, 1));
    insns.push(mov(2, 1));
    insns.push(Insn::new(BPF_STX | BPF_ATOMIC | BPF_DW, 1, 2, 0, i32::from(BPF_ADD)));
    insns.extend([mov(0, 0), EXIT]);
    let first =
        testing::load_unverified_over(&shared, testing::linked(&insns, &defs), maps.clone());
    let next = testing::linked(&[mov(0, 2), EXIT], &[]);
    let next = testing::load_unverified_over(&shared, next, Vec::new());
    assert_eq!(run(&first, &[0; 64]).unwrap().returned, 0);
    shared.forget(&first);
    drop(first);
    assert_eq!(run(&next, &[0; 64]).unwrap().returned, 2);
    let counted = maps[1].user().lookup(&[0; 4], 0).unwrap();
    assert_eq!(counted.bytes(), 1u64.to_ne_bytes());
}
