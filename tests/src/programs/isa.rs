//! The instruction set, one program for each instruction in each form, over operands at the corners
//! of what they can be: what `lib/test_bpf.c` does for the kernel's compilers, in a table of ours.
//!
//! A program reads its operands from the packet, so that nothing can be computed beforehand, and
//! leaves its results there; or it has them as constants, so that everything can.

use towpath_bpf::Insn;
use towpath_bpf::insn::*;

use super::asm::Asm;

/// One instruction in one form.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is, as text.
    pub name: String,
    /// The program.
    pub insns: Vec<Insn>,
    /// What it must give for operands, where that is said here; the interpreter says it otherwise.
    pub expected: Option<Expected>,
}

impl Case {
    /// The same over a buffer in r1, as a bare stream: what looks for the packet is left out.
    /// `None` for programs that do without one, or need more of their context.
    pub fn bare(&self) -> Option<Vec<u8>> {
        let found = prologue().insns;
        let (start, body) = self.insns.split_at_checked(found.len())?;
        let same = |(a, b): (&Insn, &Insn)| (a.code, a.dst, a.src) == (b.code, b.dst, b.src);
        let uses_context = |insn: &Insn| insn.is_map_ref() || insn.is_helper_call();
        if !start.iter().zip(&found).all(same) || body.iter().any(uses_context) {
            return None;
        }
        let mut asm = Asm::default();
        asm.mov(6, 1);
        asm.insns.extend_from_slice(body);
        Some(asm.insns.iter().flat_map(|insn| insn.to_le_bytes()).collect())
    }
}

/// What an operation must give: independent of all that executes programs.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    op: u8,
    wide: bool,
    signed: bool,
    imm: Option<i32>,
}

/// Where operands and results are in a packet.
pub(super) const A: i16 = 0;
pub(super) const B: i16 = 8;
/// First byte of the result.
pub const RESULT: i16 = 16;
const SECOND: i16 = 24;
const BYTES: i32 = 32;

/// Operands at corners.
const CORNERS: [u64; 14] = [
    0,
    1,
    2,
    7,
    31,
    32,
    63,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// A packet for each pair of operands, and some that mean nothing.
pub fn packets() -> Vec<Vec<u8>> {
    let packet = |(a, b): (u64, u64)| {
        let mut packet = [a.to_le_bytes(), b.to_le_bytes()].concat();
        packet.resize(64, 0xa5);
        packet
    };
    let pairs = CORNERS.iter().flat_map(|&a| CORNERS.map(|b| (a, b)));
    let odd = [(0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210), (0x80, 0xff7f), (0xff80, 0x8000)];
    pairs.chain(odd).map(packet).collect()
}

/// Every case over operands in packets.
pub fn cases() -> Vec<Case> {
    let mut cases = arithmetic();
    cases.extend(one_operand());
    cases.extend(jumps());
    cases.extend(memory());
    cases.extend(atomics());
    cases.push(calls());
    cases
}

/// Arithmetic on constants; one program for each pair.
pub fn constant_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (wide, op, off) in operations() {
        for (index, a) in CORNERS.into_iter().enumerate() {
            // Each corner on the left, with two of them on the right.
            for b in [CORNERS[(index * 5 + 3) % 14], CORNERS[(index * 3 + 11) % 14]] {
                let mut asm = Asm::default();
                asm.load_imm64(7, a);
                asm.load_imm64(8, b);
                asm.put(class(wide) | op | BPF_X, 7, 8, off, 0);
                asm.mov(0, 7);
                asm.alu_imm(BPF_RSH, 7, 32);
                asm.alu(BPF_XOR, 0, 7);
                asm.exit();
                let name = format!("{} {a:#x}, {b:#x}", text(wide, op, off));
                cases.push(Case { name, insns: asm.insns, expected: None });
            }
        }
    }
    cases
}

const OPS: [u8; 12] = [
    BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_LSH, BPF_RSH, BPF_MOD, BPF_XOR,
    BPF_MOV, BPF_ARSH,
];

/// Width, operation, and the offset that makes divisions signed.
fn operations() -> impl Iterator<Item = (bool, u8, i16)> {
    [true, false].into_iter().flat_map(|wide| {
        let signed = [(wide, BPF_DIV, 1), (wide, BPF_MOD, 1)];
        OPS.into_iter().map(move |op| (wide, op, 0)).chain(signed)
    })
}

const fn class(wide: bool) -> u8 {
    if wide { BPF_ALU64 } else { BPF_ALU }
}

fn text(wide: bool, op: u8, off: i16) -> String {
    let width = if wide { 64 } else { 32 };
    let signed = if off == 1 { " signed" } else { "" };
    format!("alu{width} {op:#04x}{signed}")
}

/// `r7 = a; r8 = b; ...; result = r7; second = r8`
pub(super) fn case(name: String, expected: Option<Expected>, body: impl FnOnce(&mut Asm)) -> Case {
    let mut asm = prologue();
    let short = asm.last_jump();
    asm.load(BPF_DW, 7, 6, A);
    asm.load(BPF_DW, 8, 6, B);
    body(&mut asm);
    asm.store(BPF_DW, 6, 7, RESULT);
    asm.store(BPF_DW, 6, 8, SECOND);
    asm.mov_imm(0, 2);
    asm.land(short);
    asm.exit();
    Case { name, insns: asm.insns, expected }
}

/// `r6 = packet`, or 1 for a short one.
pub(super) fn prologue() -> Asm {
    let mut asm = Asm::default();
    asm.mov_imm(0, 1);
    asm.load(BPF_W, 6, 1, 0);
    asm.load(BPF_W, 3, 1, 4);
    asm.mov(4, 6);
    asm.alu_imm(BPF_ADD, 4, BYTES);
    asm.jump(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 0);
    asm
}

fn arithmetic() -> Vec<Case> {
    let mut cases = Vec::new();
    for (wide, op, off) in operations() {
        let name = text(wide, op, off);
        let expected = |imm| Some(Expected { op, wide, signed: off == 1, imm });
        cases.push(case(format!("{name}, register"), expected(None), |asm| {
            asm.put(class(wide) | op | BPF_X, 7, 8, off, 0);
        }));
        cases.push(case(format!("{name}, itself"), None, |asm| {
            asm.put(class(wide) | op | BPF_X, 7, 7, off, 0);
        }));
        let shifts = matches!(op, BPF_LSH | BPF_RSH | BPF_ARSH);
        let imms: &[i32] = match (shifts, wide) {
            (true, true) => &[0, 1, 8, 31, 32, 63],
            (true, false) => &[0, 1, 8, 31],
            (false, _) => &[1, -1, 2, 7, 10, 0x100, i32::MAX, i32::MIN],
        };
        for &imm in imms {
            cases.push(case(format!("{name}, {imm}"), expected(Some(imm)), |asm| {
                asm.put(class(wide) | op, 7, 0, off, imm);
            }));
        }
    }
    cases
}

fn one_operand() -> Vec<Case> {
    let mut cases = Vec::new();
    for wide in [true, false] {
        cases.push(case(format!("neg, wide {wide}"), None, |asm| {
            asm.put(class(wide) | BPF_NEG, 7, 0, 0, 0);
        }));
        let widths: &[i16] = if wide { &[8, 16, 32] } else { &[8, 16] };
        for &width in widths {
            cases.push(case(format!("movsx {width}, wide {wide}"), None, |asm| {
                asm.put(class(wide) | BPF_MOV | BPF_X, 7, 8, width, 0);
            }));
        }
    }
    let swaps = [BPF_ALU | BPF_END, BPF_ALU | BPF_END | BPF_X, BPF_ALU64 | BPF_END];
    for code in swaps {
        for width in [16, 32, 64] {
            cases.push(case(format!("end {code:#04x} {width}"), None, |asm| {
                asm.put(code, 7, 0, 0, width);
            }));
        }
    }
    cases.push(case("ld_imm64".to_owned(), None, |asm| {
        asm.load_imm64(8, 0x8000_0000_7fff_ffff);
        asm.alu(BPF_XOR, 7, 8);
    }));
    cases
}

fn jumps() -> Vec<Case> {
    const CONDITIONS: [u8; 11] = [
        BPF_JEQ, BPF_JNE, BPF_JGT, BPF_JGE, BPF_JLT, BPF_JLE, BPF_JSGT, BPF_JSGE, BPF_JSLT,
        BPF_JSLE, BPF_JSET,
    ];
    let mut cases = Vec::new();
    for class in [BPF_JMP, BPF_JMP32] {
        for op in CONDITIONS {
            let name = format!("jump {class:#x} {op:#04x}");
            cases.push(case(format!("{name}, register"), None, |asm| {
                let taken = asm.jump(class | op | BPF_X, 7, 8, 0);
                asm.alu_imm(BPF_ADD, 7, 1000);
                asm.land(taken);
                asm.alu_imm(BPF_XOR, 7, 3);
            }));
            for imm in [0, 1, -1, 32, i32::MIN, i32::MAX] {
                cases.push(case(format!("{name}, {imm}"), None, |asm| {
                    let taken = asm.jump(class | op, 7, 0, imm);
                    asm.mov_imm(8, 5);
                    asm.land(taken);
                    asm.alu_imm(BPF_ADD, 8, 2);
                }));
            }
        }
        cases.push(case(format!("jump always {class:#x}"), None, |asm| {
            // The long form has its distance where others have a number.
            let (off, imm) = if class == BPF_JMP { (1, 0) } else { (0, 1) };
            let other_way = asm.jump(BPF_JMP | BPF_JEQ, 7, 0, 0);
            asm.put(class | BPF_JA, 0, 0, off, imm);
            asm.land(other_way);
            asm.mov_imm(7, 5);
        }));
    }
    cases
}

fn memory() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [BPF_B, BPF_H, BPF_W, BPF_DW] {
        for off in [0, 1, 3, 7, 8] {
            for mode in [BPF_MEM, BPF_MEMSX] {
                if mode == BPF_MEMSX && size == BPF_DW {
                    continue;
                }
                cases.push(case(format!("load {mode:#x} {size:#x} at {off}"), None, |asm| {
                    asm.put(BPF_LDX | mode | size, 7, 6, off, 0);
                }));
            }
            cases.push(case(format!("store {size:#x} at {off}"), None, |asm| {
                asm.store(size, 6, 8, off);
                asm.load(BPF_DW, 7, 6, 0);
                asm.load(BPF_DW, 8, 6, 8);
            }));
            for imm in [-1, 0x7fff_8001] {
                cases.push(case(format!("store {imm} {size:#x} at {off}"), None, |asm| {
                    asm.store_imm(size, 6, off, imm);
                    asm.load(BPF_DW, 7, 6, 0);
                    asm.load(BPF_DW, 8, 6, 8);
                }));
            }
        }
    }
    cases
}

fn atomics() -> Vec<Case> {
    let mut cases = Vec::new();
    let ops = [0x00, 0x01, 0x40, 0x41, 0x50, 0x51, 0xa0, 0xa1, BPF_XCHG, BPF_CMPXCHG];
    for size in [BPF_W, BPF_DW] {
        for op in ops {
            for expected in [7, 8] {
                cases.push(case(format!("atomic {op:#x} {size:#x} {expected}"), None, |asm| {
                    asm.store(BPF_DW, REG_FP, 7, -8);
                    // Compared with what is there, or with the other operand.
                    asm.mov(0, expected);
                    asm.put(BPF_STX | BPF_ATOMIC | size, REG_FP, 8, -8, op);
                    asm.load(BPF_DW, 7, REG_FP, -8);
                    asm.alu(BPF_ADD, 8, 0);
                }));
            }
        }
    }
    for size in [BPF_B, BPF_H, BPF_W, BPF_DW] {
        cases.push(case(format!("load acquire {size:#x}"), None, |asm| {
            asm.store(BPF_DW, REG_FP, 7, -8);
            asm.put(BPF_STX | BPF_ATOMIC | size, 8, REG_FP, -8, 0x100);
        }));
        cases.push(case(format!("store release {size:#x}"), None, |asm| {
            asm.store(BPF_DW, REG_FP, 7, -8);
            asm.put(BPF_STX | BPF_ATOMIC | size, REG_FP, 8, -8, 0x110);
            asm.load(BPF_DW, 7, REG_FP, -8);
        }));
    }
    cases
}

/// A function that calls another; r6 to r9 and the stack are the caller's own.
fn calls() -> Case {
    let mut case = case("calls".to_owned(), None, |asm| {
        asm.mov(9, 7);
        asm.store(BPF_DW, REG_FP, 8, -8);
        asm.mov(1, 7);
        asm.mov(2, 8);
        asm.put(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 0);
        asm.load(BPF_DW, 8, REG_FP, -8);
        asm.alu(BPF_ADD, 8, 9);
        asm.mov(7, 0);
    });
    let at = case.insns.iter().position(|insn| insn.is_pseudo_call()).unwrap_or(0);
    case.insns[at].imm = (case.insns.len() - at - 1) as i32;
    let mut callee = Asm::default();
    callee.mov_imm(6, 1);
    callee.mov_imm(9, 2);
    callee.store(BPF_DW, REG_FP, 1, -8);
    callee.put(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 3);
    callee.load(BPF_DW, 1, REG_FP, -8);
    callee.alu(BPF_SUB, 0, 1);
    callee.exit();
    callee.mov(0, 2);
    callee.store(BPF_DW, REG_FP, 0, -8);
    callee.alu_imm(BPF_MUL, 0, 3);
    callee.exit();
    case.insns.extend(callee.insns);
    case
}

impl Expected {
    /// The result for the operands of a packet.
    pub fn of(self, packet: &[u8]) -> u64 {
        let word = |at: i16| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&packet[at as usize..at as usize + 8]);
            u64::from_le_bytes(bytes)
        };
        let (a, b) = (word(A), self.imm.map_or(word(B), |imm| i64::from(imm) as u64));
        if self.wide {
            if self.signed {
                signed(self.op, i128::from(a as i64), i128::from(b as i64)) as u64
            } else {
                unsigned(self.op, a, b, 64)
            }
        } else if self.signed {
            let (a, b) = (i128::from(a as i32), i128::from(b as i32));
            u64::from(signed(self.op, a, b) as u32)
        } else {
            let (low_a, low_b) = (u64::from(a as u32), u64::from(b as u32));
            // A shift to the right that keeps the sign starts from the sign of 32 bits.
            let low_a = if self.op == BPF_ARSH { i64::from(a as i32) as u64 } else { low_a };
            u64::from(unsigned(self.op, low_a, low_b, 32) as u32)
        }
    }
}

fn signed(op: u8, a: i128, b: i128) -> i128 {
    match (op, b) {
        (BPF_DIV, 0) => 0,
        (BPF_DIV, _) => a / b,
        (_, 0) => a,
        (_, _) => a % b,
    }
}

fn unsigned(op: u8, a: u64, b: u64, bits: u64) -> u64 {
    let count = b % bits;
    match op {
        BPF_ADD => a.wrapping_add(b),
        BPF_SUB => a.wrapping_sub(b),
        BPF_MUL => a.wrapping_mul(b),
        BPF_DIV => a.checked_div(b).unwrap_or(0),
        BPF_MOD => a.checked_rem(b).unwrap_or(a),
        BPF_OR => a | b,
        BPF_AND => a & b,
        BPF_XOR => a ^ b,
        BPF_MOV => b,
        BPF_LSH => a << count,
        BPF_RSH => a >> count,
        _ => (a as i64 >> count) as u64,
    }
}
