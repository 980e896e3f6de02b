//! Behaviour of the whole verifier on programs of a few instructions; the parity harness has the
//! kernel's own tables.

mod dequeue;

use std::sync::Arc;

use crate::Errno;
use crate::btf::Btf;
use crate::insn::*;
use crate::program::{AttachType, KfuncRef, MapDef, MapType};

use super::*;

const MOV: u8 = BPF_ALU64 | BPF_MOV;
const MOV_REG: u8 = MOV | BPF_X;
const ADD: u8 = BPF_ALU64 | BPF_ADD;
const ADD_REG: u8 = ADD | BPF_X;
const EXIT: Insn = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
const LOAD_W: u8 = BPF_LDX | BPF_MEM | BPF_W;
const LOAD_B: u8 = BPF_LDX | BPF_MEM | BPF_B;
const LOOKUP: i32 = 1;

fn op(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn::new(code, dst, src, off, imm)
}

fn map(kind: MapType, value_size: u32) -> MapDef {
    MapDef::new("m", kind, 4, value_size, 4)
}

fn program(insns: Vec<Insn>) -> Linked {
    Linked {
        name: "test".to_owned(),
        section: "xdp".to_owned(),
        attach: AttachType::Xdp,
        has_frags: false,
        license: "GPL".to_owned(),
        insns,
        functions: Vec::new(),
        lines: Vec::new(),
        maps: vec![map(MapType::Hash, 16)].into(),
        unresolved: Vec::new(),
        kfuncs: Vec::new(),
        btf: None,
        kernel_btf: Arc::new(Btf::default()),
    }
}

fn accepted(insns: Vec<Insn>) -> Verified {
    match verify(program(insns), &Options::default()) {
        Ok(verified) => verified,
        Err(rejection) => panic!("{rejection}"),
    }
}

fn notes(insns: Vec<Insn>) -> Vec<(usize, String)> {
    let report = verify_with_log(program(insns), &Options::default());
    report.notes.into_iter().map(|note| (note.insn.index, note.message)).collect()
}

#[test]
fn keys_with_bytes_that_nothing_wrote_are_noted() {
    const STORE_B: u8 = BPF_ST | BPF_MEM | BPF_B;
    const STORE_W: u8 = BPF_ST | BPF_MEM | BPF_W;
    let look_up = |stores: &[Insn]| {
        let mut insns = stores.to_vec();
        insns.extend([op(MOV_REG, 2, 10, 0, 0), op(ADD, 2, 0, 0, -4)]);
        insns.extend([op(BPF_LD | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0), op(0, 0, 0, 0, 0)]);
        insns.extend([op(BPF_JMP | BPF_CALL, 0, 0, 0, LOOKUP), op(MOV, 0, 0, 0, 2), EXIT]);
        notes(insns)
    };
    assert_eq!(look_up(&[op(STORE_W, 10, 0, -4, 7)]), []);
    let told = look_up(&[op(STORE_B, 10, 0, -4, 7), op(STORE_B, 10, 0, -1, 7)]);
    let [(6, message)] = &told[..] else { panic!("{told:?}") };
    assert!(message.starts_with("nothing sets bytes 1 to 2 of the key of map m"), "{message}");
    let told = look_up(&[]);
    assert!(told[0].1.contains("bytes 0 to 3"), "{told:?}");
    // A key that lies partly outside of the stack is refused, and there is no other note.
    for off in [-3, -1, 0, 4] {
        let mut insns = vec![op(MOV_REG, 2, 10, 0, 0), op(ADD, 2, 0, 0, off)];
        insns.extend([op(BPF_LD | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0), op(0, 0, 0, 0, 0)]);
        insns.extend([op(BPF_JMP | BPF_CALL, 0, 0, 0, LOOKUP), op(MOV, 0, 0, 0, 2), EXIT]);
        assert_eq!(notes(insns), [], "{off}");
    }
}

fn rejected(insns: Vec<Insn>) -> Rejection {
    *verify(program(insns), &Options::default()).expect_err("the program is unsafe")
}

/// Verifies a program in an object with a hash map and two arenas.
fn with_arenas(insns: Vec<Insn>) -> Result<Verified, Box<Rejection>> {
    let mut linked = program(insns);
    let arena = || map(MapType::Arena, 0);
    linked.maps = vec![map(MapType::Hash, 16), arena(), arena()].into();
    verify(linked, &Options::default())
}

/// A cast needs an arena that the program itself names, not one of others in its object; as in the
/// kernel, names in dead code count, too.
#[test]
fn a_cast_needs_an_arena_that_the_program_names() {
    let cast = || vec![op(MOV, 0, 0, 0, 0), op(MOV_REG, 1, 0, 1, 1), op(MOV, 0, 0, 0, 2), EXIT];
    let none = with_arenas(cast()).expect_err("it names no arena");
    assert_eq!(none.errno, Errno::EINVAL);
    assert!(none.message.contains("has an associated arena"), "{none}");

    let load = |map| op(BPF_LD | BPF_DW | BPF_IMM, 1, PSEUDO_MAP_IDX, 0, map);
    let named = |maps: &[i32]| {
        let loads = maps.iter().flat_map(|map| [load(*map), op(0, 0, 0, 0, 0)]);
        with_arenas(loads.chain(cast()).collect())
    };
    assert_eq!(named(&[0]).expect_err("a hash map is no arena").errno, Errno::EINVAL);
    named(&[1, 1]).expect("it names one");
    let two = named(&[1, 2]).expect_err("it names two");
    assert_eq!((two.errno, two.message.as_str()), (Errno::EBUSY, "Only one arena per program"));
}

/// r2 = data, r3 = data_end, r4 = data + `bytes`.
fn packet(bytes: i32) -> Vec<Insn> {
    vec![
        op(LOAD_W, 2, 1, 0, 0),
        op(LOAD_W, 3, 1, 4, 0),
        op(MOV_REG, 4, 2, 0, 0),
        op(ADD, 4, 0, 0, bytes),
    ]
}

/// r0 = lookup of key 0 in the map.
fn lookup() -> Vec<Insn> {
    vec![
        op(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0),
        op(MOV_REG, 2, 10, 0, 0),
        op(ADD, 2, 0, 0, -4),
        op(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0),
        Insn::default(),
        op(BPF_JMP | BPF_CALL, 0, 0, 0, LOOKUP),
    ]
}

fn concat(parts: impl IntoIterator<Item = Vec<Insn>>) -> Vec<Insn> {
    parts.into_iter().flatten().collect()
}

#[test]
fn packet_bytes_must_be_proved_in_any_order_of_operands() {
    let unproved = vec![op(LOAD_W, 2, 1, 0, 0), op(LOAD_B, 0, 2, 0, 0), EXIT];
    let rejection = rejected(unproved);
    assert_eq!(rejection.message, "invalid access to packet, off=0 size=1, R2(id=0,off=0,r=0)");
    assert!(rejection.hint.contains("data_end"));
    assert_eq!(rejection.insn.as_ref().map(|insn| insn.index), Some(1));

    // Jumps over the load when it is outside: pkt > end, end < pkt, and with 14 bytes exactly.
    for (code, left, right) in [(BPF_JGT, 4, 3), (BPF_JLT, 3, 4)] {
        for (off, fits) in [(13, true), (14, false)] {
            let tail = vec![
                op(BPF_JMP | code | BPF_X, left, right, 1, 0),
                op(LOAD_B, 0, 2, off, 0),
                op(MOV, 0, 0, 0, 2),
                EXIT,
            ];
            let insns = concat([packet(14), tail]);
            let outcome = verify(program(insns), &Options::default());
            assert_eq!(outcome.is_ok(), fits, "{code:x} {off}");
        }
    }
}

#[test]
fn a_lookup_may_find_nothing() {
    let load = op(LOAD_B, 0, 0, 15, 0);
    let rejection = rejected(concat([lookup(), vec![load, EXIT]]));
    assert_eq!(rejection.message, "R0 invalid mem access 'map_value_or_null'");
    let checked = op(BPF_JMP | BPF_JEQ, 0, 0, 1, 0);
    let verified = accepted(concat([lookup(), vec![checked, load, EXIT]]));
    let fact = AccessFact::MapValue { map: 0, inner: false, offset: Some(15) };
    assert_eq!(verified.facts()[7].access, Some(fact));
    let rejection = rejected(concat([lookup(), vec![checked, op(LOAD_B, 0, 0, 16, 0), EXIT]]));
    assert_eq!(rejection.message, "invalid access to map value, value_size=16 off=16 size=1");
}

#[test]
fn an_index_is_as_good_as_its_bounds() {
    // r6 = a byte of the value, masked or not, added to the value's address.
    let tail = |mask: i32| {
        vec![
            op(BPF_JMP | BPF_JEQ, 0, 0, 4, 0),
            op(LOAD_B, 6, 0, 0, 0),
            op(BPF_ALU64 | BPF_AND, 6, 0, 0, mask),
            op(ADD_REG, 0, 6, 0, 0),
            op(LOAD_B, 0, 0, 0, 0),
            op(MOV, 0, 0, 0, 2),
            EXIT,
        ]
    };
    accepted(concat([lookup(), tail(15)]));
    let rejection = rejected(concat([lookup(), tail(31)]));
    assert!(rejection.message.starts_with("invalid access to map value"), "{rejection}");
}

/// Behind a look-up, r6 is 0 or 100 where two paths meet in front of `end`; its last two
/// instructions are where nothing was found. The short path is followed first.
fn two_paths_meet(end: [Insn; 4]) -> Vec<Insn> {
    let paths = vec![
        op(BPF_JMP | BPF_JEQ, 0, 0, 7, 0),
        op(LOAD_B, 7, 0, 0, 0),
        op(MOV, 6, 0, 0, 0),
        op(BPF_JMP | BPF_JEQ, 7, 0, 1, 0),
        op(BPF_JMP | BPF_JA, 0, 0, 1, 0),
        op(MOV, 6, 0, 0, 100),
    ];
    [lookup(), paths, end.to_vec()].concat()
}

#[test]
fn pruning_does_not_forget_a_number_that_matters() {
    // Only 0 may index 16 bytes: equality of the states must fail on r6.
    let read = [op(ADD_REG, 0, 6, 0, 0), op(LOAD_B, 0, 0, 0, 0), op(MOV, 0, 0, 0, 2), EXIT];
    let rejection = rejected(two_paths_meet(read));
    assert_eq!(rejection.message, "invalid access to map value, value_size=16 off=100 size=1");
}

#[test]
fn loops_must_count() {
    let endless = vec![op(MOV, 0, 0, 0, 0), op(BPF_JMP | BPF_JA, 0, 0, -1, 0), EXIT];
    assert!(rejected(endless).message.contains("unreachable insn"));
    let stuck = vec![
        op(LOAD_W, 6, 1, 12, 0),
        op(BPF_JMP | BPF_JEQ, 6, 0, -1, 7),
        op(MOV, 0, 0, 0, 0),
        EXIT,
    ];
    assert!(rejected(stuck).message.contains("infinite loop detected"));
    let counting =
        vec![op(MOV, 0, 0, 0, 0), op(ADD, 0, 0, 0, 1), op(BPF_JMP | BPF_JLT, 0, 0, -2, 1000), EXIT];
    assert!(accepted(counting).stats().insns_processed > 2000);
    let too_long = vec![
        op(MOV, 0, 0, 0, 0),
        op(ADD, 0, 0, 0, 1),
        op(BPF_JMP | BPF_JLT, 0, 0, -2, 10_000_000),
        EXIT,
    ];
    assert!(rejected(too_long).message.contains("too large"));
}

#[test]
fn spilled_pointers_come_back_whole() {
    let spill = op(BPF_STX | BPF_MEM | BPF_DW, 10, 1, -8, 0);
    let fill = |size: u8| op(BPF_LDX | BPF_MEM | size, 2, 10, -8, 0);
    let read = op(LOAD_W, 0, 2, 12, 0);
    accepted(vec![spill, fill(BPF_DW), read, EXIT]);
    let rejection = rejected(vec![spill, fill(BPF_W), read, EXIT]);
    assert_eq!(rejection.message, "invalid size of register fill");
    let overwrite = op(BPF_ST | BPF_MEM | BPF_B, 10, 0, -5, 0);
    let rejection = rejected(vec![spill, overwrite, fill(BPF_DW), read, EXIT]);
    assert_eq!(rejection.message, "R2 invalid mem access 'scalar'");
}

#[test]
fn the_stack_is_512_bytes_over_all_frames() {
    let store = |off: i16| op(BPF_ST | BPF_MEM | BPF_DW, 10, 0, off, 0);
    let result = op(MOV, 0, 0, 0, 0);
    accepted(vec![store(-512), result, EXIT]);
    let rejection = rejected(vec![store(-520), result, EXIT]);
    assert_eq!(rejection.message, "invalid write to stack R10 off=-520 size=8");
    let call = op(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 1);
    let deep = |off: i16| vec![store(off), call, EXIT, store(-256), result, EXIT];
    let verified = accepted(deep(-256));
    assert_eq!(verified.subprograms()[1].stack_bytes, 256);
    assert!(rejected(deep(-264)).message.starts_with("combined stack size of 2 calls is 528"));
    let call_itself = op(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, -1);
    let outcome = rejected(vec![call, EXIT, call_itself, result, EXIT]);
    assert!(outcome.message.contains("too deep"), "{outcome}");
}

#[test]
fn facts_tell_dead_branches_and_constants() {
    let insns =
        vec![op(MOV, 0, 0, 0, 5), op(BPF_JMP | BPF_JEQ, 0, 0, 1, 5), op(MOV, 0, 0, 0, 1), EXIT];
    let options = Options { every_number: true, ..Options::default() };
    let verified = verify(program(insns), &options).unwrap();
    let branch = &verified.facts()[1];
    assert_eq!(branch.branch, BranchFact { taken: true, fallthrough: false });
    assert_eq!(branch.dst.and_then(|range| range.constant()), Some(5));
    assert!(!verified.facts()[2].reachable);
}

/// No check depends on which of both values r6 has.
#[test]
fn what_is_said_of_numbers_holds_on_paths_that_ended_early_too() {
    let add = [op(ADD_REG, 6, 7, 0, 0), op(MOV_REG, 8, 6, 0, 0), op(MOV, 0, 0, 0, 2), EXIT];
    let options = Options { every_number: true, ..Options::default() };
    let verified = verify(program(two_paths_meet(add)), &options).unwrap();
    let range = verified.facts()[12].dst.unwrap();
    assert!(range.contains(0) && range.contains(100) && !range.contains(101), "{range:?}");
}

/// The kernel follows six copies of a number (`LINKED_REGS_MAX`): r6 is not among them.
#[test]
fn every_copy_is_bounded_where_every_number_counts() {
    let random = op(BPF_JMP | BPF_CALL, 0, 0, 0, 7);
    let copies = (1..=7).map(|to| op(MOV_REG, to, 0, 0, 0));
    let checked = [
        op(BPF_JMP | BPF_JGT, 7, 0, 4, 31),
        op(MOV_REG, 8, 10, 0, 0),
        op(ADD_REG, 8, 6, 0, 0),
        op(LOAD_B, 0, 8, -32, 0),
        EXIT,
        op(MOV, 0, 0, 0, 0),
        EXIT,
    ];
    let insns: Vec<_> = [random].into_iter().chain(copies).chain(checked).collect();
    let rejection = rejected(insns.clone());
    assert!(rejection.message.contains("unbounded"), "{rejection}");
    let options = Options { every_number: true, ..Options::default() };
    verify(program(insns), &options).unwrap();
}

/// The kernel lets programs read its structure of a map. In Towpath a number stands for the map,
/// which is no address, also if another path reads a value with the same instruction.
#[test]
fn a_map_pointer_is_not_read_like_memory() {
    let load = [op(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_MAP_FD, 0, 0), Insn::default()];
    let read = [op(LOAD_W, 3, 2, 0, 0), op(MOV, 0, 0, 0, 2), EXIT];
    let fact = |insns: Vec<Insn>, slot: usize| {
        let mut linked = program(insns);
        linked.kernel_btf = crate::Env::builtin().kernel_btf;
        linked.maps = vec![map(MapType::Array, 16)].into();
        verify(linked, &Options::default()).unwrap().facts()[slot].access
    };
    assert_eq!(fact([&load[..], &read].concat(), 2), Some(AccessFact::ProbeRead));
    // r2 = the value, or the map, as the value says.
    let value = [op(MOV_REG, 2, 0, 0, 0), op(LOAD_B, 4, 0, 0, 0)];
    let either = [&value[..], &[op(BPF_JMP | BPF_JNE, 4, 0, 2, 0)], &load].concat();
    let insns = concat([lookup(), either, read.to_vec()]);
    assert_eq!(fact(insns, 11), Some(AccessFact::ProbeRead));
}

/// As in 6.18: the opcode is known for any size, the operation is checked in reached code only.
#[test]
fn atomics_of_sizes_that_do_not_exist_are_refused_only_where_a_path_leads() {
    for size in [BPF_B, BPF_H] {
        let add = op(BPF_STX | BPF_ATOMIC | size, 10, 0, -8, i32::from(BPF_ADD));
        let start = [op(MOV, 0, 0, 0, 2), op(BPF_STX | BPF_MEM | BPF_DW, 10, 0, -8, 0)];
        let dead = [op(BPF_JMP | BPF_JEQ, 0, 0, 1, 2), add, EXIT];
        assert!(!accepted([&start[..], &dead].concat()).facts()[3].reachable);
        let rejection = rejected([&start[..], &[add, EXIT]].concat());
        assert_eq!(rejection.message, "invalid atomic operand size");
    }
}

#[test]
fn the_log_reads_as_the_kernels() {
    let options = Options { log_level: 2, ..Options::default() };
    let report = verify_with_log(program(vec![op(MOV, 0, 0, 0, 2), EXIT]), &options);
    assert!(report.log.contains("0: (b7) r0 = 2"), "{}", report.log);
    assert!(report.log.contains("processed 2 insns"), "{}", report.log);
}

#[test]
fn a_number_of_a_may_goto_loop_becomes_unknown() {
    // r0 = 67; do r0 *= 31; while (may_goto);
    accepted(vec![
        op(MOV, 0, 0, 0, 67),
        op(BPF_ALU64 | BPF_MUL, 0, 0, 0, 31),
        op(BPF_JMP | BPF_JCOND, 0, 0, 1, 0),
        op(BPF_JMP | BPF_JA, 0, 0, -3, 0),
        EXIT,
    ]);
}

/// `for (;;) { new(); next(); destroy(); written = 2; }`: each iterator ends, the loop doesn't.
#[test]
fn an_endless_loop_around_an_iterator_is_no_end_of_it() {
    let write = op(BPF_STX | BPF_MEM | BPF_DW, REG_FP, 8, -8, 0);
    endless_around_an_iterator(write);
    // The same loop without any change.
    endless_around_an_iterator(op(MOV_REG, 9, 8, 0, 0));
}

fn endless_around_an_iterator(last: Insn) {
    let on_iterator = |kfunc| {
        let call = op(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, kfunc);
        [op(MOV_REG, 1, REG_FP, 0, 0), op(ADD, 1, 0, 0, -16), call]
    };
    let mut insns = vec![op(MOV, 8, 0, 0, 2), op(MOV, 2, 0, 0, 6), op(MOV, 3, 0, 0, 6)];
    insns.extend([0, 1, 2].into_iter().flat_map(on_iterator));
    insns.extend([last, op(BPF_JMP | BPF_JNE, 8, 0, -13, 0), op(MOV, 0, 0, 0, 1), EXIT]);
    let mut linked = program(insns);
    let named = |name: &str| KfuncRef { name: name.to_owned(), type_id: None, weak: false };
    linked.kfuncs =
        ["bpf_iter_num_new", "bpf_iter_num_next", "bpf_iter_num_destroy"].map(named).into();
    let refusal = verify(linked, &Options::default()).expect_err("it never ends");
    assert!(refusal.message.contains("infinite loop detected"), "{refusal}");
}

#[test]
fn fields_that_are_reserved_are_asked_for_on_paths_only() {
    let reserved = op(BPF_ALU64 | BPF_NEG, 0, 0, 0, 7);
    accepted(vec![op(MOV, 0, 0, 0, 2), op(BPF_JMP | BPF_JEQ, 0, 0, 1, 2), reserved, EXIT]);
    let refusal = rejected(vec![op(MOV, 0, 0, 0, 2), reserved, EXIT]);
    assert_eq!(refusal.message, "BPF_ALU uses reserved fields");
}

/// The result of any arithmetic with an arena pointer is an arena pointer, of 32 bits.
#[test]
fn arithmetic_with_arena_pointers_is_done_on_low_halves() {
    let cast = op(MOV_REG, 1, 1, 1, 1);
    let mut linked = program(vec![
        op(BPF_LD | BPF_IMM | BPF_DW, 6, PSEUDO_MAP_IDX, 0, 0),
        op(0, 0, 0, 0, 0),
        op(MOV, 1, 0, 0, 16),
        cast,
        op(MOV, 2, 0, 0, 3),
        op(BPF_ALU64 | BPF_MUL | BPF_X, 2, 1, 0, 0),
        op(BPF_LDX | BPF_MEM | BPF_DW, 0, 2, 0, 0),
        op(MOV, 0, 0, 0, 2),
        EXIT,
    ]);
    linked.maps = vec![MapDef::new("arena", MapType::Arena, 0, 0, 1)].into();
    let verified = verify(linked, &Options::default()).unwrap();
    assert_eq!(verified.linked().insns[5].code, BPF_ALU | BPF_MUL | BPF_X);
}

/// A program that is accepted only if the last jump is known to be taken: the code after it reads a
/// register that was never written.
fn only_ends_by_jumping(start: Vec<Insn>, jumps: &[Insn]) -> Vec<Insn> {
    let count = jumps.len() as i16;
    let jumps = (0..).zip(jumps).map(|(at, jump)| Insn { off: count - at, ..*jump });
    let read = op(LOAD_W, 0, 9, 0, 0);
    concat([start, jumps.collect(), vec![read, op(MOV, 0, 0, 0, 2), EXIT]])
}

/// r0 = any 32 bits, from the context.
fn any_word() -> Vec<Insn> {
    vec![op(LOAD_W, 0, 1, 12, 0)]
}

#[test]
fn numbers_that_unequal_comparisons_leave() {
    let and = |bits: i32| op(BPF_ALU64 | BPF_AND, 0, 0, 0, bits);
    let or = |bits: i32| op(BPF_ALU64 | BPF_OR, 0, 0, 0, bits);
    let equal = |value: i32| op(BPF_JMP | BPF_JEQ, 0, 0, 0, value);
    let above = |value: i32| op(BPF_JMP | BPF_JGT, 0, 0, 0, value);
    let below = |value: i32| op(BPF_JMP | BPF_JLT, 0, 0, 0, value);
    // The bits leave two numbers; without one, the other is left.
    let two = concat([any_word(), vec![or(0xe0), and(0xf0)]]);
    accepted(only_ends_by_jumping(two.clone(), &[equal(0xe0), equal(0xf0)]));
    accepted(only_ends_by_jumping(two.clone(), &[equal(0xf0), equal(0xe0)]));
    rejected(only_ends_by_jumping(two, &[equal(0xe0), equal(0xe1)]));
    // One or two of the eight multiples of 16 lie between the bounds.
    let eight = concat([any_word(), vec![and(0x70)]]);
    accepted(only_ends_by_jumping(eight.clone(), &[below(0x21), above(0x3f), equal(0x30)]));
    rejected(only_ends_by_jumping(eight, &[below(0x11), above(0x3f), equal(0x30)]));
    // Knowledge about the whole applies to its lower half.
    let one_bit = concat([any_word(), vec![and(0x80_0000)]]);
    let small = op(BPF_JMP32 | BPF_JSLE, 0, 0, 0, 0x7a6);
    let large = op(BPF_JMP32 | BPF_JGE, 0, 0, 0, 0x7f_fffa);
    accepted(only_ends_by_jumping(one_bit, &[small, large]));
}

#[test]
fn a_masked_sign_is_one_of_two_numbers() {
    let sign64 = [op(BPF_ALU64 | BPF_LSH, 0, 0, 0, 32), op(BPF_ALU64 | BPF_ARSH, 0, 0, 0, 63)];
    let sign32 = [op(BPF_ALU | BPF_ARSH, 0, 0, 0, 31)];
    let starts = [(sign64.to_vec(), BPF_ALU64, BPF_JMP), (sign32.to_vec(), BPF_ALU, BPF_JMP32)];
    for (sign, alu, jump) in starts {
        let masked = |code: u8, bits: i32| {
            concat([any_word(), sign.clone(), vec![op(alu | code, 0, 0, 0, bits)]])
        };
        let equal = |value: i32| op(jump | BPF_JEQ, 0, 0, 0, value);
        accepted(only_ends_by_jumping(masked(BPF_AND, 5), &[equal(5), equal(0)]));
        accepted(only_ends_by_jumping(masked(BPF_AND, -13), &[equal(-13), equal(0)]));
        accepted(only_ends_by_jumping(masked(BPF_OR, 8), &[equal(8), equal(-1)]));
        // Both outcomes are followed: neither may be left out.
        rejected(only_ends_by_jumping(masked(BPF_AND, 5), &[equal(5)]));
        rejected(only_ends_by_jumping(masked(BPF_AND, 5), &[equal(0)]));
        rejected(only_ends_by_jumping(masked(BPF_OR, 8), &[equal(8), equal(0)]));
        rejected(only_ends_by_jumping(masked(BPF_XOR, 8), &[equal(8), equal(-9)]));
    }
}

const CALL_BEHIND: Insn = Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 2);

#[test]
fn a_frame_without_stack_counts_nothing() {
    let store = |off: i16| op(BPF_ST | BPF_MEM | BPF_DW, 10, 0, off, 0);
    let result = op(MOV, 0, 0, 0, 0);
    accepted(vec![result, CALL_BEHIND, result, EXIT, store(-512), result, EXIT]);
    accepted(vec![store(-512), CALL_BEHIND, result, EXIT, result, EXIT]);
    rejected(vec![store(-8), CALL_BEHIND, result, EXIT, store(-512), result, EXIT]);
}

/// Deep frames of which r1, spilled around a call at the lowest slot, is a part.
#[test]
fn spills_around_calls_that_keep_registers_are_no_stack() {
    const GET_SMP_PROCESSOR_ID: i32 = 8;
    const GET_PRANDOM_U32: i32 = 7;
    let store = |off: i16| op(BPF_STX | BPF_MEM | BPF_DW, 10, 1, off, 0);
    let load = |regno: u8, off: i16| op(BPF_LDX | BPF_MEM | BPF_DW, regno, 10, off, 0);
    let result = op(MOV, 0, 0, 0, 0);
    let leaf = || vec![CALL_BEHIND, result, EXIT, op(MOV, 1, 0, 0, 0), store(-8), result, EXIT];
    let around = |helper: i32, filled: u8, more: Vec<Insn>| {
        let call = op(BPF_JMP | BPF_CALL, 0, 0, 0, helper);
        let spilled = vec![store(-496), store(-504), call, load(filled, -504)];
        concat([spilled, more, leaf()])
    };
    let verified = accepted(around(GET_SMP_PROCESSOR_ID, 1, Vec::new()));
    // The bytes are used all the same: compilers and the interpreter must provide them.
    assert_eq!(verified.subprograms()[0].stack_bytes, 504);
    rejected(around(GET_PRANDOM_U32, 1, Vec::new()));
    rejected(around(GET_SMP_PROCESSOR_ID, 2, Vec::new()));
    // A slot that another instruction reads is an ordinary slot.
    rejected(around(GET_SMP_PROCESSOR_ID, 1, vec![load(2, -504)]));
}

#[test]
fn callbacks_do_not_throw() {
    const LOOP: i32 = 181;
    let throw = [op(MOV, 1, 0, 0, 0), op(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, 0)];
    let quiet = [op(MOV, 1, 0, 0, 0), op(MOV, 0, 0, 0, 0)];
    let looping = |callback: [Insn; 2], main: [Insn; 2]| {
        let start = vec![
            op(MOV, 1, 0, 0, 3),
            op(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_FUNC, 0, 7),
            Insn::default(),
            op(MOV, 3, 0, 0, 0),
            op(MOV, 4, 0, 0, 0),
            op(BPF_JMP | BPF_CALL, 0, 0, 0, LOOP),
        ];
        let mut linked = program(concat([
            start,
            main.to_vec(),
            vec![EXIT],
            callback.to_vec(),
            vec![op(MOV, 0, 0, 0, 0), EXIT],
        ]));
        let named = KfuncRef { name: "bpf_throw".to_owned(), type_id: None, weak: false };
        linked.kfuncs = vec![named];
        verify(linked, &Options::default())
    };
    looping(quiet, throw).expect("only the program itself throws");
    let refusal = looping(throw, quiet).expect_err("the callback throws");
    assert!(refusal.message.contains("cannot be called from callback subprog 1"), "{refusal}");
}

/// A pointer is a large number of rounds, and not 0: Linux 6.18 never verifies this function.
#[test]
fn a_loop_of_pointer_many_rounds_calls_its_function() {
    let refusal = verify(
        program(vec![
            op(BPF_ALU64 | BPF_MOV | BPF_X, 1, 10, 0, 0),
            op(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_FUNC, 0, 5),
            Insn::default(),
            op(MOV, 3, 0, 0, 0),
            op(MOV, 4, 0, 0, 0),
            op(BPF_JMP | BPF_CALL, 0, 0, 0, 181),
            EXIT,
            op(BPF_LDX | BPF_MEM | BPF_DW, 0, 1, 0, 0),
            EXIT,
        ]),
        &Options::default(),
    );
    let refusal = refusal.expect_err("the function reads from a number");
    assert!(refusal.message.contains("R1 invalid mem access 'scalar'"), "{refusal}");
}

/// If there is no page, an atomic operation changes nothing, not even the upper half of a register:
/// Linux 6.18 takes that half for 0.
#[test]
fn what_atomics_of_arenas_give_is_any_number() {
    let with = |width: u8| {
        let mut linked = program(vec![
            op(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0),
            Insn::default(),
            op(MOV, 1, 0, 0, 0),
            op(BPF_ALU64 | BPF_MOV | BPF_X, 1, 1, 1, 1),
            op(MOV, 2, 0, 0, -9),
            op(BPF_STX | BPF_ATOMIC | width, 1, 2, 0, i32::from(BPF_ADD) | BPF_FETCH),
            op(BPF_ALU64 | BPF_RSH, 2, 0, 0, 32),
            op(BPF_ALU64 | BPF_MOV | BPF_X, 3, 10, 0, 0),
            op(BPF_ALU64 | BPF_ADD | BPF_X, 3, 2, 0, 0),
            op(BPF_ST | BPF_MEM | BPF_B, 3, 0, -8, 0),
            op(MOV, 0, 0, 0, 0),
            EXIT,
        ]);
        linked.maps = vec![MapDef::new("arena", MapType::Arena, 0, 0, 1)].into();
        verify(linked, &Options::default())
    };
    for width in [BPF_W, BPF_DW] {
        let refusal = with(width).expect_err("the offset is not known");
        assert!(refusal.message.contains("R3"), "{refusal}");
    }
}

/// A function that `bpf_loop` calls once on one path and often on another: the second round writes
/// at the offset that the first one stored.
#[test]
fn rounds_of_a_loop_are_followed_however_many_another_path_had() {
    let with_rounds = |often: i32| {
        let call_loop = op(BPF_JMP | BPF_CALL, 0, 0, 0, 181);
        let function = op(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_FUNC, 0, 7);
        let main = vec![
            op(MOV, 9, 0, 0, often),
            op(LOAD_W, 7, 1, 12, 0),
            op(BPF_JMP | BPF_JEQ, 7, 0, 1, 5),
            op(MOV, 9, 0, 0, 1),
            op(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -16, 3),
            op(MOV_REG, 1, 9, 0, 0),
            function,
            Insn::default(),
            op(MOV_REG, 3, 10, 0, 0),
            op(ADD, 3, 0, 0, -24),
            op(MOV, 4, 0, 0, 0),
            call_loop,
            op(MOV, 0, 0, 0, 0),
            EXIT,
        ];
        let callback = vec![
            op(MOV_REG, 1, 10, 0, 0),
            op(ADD, 1, 0, 0, -80),
            op(BPF_LDX | BPF_MEM | BPF_DW, 8, 2, 8, 0),
            // Jumps, at which states are compared.
            op(BPF_JMP | BPF_JA, 0, 0, 0, 0),
            op(BPF_JMP | BPF_JA, 0, 0, 0, 0),
            op(BPF_JMP | BPF_JA, 0, 0, 0, 0),
            op(ADD_REG, 1, 8, 0, 0),
            op(BPF_STX | BPF_MEM | BPF_B, 1, 8, 0, 0),
            op(BPF_ST | BPF_MEM | BPF_DW, 2, 0, 8, 1000),
            op(MOV, 0, 0, 0, 0),
            EXIT,
        ];
        verify(program(concat([main, callback])), &Options::default())
    };
    let Err(rejection) = with_rounds(65535) else { panic!("the second round is out of bounds") };
    assert!(rejection.message.contains("invalid write to stack"), "{rejection}");
    assert!(with_rounds(1).is_ok());
}
