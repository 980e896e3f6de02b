//! Tests of code that is inlined in place of a helper call: both tiers are compared with the
//! interpreter.

use std::time::Duration;

use towpath_bpf::MapDef;
use towpath_bpf::insn::*;
use towpath_bpf::program::MapType;
use towpath_bpf::proto::id;
use towpath_jit::CodeCache;
use towpath_maps::Value;

use crate::program::testing::{linked, map_def};
use crate::{Action, Burst, Exec, Frame, LoadOptions, Program, RedirectTarget, Trust, Verdict};

const MOV_X: u8 = BPF_ALU64 | BPF_MOV | BPF_X;
const EXIT: Insn = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);

const fn mov(register: u8, value: i32) -> Insn {
    Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, register, 0, 0, value)
}

const fn call(helper: u32) -> Insn {
    Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, helper as i32)
}

/// The program in each way of running it, with and without guests' checks and masks.
fn in_all_ways(insns: &[Insn], maps: &[MapDef]) -> Vec<Program> {
    let mut ways = vec![
        (Exec::Interp, Trust::Verified, false),
        (Exec::Jit, Trust::Verified, true),
        (Exec::Jit, Trust::Guest, true),
    ];
    for exec in [Exec::Jit, Exec::Llvm] {
        if exec == Exec::Jit || towpath_jit::llvm_library().is_ok() {
            ways.extend([Trust::Verified, Trust::Guest].map(|trust| (exec, trust, false)));
        }
    }
    let load = |(exec, trust, masked)| {
        let mut options = LoadOptions { exec, ..LoadOptions::default() };
        (options.jit.trust, options.jit.cache) = (trust, CodeCache::Off);
        options.jit.mask_speculation = masked;
        let program = Program::from_linked(linked(insns, maps), &options).unwrap();
        program.wait_for_tier2(Duration::from_secs(60));
        assert_eq!(program.exec(), exec);
        program
    };
    ways.into_iter().map(load).collect()
}

fn run(program: &Program) -> Verdict {
    let mut frame = Frame::new(&[0; 64]).unwrap();
    program.run(&mut program.worker(0), &mut frame).unwrap()
}

/// Adds up the keys, and leaves each key plus one in its value, up to the key `last`. Returns a
/// thousand times the number of elements visited, and the sum.
fn walk(last: i32) -> Vec<Insn> {
    vec![
        Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 0),
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0),
        Insn::default(),
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_FUNC, 0, 9),
        Insn::default(),
        Insn::new(MOV_X, 3, 10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, 3, 0, 0, -8),
        mov(4, 0),
        call(id::FOR_EACH_MAP_ELEM),
        Insn::new(BPF_ALU64 | BPF_MUL | BPF_K, 0, 0, 0, 1000),
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 1, 10, -8, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, 0, 1, 0, 0),
        EXIT,
        // The callback: map, key, value, context.
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 5, 2, 0, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 1, 4, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, 1, 5, 0, 0),
        Insn::new(BPF_STX | BPF_MEM | BPF_DW, 4, 1, 0, 0),
        Insn::new(MOV_X, 1, 5, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, 1),
        Insn::new(BPF_STX | BPF_MEM | BPF_DW, 3, 1, 0, 0),
        mov(0, 0),
        Insn::new(BPF_JMP | BPF_JNE | BPF_K, 5, 0, 1, last),
        mov(0, 1),
        EXIT,
    ]
}

/// The first word of this worker's value.
fn value(program: &Program, key: u32) -> u64 {
    let word = |bytes: &[u8]| u64::from_ne_bytes(*bytes.first_chunk().unwrap());
    match program.maps().map(0).unwrap().user().lookup(&key.to_ne_bytes(), 0).unwrap() {
        Value::One(bytes) => word(&bytes),
        Value::PerCpu(all) => word(&all[0]),
    }
}

#[test]
fn walks_over_arrays_visit_what_the_interpreter_visits() {
    for kind in [MapType::Array, MapType::PercpuArray] {
        // 5000 is more than there are keys in memory.
        for (entries, last, returned) in
            [(10, 99, 10_045), (10, 4, 5_010), (1, 0, 1_000), (5000, 49, 51_225)]
        {
            for program in in_all_ways(&walk(last), &[map_def(kind, 4, 12, entries)]) {
                let way = (program.exec(), kind, entries, last);
                assert_eq!(run(&program).returned, returned, "{way:?}");
                for key in 0..entries.min(60) {
                    let is_visited = key as i32 <= last;
                    let wanted = if is_visited { u64::from(key) + 1 } else { 0 };
                    assert_eq!(value(&program, key), wanted, "{way:?}");
                }
            }
        }
    }
}

#[test]
fn walks_with_flags_visit_nothing() {
    let mut insns = walk(99);
    insns[7] = mov(4, 1);
    for program in in_all_ways(&insns, &[map_def(MapType::Array, 4, 12, 4)]) {
        assert_eq!(run(&program).returned as i32, -22 * 1000, "EINVAL");
        assert_eq!(value(&program, 0), 0);
    }
}

#[test]
fn redirects_by_a_table_lead_where_it_says() {
    for (key, device) in [(77, Some(5)), (77 + 4, Some(9)), (78, None), (0, None)] {
        let insns = [
            Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0),
            Insn::default(),
            mov(2, key),
            mov(3, Action::Pass as i32),
            call(id::REDIRECT_MAP),
            EXIT,
        ];
        for program in in_all_ways(&insns, &[map_def(MapType::DevmapHash, 4, 4, 4)]) {
            let map = program.maps().map(0).unwrap();
            for (key, device) in [(77u32, 5u32), (77 + 4, 9)] {
                let device = Value::One(device.to_ne_bytes().to_vec());
                map.user().update(&key.to_ne_bytes(), &device, 0).unwrap();
            }
            let verdict = run(&program);
            let found = match &verdict.target {
                Some(RedirectTarget::Entry { key: by, entry, .. }) => {
                    assert_eq!(*by, key as u32);
                    Some(entry.number)
                }
                _ => None,
            };
            assert_eq!(found, device, "{:?}: {verdict:?}", program.exec());
            let wanted = if device.is_some() { Action::Redirect } else { Action::Pass };
            assert_eq!(verdict.action, wanted);
        }
    }
}

#[test]
fn ticks_are_those_of_the_burst() {
    let insns = [call(id::JIFFIES64), EXIT];
    for program in in_all_ways(&insns, &[]) {
        for (seconds, ticks) in [(8, 2000), (9, 2250)] {
            program.surroundings().clock.set(seconds * 1_000_000_000);
            let since = run(&program).returned.wrapping_add(300 * 250);
            assert_eq!(since, ticks, "{:?}", program.exec());
        }
    }
}

/// A record is reserved without asking which frame it is for; the helper that follows turns to the
/// frame, and must not take the record away.
#[test]
fn records_outlast_what_turns_to_their_frame() {
    let insns = [
        Insn::new(MOV_X, 6, 1, 0, 0),
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0),
        Insn::default(),
        mov(2, 8),
        mov(3, 0),
        call(id::RINGBUF_RESERVE),
        Insn::new(BPF_JMP | BPF_JEQ, 0, 0, 9, 0),
        Insn::new(MOV_X, 7, 0, 0, 0),
        Insn::new(MOV_X, 1, 6, 0, 0),
        mov(2, 0),
        Insn::new(MOV_X, 3, 7, 0, 0),
        mov(4, 8),
        call(id::XDP_LOAD_BYTES),
        Insn::new(MOV_X, 1, 7, 0, 0),
        mov(2, 0),
        call(id::RINGBUF_SUBMIT),
        mov(0, 2),
        EXIT,
    ];
    for program in in_all_ways(&insns, &[map_def(MapType::Ringbuf, 0, 0, 4096)]) {
        let mut frames: Vec<Frame> =
            (1..=3u8).map(|byte| Frame::new(&[byte; 64]).unwrap()).collect();
        let mut burst = Burst::default();
        program.run_burst(&mut program.worker(0), &mut frames, &mut burst).unwrap();
        let mut seen = Vec::new();
        program.maps().maps()[0].take_records(|record| seen.push(record[7]));
        assert_eq!(seen, [1, 2, 3], "{:?}", program.exec());
    }
}

/// Moves the packet's start by its first word, behind `meta` bytes of metadata; marks the first
/// byte where that worked.
fn move_head(meta: i32) -> Vec<Insn> {
    vec![
        Insn::new(MOV_X, 6, 1, 0, 0),
        mov(2, -meta),
        call(id::XDP_ADJUST_META),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 2, 6, 0, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 3, 6, 4, 0),
        Insn::new(MOV_X, 4, 2, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, 4, 0, 0, 4),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 12, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 2, 2, 0, 0),
        Insn::new(MOV_X, 1, 6, 0, 0),
        call(id::XDP_ADJUST_HEAD),
        Insn::new(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 8, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 2, 6, 0, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 3, 6, 4, 0),
        Insn::new(MOV_X, 4, 2, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, 4, 0, 0, 14),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 3, 0),
        Insn::new(BPF_ST | BPF_MEM | BPF_B, 2, 0, 13, 0x55),
        mov(0, 2),
        EXIT,
        mov(0, 1),
        EXIT,
    ]
}

#[test]
fn the_start_is_moved_as_far_as_the_helper_moves_it() {
    // 256 bytes of headroom, of which 40 are the frame's own; 14 of 64 bytes stay.
    let moves = [i32::MIN, -217, -216, -215, -209, -208, -14, -1, 0, 1, 49, 50, 51, i32::MAX];
    for meta in [0, 8] {
        let ways = in_all_ways(&move_head(meta), &[]);
        for delta in moves {
            let results: Vec<_> = ways
                .iter()
                .map(|program| {
                    let mut bytes = [7; 64];
                    bytes[..4].copy_from_slice(&delta.to_le_bytes());
                    let mut frame = Frame::new(&bytes).unwrap();
                    let verdict = program.run(&mut program.worker(0), &mut frame).unwrap();
                    (verdict.returned, frame.to_vec(), frame.own().unwrap().metadata().to_vec())
                })
                .collect();
            assert!(
                results.iter().all(|result| *result == results[0]),
                "{meta} {delta} {results:?}"
            );
            let fits = (meta - 216..=50).contains(&delta);
            assert_eq!(results[0].0 == 2, fits, "{meta} {delta}");
        }
    }
}
