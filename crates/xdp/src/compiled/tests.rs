//! Tests of guests' programs, for which a wrong verifier must be harmless.
//!
//! A test pass simulates the verifier's mistake: it moves each access of one class far away, after
//! all other passes and before the checks. If a check were missing, the test would crash.

use std::time::Duration;

use towpath_bpf::MapDef;
use towpath_bpf::insn::*;
use towpath_bpf::interp::Violation;
use towpath_bpf::program::MapType;
use towpath_bpf::proto::id;
use towpath_jit::passes::Pass;
use towpath_jit::xir::{Alias, Cond, Function, Op, Place};

use crate::program::testing::{linked, map_def};
use crate::{Exec, Frame, LoadOptions, Program, Trust};

const MOV_K: u8 = BPF_ALU64 | BPF_MOV;
const MOV_X: u8 = BPF_ALU64 | BPF_MOV | BPF_X;
const EXIT: Insn = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
/// Beyond any memory of the process that is near.
const FAR: i32 = 0x3000_0000;

const PACKET: Pass = Pass::new("packet", "moves packet accesses", |f, _| {
    displace(f, FAR, |alias| alias == Alias::Packet);
});
const PACKET_NEAR: Pass = Pass::new("near", "moves packet accesses a little", |f, _| {
    displace(f, 64, |alias| alias == Alias::Packet);
});
const PACKET_BEFORE: Pass = Pass::new("before", "moves packet accesses back", |f, _| {
    displace(f, -40, |alias| alias == Alias::Packet);
});
const MAP: Pass = Pass::new("map", "moves accesses to map values", |f, _| {
    displace(f, FAR, |alias| matches!(alias, Alias::Map(_)));
});
const STACK: Pass = Pass::new("stack", "moves stack accesses", |f, _| {
    displace(f, -FAR, |alias| alias == Alias::Stack);
});
const OTHER: Pass = Pass::new("other", "moves accesses to the packet and the rest", |f, _| {
    displace(f, FAR, |alias| matches!(alias, Alias::Other | Alias::Packet));
});
/// Compiles `if (value)` as `if (!value)`.
const NULL: Pass = Pass::new("null", "turns comparisons with null round", |f, _| {
    for inst in &mut f.insts {
        if let Op::Compare(cond @ (Cond::Eq | Cond::Ne), ..) = &mut inst.op {
            *cond = cond.negated();
        }
    }
});

fn displace(function: &mut Function, by: i32, wanted: impl Fn(Alias) -> bool) {
    let all = |place: &mut Place| {
        if wanted(place.alias) {
            place.offset += by;
        }
    };
    for inst in &mut function.insts {
        match &mut inst.op {
            Op::Load { place, .. } | Op::Store { place, .. } | Op::AtomicRmw { place, .. } => {
                all(place);
            }
            _ => {}
        }
    }
}

/// Runs a program with a mistake on both tiers, on the first one with and without masks; returns
/// the resulting packet and outcome.
fn run(
    insns: &[Insn],
    maps: &[MapDef],
    mistake: Option<Pass>,
    budget: Option<u32>,
) -> Vec<Result<u32, Violation>> {
    let has_tier2 = towpath_jit::llvm_library().is_ok();
    let tiers = [(Exec::Jit, false), (Exec::Jit, true), (Exec::Llvm, false)];
    let tiers = if has_tier2 { &tiers[..] } else { &tiers[..2] };
    let on = |&(exec, masked): &(Exec, bool)| {
        let mut options = LoadOptions { exec, ..LoadOptions::default() };
        (options.jit.trust, options.jit.budget) = (Trust::Guest, budget);
        options.jit.mask_speculation = masked;
        options.jit.passes.more.extend(mistake);
        options.jit.cache = towpath_jit::CodeCache::Off;
        let program = Program::from_linked(linked(insns, maps), &options).expect("a correct one");
        program.wait_for_tier2(Duration::from_secs(60));
        assert_ne!(program.exec(), Exec::Interp, "compiled");
        let packet: Vec<u8> = (0..64).collect();
        let mut frame = Frame::new(&packet).expect("a packet");
        let verdict = program.run(&mut program.worker(0), &mut frame);
        if mistake.is_some() {
            assert_eq!(frame.to_vec(), packet, "nothing is written");
            let user = program.maps().maps().first().map(|map| map.user().entries().count());
            assert!(user.is_none_or(|count| count <= 4));
        }
        verdict.map(|verdict| verdict.returned).map_err(|fault| fault.violation)
    };
    tiers.iter().map(on).collect()
}

fn expect_refused(insns: &[Insn], maps: &[MapDef], mistake: Pass) {
    for fine in run(insns, maps, None, None) {
        assert_eq!(fine, Ok(2), "{} without the mistake", mistake.name);
    }
    for outcome in run(insns, maps, Some(mistake), None) {
        assert!(matches!(outcome, Err(Violation::Memory { .. })), "{}: {outcome:?}", mistake.name);
    }
}

/// `if (data + 14 > data_end) return 1;` and then these, with r2 = data, r6 = the context.
pub(super) fn with_packet(then: &[Insn]) -> Vec<Insn> {
    let mut insns = vec![
        Insn::new(MOV_X, 6, 1, 0, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 2, 6, 0, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 3, 6, 4, 0),
        Insn::new(MOV_X, 4, 2, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 4, 0, 0, 14),
        Insn::new(BPF_JMP | BPF_JLE | BPF_X, 4, 3, 2, 0),
        Insn::new(MOV_K, 0, 0, 0, 1),
        EXIT,
    ];
    insns.extend_from_slice(then);
    insns.extend([Insn::new(MOV_K, 0, 0, 0, 2), EXIT]);
    insns
}

#[test]
fn packet_accesses_stay_in_the_packet() {
    let store = with_packet(&[Insn::new(BPF_ST | BPF_MEM | BPF_W, 2, 0, 8, 7)]);
    let load = with_packet(&[Insn::new(BPF_LDX | BPF_MEM | BPF_B, 5, 2, 13, 0)]);
    for mistake in [PACKET, PACKET_NEAR, PACKET_BEFORE] {
        expect_refused(&store, &[], mistake);
    }
    // The result is unused, so the load may be removed and then needs no check.
    let _either = run(&load, &[], Some(PACKET), None);
    let seen = with_packet(&[
        Insn::new(BPF_LDX | BPF_MEM | BPF_B, 5, 2, 13, 0),
        Insn::new(BPF_STX | BPF_MEM | BPF_DW, 10, 5, -8, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 0, 10, -8, 0),
        Insn::new(BPF_JMP | BPF_JNE, 0, 0, 1, 255),
        EXIT,
    ]);
    expect_refused(&seen, &[], PACKET);
}

#[test]
fn what_was_checked_before_the_packet_moved_is_checked_again() {
    let moved = with_packet(&[
        Insn::new(BPF_ST | BPF_MEM | BPF_B, 2, 0, 0, 0),
        Insn::new(MOV_X, 1, 6, 0, 0),
        Insn::new(MOV_K, 2, 0, 0, 0),
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::XDP_ADJUST_HEAD as i32),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 2, 6, 0, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 3, 6, 4, 0),
        Insn::new(MOV_X, 4, 2, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 4, 0, 0, 14),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 1, 0),
        Insn::new(BPF_ST | BPF_MEM | BPF_B, 2, 0, 1, 1),
    ]);
    expect_refused(&moved, &[], PACKET_NEAR);
}

fn lookup_and_count(map: i32) -> Vec<Insn> {
    vec![
        Insn::new(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 1),
        Insn::new(MOV_X, 2, 10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 2, 0, 0, -4),
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, map),
        Insn::default(),
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::MAP_LOOKUP_ELEM as i32),
        Insn::new(BPF_JMP | BPF_JEQ, 0, 0, 4, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 1, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 1, 0, 0, 1),
        Insn::new(BPF_STX | BPF_MEM | BPF_DW, 0, 1, 0, 0),
        Insn::new(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, 0, 0),
        Insn::new(MOV_K, 0, 0, 0, 2),
        EXIT,
    ]
}

#[test]
fn map_accesses_stay_in_the_map() {
    for kind in [MapType::Array, MapType::PercpuArray] {
        expect_refused(&lookup_and_count(0), &[map_def(kind, 4, 8, 4)], MAP);
    }
}

#[test]
fn null_is_no_value() {
    for kind in [MapType::Hash, MapType::LruHash, MapType::PercpuHash] {
        expect_refused(&lookup_and_count(0), &[map_def(kind, 4, 8, 4)], NULL);
    }
}

#[test]
fn stack_accesses_stay_in_the_frame() {
    // r5 = 0 or 8, not known which.
    let insns = with_packet(&[
        Insn::new(BPF_LDX | BPF_MEM | BPF_B, 5, 2, 0, 0),
        Insn::new(BPF_ALU64 | BPF_AND, 5, 0, 0, 8),
        Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 1),
        Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -16, 2),
        Insn::new(MOV_X, 4, 10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, 4, 5, 0, 0),
        Insn::new(BPF_STX | BPF_MEM | BPF_DW, 4, 5, -16, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 0, 4, -16, 0),
        Insn::new(BPF_JMP | BPF_JNE, 0, 0, 1, 255),
        EXIT,
    ]);
    expect_refused(&insns, &[], STACK);
}

#[test]
fn keys_in_the_packet_stay_there() {
    let mut insns = with_packet(&[
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0),
        Insn::default(),
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::MAP_LOOKUP_ELEM as i32),
        Insn::new(BPF_JMP | BPF_JEQ, 0, 0, 2, 0),
        Insn::new(MOV_K, 0, 0, 0, 3),
        EXIT,
    ]);
    expect_refused(&insns, &[map_def(MapType::Hash, 4, 8, 4)], OTHER);
    // The key's address itself, for a map whose function is called.
    insns[10] = Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::MAP_LOOKUP_ELEM as i32);
    let trie = MapDef { flags: 1, ..map_def(MapType::LpmTrie, 8, 8, 4) };
    for fine in run(&insns, &[trie], None, None) {
        assert_eq!(fine, Ok(2));
    }
}

#[test]
fn time_is_limited() {
    let insns = [
        Insn::new(MOV_K, 1, 0, 0, 1000),
        Insn::new(MOV_K, 0, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MUL, 0, 0, 0, 3),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, 0, 1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 1, 0, 0, -1),
        Insn::new(BPF_JMP | BPF_JNE, 1, 0, -4, 0),
        Insn::new(MOV_K, 0, 0, 0, 2),
        EXIT,
    ];
    assert!(run(&insns, &[], None, None).iter().all(|outcome| *outcome == Ok(2)));
    for outcome in run(&insns, &[], None, Some(500)) {
        // A loop whose result is unused may be removed, but its rounds still count.
        assert_eq!(outcome, Err(Violation::Budget { limit: 500 }));
    }
}
