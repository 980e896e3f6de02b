//! A table of programs and results that covers every operation and its corner cases.

use super::*;
use crate::insn::*;

const ALU64_K: u8 = BPF_ALU64;
const ALU64_X: u8 = BPF_ALU64 | BPF_X;
const ALU32_K: u8 = BPF_ALU;
const ALU32_X: u8 = BPF_ALU | BPF_X;
const EXIT: Insn = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
const MIN64: u64 = i64::MIN as u64;
const MIN32: u64 = 0x8000_0000;

fn run_insns(insns: &[Insn], memory: &mut Vec<u8>) -> Result<u64, ConformanceError> {
    let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.to_le_bytes()).collect();
    run_conformance(&bytes, memory)
}

fn ld64(dst: u8, value: u64) -> [Insn; 2] {
    [
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, dst, 0, 0, value as i32),
        Insn::new(0, 0, 0, 0, (value >> 32) as i32),
    ]
}

/// r0 after `r0 = a; r1 = b; r0 op= r1` (or `op= imm`, when `b` is one).
fn binary(code: u8, off: i16, a: u64, b: u64) -> u64 {
    let mut insns = Vec::new();
    insns.extend(ld64(0, a));
    insns.extend(ld64(1, b));
    let (src, imm) = if code & BPF_X != 0 { (1, 0) } else { (0, b as i32) };
    insns.push(Insn::new(code, 0, src, off, imm));
    insns.push(EXIT);
    run_insns(&insns, &mut Vec::new()).unwrap()
}

#[test]
fn arithmetic_64() {
    #[rustfmt::skip]
    let cases: &[(u8, i16, u64, u64, u64)] = &[
        (BPF_ADD, 0, u64::MAX, 2, 1),
        (BPF_SUB, 0, 1, 2, u64::MAX),
        (BPF_MUL, 0, MIN64, 2, 0),
        (BPF_DIV, 0, u64::MAX, 2, MIN64 - 1),
        (BPF_DIV, 0, 5, 0, 0),
        (BPF_DIV, 1, -7i64 as u64, 2, -3i64 as u64),
        (BPF_DIV, 1, MIN64, u64::MAX, MIN64),
        (BPF_DIV, 1, 7, 0, 0),
        (BPF_MOD, 0, u64::MAX, 16, 15),
        (BPF_MOD, 0, 5, 0, 5),
        (BPF_MOD, 1, -7i64 as u64, 2, -1i64 as u64),
        (BPF_MOD, 1, 7, -2i64 as u64, 1),
        (BPF_MOD, 1, MIN64, u64::MAX, 0),
        (BPF_MOD, 1, MIN64, 0, MIN64),
        (BPF_OR, 0, 0xf0, 0x0f, 0xff),
        (BPF_AND, 0, 0xff, 0x0f, 0x0f),
        (BPF_XOR, 0, 0xff, 0x0f, 0xf0),
        (BPF_LSH, 0, 1, 63, MIN64),
        (BPF_LSH, 0, 1, 64, 1),
        (BPF_RSH, 0, MIN64, 63, 1),
        (BPF_RSH, 0, 2, 65, 1),
        (BPF_ARSH, 0, MIN64, 63, u64::MAX),
        (BPF_ARSH, 0, -4i64 as u64, 65, -2i64 as u64),
        (BPF_MOV, 0, 1, MIN64, MIN64),
        (BPF_MOV, 8, 1, 0x80, -128i64 as u64),
        (BPF_MOV, 16, 1, 0x1_8000, -32768i64 as u64),
        (BPF_MOV, 32, 1, MIN32, i64::from(i32::MIN) as u64),
    ];
    for &(op, off, a, b, want) in cases {
        assert_eq!(binary(ALU64_X | op, off, a, b), want, "op {op:#x} off {off} on {a:#x}, {b:#x}");
    }
}

#[test]
fn arithmetic_32_zeroes_the_upper_half() {
    const HIGH: u64 = 0xdead_beef_0000_0000;
    #[rustfmt::skip]
    let cases: &[(u8, i16, u64, u64, u64)] = &[
        (BPF_ADD, 0, HIGH | 0xffff_ffff, 2, 1),
        (BPF_SUB, 0, HIGH | 1, 2, 0xffff_ffff),
        (BPF_MUL, 0, HIGH | MIN32, 3, MIN32),
        (BPF_DIV, 0, HIGH | 9, HIGH | 2, 4),
        (BPF_DIV, 0, HIGH | 9, HIGH, 0),
        (BPF_DIV, 1, MIN32, 0xffff_ffff, MIN32),
        (BPF_DIV, 1, 0xffff_fff9, 2, 0xffff_fffd),
        (BPF_MOD, 0, HIGH | 9, HIGH, 9),
        (BPF_MOD, 0, HIGH | 9, 4, 1),
        (BPF_MOD, 1, MIN32, 0xffff_ffff, 0),
        (BPF_MOD, 1, 0xffff_fff9, 0, 0xffff_fff9),
        (BPF_OR, 0, HIGH | 0xf0, 0x0f, 0xff),
        (BPF_AND, 0, HIGH | 0xff, HIGH | 0x0f, 0x0f),
        (BPF_XOR, 0, HIGH | 0xff, 0x0f, 0xf0),
        (BPF_LSH, 0, HIGH | 1, 33, 2),
        (BPF_RSH, 0, HIGH | MIN32, 63, 1),
        (BPF_ARSH, 0, HIGH | MIN32, 31, 0xffff_ffff),
        (BPF_MOV, 0, HIGH, HIGH | 7, 7),
        (BPF_MOV, 8, HIGH, 0x80, 0xffff_ff80),
        (BPF_MOV, 16, HIGH, 0x8000, 0xffff_8000),
    ];
    for &(op, off, a, b, want) in cases {
        assert_eq!(binary(ALU32_X | op, off, a, b), want, "op {op:#x} off {off} on {a:#x}, {b:#x}");
    }
    assert_eq!(binary(ALU32_K | BPF_NEG, 0, HIGH | 1, 0), 0xffff_ffff);
    assert_eq!(binary(ALU64_K | BPF_NEG, 0, MIN64, 0), MIN64);
}

#[test]
fn immediates_are_sign_extended() {
    assert_eq!(binary(ALU64_K | BPF_MOV, 0, 0, -1i64 as u64), u64::MAX);
    assert_eq!(binary(ALU32_K | BPF_MOV, 0, 0, -1i64 as u64), 0xffff_ffff);
    assert_eq!(binary(ALU64_K | BPF_AND, 0, MIN64 | 1, MIN32), MIN64);
    assert_eq!(binary(ALU64_K | BPF_DIV, 0, u64::MAX, -1i64 as u64), 1);
    assert_eq!(binary(ALU64_K | BPF_DIV, 1, MIN64, -1i64 as u64), MIN64);
}

#[test]
fn byte_swaps() {
    const VALUE: u64 = 0x0102_0304_0506_0708;
    let swap = |code: u8, bits: u64| binary(code, 0, VALUE, bits);
    assert_eq!(swap(BPF_ALU | BPF_END, 16), 0x0708);
    assert_eq!(swap(BPF_ALU | BPF_END, 32), 0x0506_0708);
    assert_eq!(swap(BPF_ALU | BPF_END, 64), VALUE);
    assert_eq!(swap(BPF_ALU64 | BPF_END, 16), 0x0807);
    assert_eq!(swap(BPF_ALU64 | BPF_END, 32), 0x0807_0605);
    assert_eq!(swap(BPF_ALU64 | BPF_END, 64), 0x0807_0605_0403_0201);
    for (bits, want) in [(16, 0x0807), (32, 0x0807_0605), (64, 0x0807_0605_0403_0201)] {
        let mut insns = ld64(0, VALUE).to_vec();
        insns.push(Insn::new(BPF_ALU | BPF_END | BPF_X, 0, 0, 0, bits));
        insns.push(EXIT);
        assert_eq!(run_insns(&insns, &mut Vec::new()).unwrap(), want);
    }
}

#[test]
fn conditions() {
    #[rustfmt::skip]
    let cases: &[(u8, u64, u64, bool, bool)] = &[
        // op, a, b, taken in 64 bits, taken in 32 bits
        (BPF_JEQ, 1 << 32, 0, false, true),
        (BPF_JNE, 1 << 32, 0, true, false),
        (BPF_JSET, 1 << 32, 1 << 32, true, false),
        (BPF_JSET, 6, 2, true, true),
        (BPF_JGT, 1 << 32, 1, true, false),
        (BPF_JGT, MIN32, 1, true, true),
        (BPF_JGE, 5, 5, true, true),
        (BPF_JLT, 1, u64::MAX, true, true),
        (BPF_JLE, 1 << 32, 1, false, true),
        (BPF_JSGT, 1, u64::MAX, true, true),
        (BPF_JSGT, MIN32, 1, true, false),
        (BPF_JSGE, MIN64, 0, false, true),
        (BPF_JSLT, MIN32, 0, false, true),
        (BPF_JSLE, MIN64, 1, true, true),
    ];
    for &(op, a, b, wide, narrow) in cases {
        for (class, want) in [(BPF_JMP, wide), (BPF_JMP32, narrow)] {
            let mut insns = Vec::new();
            insns.extend(ld64(1, a));
            insns.extend(ld64(2, b));
            insns.push(Insn::new(ALU64_K | BPF_MOV, 0, 0, 0, 1));
            insns.push(Insn::new(class | op | BPF_X, 1, 2, 1, 0));
            insns.push(Insn::new(ALU64_K | BPF_MOV, 0, 0, 0, 0));
            insns.push(EXIT);
            let taken = run_insns(&insns, &mut Vec::new()).unwrap() == 1;
            assert_eq!(taken, want, "class {class} op {op:#x} on {a:#x}, {b:#x}");
        }
    }
}

#[test]
fn loads_extend_and_stores_cut() {
    let mut memory = vec![0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8];
    let sizes = [
        (BPF_B, 0xf1, 0xffff_ffff_ffff_fff1),
        (BPF_H, 0xf2f1, 0xffff_ffff_ffff_f2f1),
        (BPF_W, 0xf4f3_f2f1, 0xffff_ffff_f4f3_f2f1),
    ];
    for (size, zero, sign) in sizes {
        let load = |mode| [Insn::new(BPF_LDX | mode | size, 0, 1, 0, 0), EXIT];
        assert_eq!(run_insns(&load(BPF_MEM), &mut memory).unwrap(), zero);
        assert_eq!(run_insns(&load(BPF_MEMSX), &mut memory).unwrap(), sign);
    }
    let stores = [
        Insn::new(BPF_ST | BPF_MEM | BPF_DW, 1, 0, 0, -2),
        Insn::new(BPF_ST | BPF_MEM | BPF_H, 1, 0, 2, 0x12345),
        Insn::new(ALU64_K | BPF_MOV, 2, 0, 0, 0x7788),
        Insn::new(BPF_STX | BPF_MEM | BPF_B, 1, 2, 7, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 0, 1, 0, 0),
        EXIT,
    ];
    assert_eq!(run_insns(&stores, &mut memory).unwrap(), 0x88ff_ffff_2345_fffe);
}

#[test]
fn atomics() {
    #[rustfmt::skip]
    let cases: &[(i32, u64, u64, u64, u64)] = &[
        // imm, r0, operand, memory afterwards, r2 afterwards (memory before: 0x1_0000_0003)
        (i32::from(BPF_ADD), 0, 4, 0x1_0000_0007, 4),
        (i32::from(BPF_ADD) | BPF_FETCH, 0, 4, 0x1_0000_0007, 0x1_0000_0003),
        (i32::from(BPF_OR) | BPF_FETCH, 0, 8, 0x1_0000_000b, 0x1_0000_0003),
        (i32::from(BPF_AND), 0, 1, 1, 1),
        (i32::from(BPF_XOR) | BPF_FETCH, 0, 1, 0x1_0000_0002, 0x1_0000_0003),
        (BPF_XCHG, 0, 9, 9, 0x1_0000_0003),
        (BPF_CMPXCHG, 0x1_0000_0003, 9, 9, 9),
        (BPF_CMPXCHG, 3, 9, 0x1_0000_0003, 9),
        (BPF_STORE_REL, 0, 9, 9, 9),
    ];
    for &(imm, r0, operand, want_memory, want_r2) in cases {
        let mut memory = 0x1_0000_0003u64.to_le_bytes().to_vec();
        let mut insns = Vec::new();
        insns.extend(ld64(0, r0));
        insns.extend(ld64(2, operand));
        insns.push(Insn::new(BPF_STX | BPF_ATOMIC | BPF_DW, 1, 2, 0, imm));
        if imm != BPF_CMPXCHG {
            insns.push(Insn::new(ALU64_X | BPF_MOV, 0, 2, 0, 0));
        }
        insns.push(EXIT);
        let r0 = run_insns(&insns, &mut memory).unwrap();
        assert_eq!(memory, want_memory.to_le_bytes(), "imm {imm:#x}");
        let want = if imm == BPF_CMPXCHG { 0x1_0000_0003 } else { want_r2 };
        assert_eq!(r0, want, "imm {imm:#x}");
    }
}

#[test]
fn narrow_atomics_compare_and_return_the_low_half() {
    let mut memory = 0x5_0000_0003u64.to_le_bytes().to_vec();
    let mut insns = ld64(0, 0xffff_ffff_0000_0003).to_vec();
    insns.push(Insn::new(ALU64_K | BPF_MOV, 2, 0, 0, -1));
    insns.push(Insn::new(BPF_STX | BPF_ATOMIC | BPF_W, 1, 2, 0, BPF_CMPXCHG));
    insns.push(EXIT);
    assert_eq!(run_insns(&insns, &mut memory).unwrap(), 3);
    assert_eq!(memory, 0x5_ffff_ffffu64.to_le_bytes());
    let acquire = [Insn::new(BPF_STX | BPF_ATOMIC | BPF_B, 0, 1, 4, BPF_LOAD_ACQ), EXIT];
    assert_eq!(run_insns(&acquire, &mut memory).unwrap(), 5);
    let byte_add = [Insn::new(BPF_STX | BPF_ATOMIC | BPF_B, 1, 2, 0, i32::from(BPF_ADD)), EXIT];
    assert!(run_insns(&byte_add, &mut memory).is_err(), "no 1-byte read-modify-write");
}

#[test]
fn calls_keep_callee_saved_registers_and_separate_stacks() {
    let insns = [
        Insn::new(ALU64_K | BPF_MOV, 6, 0, 0, 40),
        Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 2),
        Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 4),
        Insn::new(ALU64_X | BPF_ADD, 0, 6, 0, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 1, 10, -8, 0),
        Insn::new(ALU64_X | BPF_ADD, 0, 1, 0, 0),
        EXIT,
        Insn::new(ALU64_K | BPF_MOV, 6, 0, 0, 1000),
        Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 7),
        Insn::new(ALU64_K | BPF_MOV, 0, 0, 0, 100),
        EXIT,
    ];
    assert_eq!(run_insns(&insns, &mut Vec::new()).unwrap(), 142);
}

#[test]
fn long_jumps_and_bounded_loops() {
    let gotol = [
        Insn::new(ALU64_K | BPF_MOV, 0, 0, 0, 1),
        Insn::new(BPF_JMP32 | BPF_JA, 0, 0, 0, 1),
        Insn::new(ALU64_K | BPF_MOV, 0, 0, 0, 2),
        EXIT,
    ];
    assert_eq!(run_insns(&gotol, &mut Vec::new()).unwrap(), 1);
    let may_goto = [
        Insn::new(ALU64_K | BPF_MOV, 0, 0, 0, 0),
        Insn::new(BPF_JMP | BPF_JCOND, 0, 0, 2, 0),
        Insn::new(ALU64_K | BPF_ADD, 0, 0, 0, 1),
        Insn::new(BPF_JMP | BPF_JA, 0, 0, -3, 0),
        EXIT,
    ];
    let code = std::sync::Arc::new(Code::raw("may_goto", may_goto.to_vec()));
    let rounds = run_at(&code, 0, [0; 5], &mut conformance::flat(), &Limits::default());
    assert_eq!(rounds, Ok(u64::from(MAX_LOOPS)));
    let for_ever = [Insn::new(BPF_JMP | BPF_JA, 0, 0, -1, 0)];
    let error = run_insns(&for_ever, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("10000000 instructions executed"), "{error}");
}

#[test]
fn what_is_outside_is_refused_with_the_place() {
    #[rustfmt::skip]
    let cases: &[(&[Insn], &str)] = &[
        (&[Insn::new(BPF_LDX | BPF_MEM | BPF_W, 0, 1, 5, 0), EXIT], "read of 4 bytes at 0x1000"),
        (&[Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, 0, 0), EXIT], "write of 8 bytes"),
        (&[Insn::new(BPF_ST | BPF_MEM | BPF_B, 10, 0, -513, 0), EXIT], "write of 1 bytes"),
        (&[Insn::new(ALU64_K | BPF_MOV, 0, 0, 0, 0)], "outside the program"),
        (&[Insn::new(BPF_JMP | BPF_JA, 0, 0, -2, 0)], "jump to slot -1"),
        (&[Insn::new(ALU64_X | BPF_MOV, 0, 11, 0, 0), EXIT], "unknown instruction"),
        (&[Insn::new(ALU64_K | BPF_MOV, 11, 0, 0, 0), EXIT], "unknown instruction"),
        (&[Insn::new(ALU64_X | BPF_ADD, 0, 1, 3, 0), EXIT], "unknown instruction"),
        (&[Insn::new(BPF_LD | BPF_IMM | BPF_DW, 0, 0, 0, 0)], "outside the program"),
        (&[Insn::new(BPF_LD | BPF_ABS | BPF_W, 0, 0, 0, 0), EXIT], "unknown instruction"),
        (&[Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, 1), EXIT], "helper 1 is not known"),
        (&[Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, -1)], "nested calls"),
    ];
    for (insns, want) in cases {
        let error = run_insns(insns, &mut vec![0; 8]).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
        assert!(error.starts_with("program conformance, instruction "), "{error}");
    }
}
