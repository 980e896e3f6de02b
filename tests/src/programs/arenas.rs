//! Accesses to an arena, one program for each instruction: pages that are there and pages that are
//! not, beginnings and ends, offsets on both sides, and pointers of which only the low half counts.
//! And arithmetic with such pointers.

use towpath_bpf::MapDef;
use towpath_bpf::insn::*;
use towpath_bpf::program::MapType;

use super::ARENA_MAP;
use super::asm::Asm;
use super::generate::Generator;
use super::isa::{Case, prologue};

/// Where user space has the first page: not at the start of 4 GiB, and nothing else is there.
const USER_START: u64 = 0x10_0000_2000;
const PAGES: u32 = 5;
const PAGE: u64 = 4096;

/// The arena: tests touch its first page and its third.
pub(super) fn map() -> MapDef {
    let def = MapDef::new("arena", MapType::Arena, 0, 0, PAGES);
    // BPF_F_MMAPABLE
    MapDef { map_extra: USER_START, flags: 1 << 10, ..def }
}

/// Programs, each with the packets for it: a pointer, and an operand.
pub fn cases() -> Vec<(Case, Vec<Vec<u8>>)> {
    let plain = [0, 8, -8, i16::MAX - 7, i16::MIN].map(|off| (off, packets(off, &NEAR_ANYTHING)));
    let plain = plain.into_iter().flat_map(|(off, packets)| {
        accesses(off).into_iter().map(move |case| (case, packets.clone()))
    });
    let words = [0, 8, i16::MIN].map(|off| (off, packets(off, &NEAR_WORDS)));
    let words = words.into_iter().flat_map(|(off, packets)| {
        atomics(off).into_iter().map(move |case| (case, packets.clone()))
    });
    let others = arithmetic().into_iter().chain([casts()]);
    let others = others.map(|case| (case, packets(0, &NEAR_WORDS)));
    plain.chain(words).chain(others).collect()
}

fn accesses(off: i16) -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [BPF_B, BPF_H, BPF_W, BPF_DW] {
        cases.push(case(&format!("load {size:#x}, {off}"), |asm| asm.load(size, 0, 1, off)));
        cases.push(case(&format!("store {size:#x}, {off}"), |asm| {
            asm.store(size, 1, 2, off);
            asm.load(BPF_DW, 0, 1, off);
        }));
        cases.push(case(&format!("store number {size:#x}, {off}"), |asm| {
            asm.store_imm(size, 1, off, -77);
            asm.load(BPF_W, 0, 1, off);
        }));
    }
    for size in [BPF_B, BPF_H, BPF_W] {
        cases.push(case(&format!("load signed {size:#x}, {off}"), |asm| {
            asm.put(BPF_LDX | BPF_MEMSX | size, 0, 1, off, 0);
        }));
    }
    cases
}

fn atomics(off: i16) -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [BPF_W, BPF_DW] {
        for imm in ATOMICS {
            let (dst, src) = if imm == BPF_LOAD_ACQ { (2, 1) } else { (1, 2) };
            cases.push(case(&format!("atomic {imm:#x} {size:#x}, {off}"), |asm| {
                if (size, imm) == (BPF_W, BPF_CMPXCHG) {
                    // In 6.18 the upper half of r0 stays when memory held the lower one.
                    asm.put(BPF_ALU | BPF_MOV | BPF_X, 0, 0, 0, 0);
                }
                asm.put(BPF_STX | BPF_ATOMIC | size, dst, src, off, imm);
            }));
        }
    }
    cases
}

/// What x86 can do with arenas in the kernel (`bpf_jit_supports_insn`).
const ATOMICS: [i32; 9] = [
    BPF_ADD as i32,
    BPF_AND as i32,
    BPF_OR as i32,
    BPF_XOR as i32,
    BPF_ADD as i32 | BPF_FETCH,
    BPF_XCHG,
    BPF_CMPXCHG,
    BPF_LOAD_ACQ,
    BPF_STORE_REL,
];

/// Arithmetic with a pointer on either side: all of it is done on low halves.
fn arithmetic() -> Vec<Case> {
    let mut cases = Vec::new();
    for class in [BPF_ALU, BPF_ALU64] {
        for op in ARITHMETIC {
            let code = class | op;
            cases.push(case(&format!("pointer {code:#x} number"), |asm| {
                asm.put(code | BPF_X, 1, 2, 0, 0);
                asm.mov(0, 1);
            }));
            cases.push(case(&format!("number {code:#x} pointer"), |asm| {
                asm.put(code | BPF_X, 2, 1, 0, 0);
            }));
            cases.push(case(&format!("pointer {code:#x} constant"), |asm| {
                asm.put(code, 1, 0, 0, 29);
                asm.mov(0, 1);
            }));
        }
    }
    cases
}

const ARITHMETIC: [u8; 11] = [
    BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_MOD, BPF_OR, BPF_AND, BPF_XOR, BPF_LSH, BPF_RSH,
    BPF_ARSH,
];

/// The pointer's two casts, one after the other.
fn casts() -> Case {
    case("casts", |asm| {
        asm.put(CAST, 0, 1, 1, 1 << 16);
        asm.put(CAST, 2, 0, 1, 1);
    })
}

/// `r1` points into the arena, `r2` is the operand and r0 the other one; r0 and r2 are the result.
fn case(name: &str, body: impl FnOnce(&mut Asm)) -> Case {
    let mut asm = prologue();
    let short = asm.last_jump();
    asm.load_map(7, ARENA_MAP);
    asm.load(BPF_DW, 1, 6, 0);
    asm.load(BPF_DW, 2, 6, 8);
    asm.load_imm64(0, FIRST_WORD);
    asm.put(CAST, 1, 1, 1, 1);
    body(&mut asm);
    asm.store(BPF_DW, 6, 0, 16);
    asm.store(BPF_DW, 6, 2, 24);
    asm.mov_imm(0, 2);
    asm.land(short);
    asm.exit();
    Case { name: format!("arena: {name}"), insns: asm.insns, expected: None }
}

impl Generator<'_> {
    /// Some accesses around one place in an arena, which may be a page that is not there.
    pub(super) fn arena(&mut self) {
        let index = self.scalar();
        self.asm.mov(1, index);
        self.asm.alu_imm(BPF_AND, 1, 0x3ff8);
        self.asm.alu_imm(BPF_ADD, 1, USER_START as i32 - 0x100);
        self.asm.load_map(2, ARENA_MAP);
        self.asm.put(CAST, 1, 1, 1, 1);
        let imm = self.immediate();
        self.asm.mov_imm(0, imm);
        self.asm.mov_imm(2, imm >> 5);
        for _ in 0..2 + self.random.below(5) {
            let size = *self.random.pick(&[BPF_B, BPF_H, BPF_W, BPF_DW]);
            let word = self.random.below(6) as i16 * 8;
            let off = word + self.random.below(8) as i16;
            match self.random.below(4) {
                0 => self.asm.store(size, 1, 0, off),
                1 => self.asm.store_imm(size, 1, off, imm ^ 0x55),
                2 => {
                    let op = *self.random.pick(&ATOMICS[..6]);
                    self.asm.put(BPF_STX | BPF_ATOMIC | BPF_DW, 1, 2, word, op);
                    self.asm.alu(BPF_ADD, 0, 2);
                }
                _ => {
                    self.asm.load(size, 3, 1, off);
                    self.asm.alu_imm(BPF_MUL, 0, 31);
                    self.asm.alu(BPF_XOR, 0, 3);
                }
            }
        }
        self.leaves_number();
    }
}

/// Packets whose pointers lead near some places, once the offset is added.
fn packets(off: i16, near: &[i64]) -> Vec<Vec<u8>> {
    let places = [0, 1, 2, 3, 4, 5].map(|page| USER_START + page * PAGE);
    let places = places.into_iter().chain([0, 1 << 32]);
    let pointers =
        places.flat_map(|place| near.iter().map(move |&by| place.wrapping_add_signed(by)));
    pointers
        .enumerate()
        .flat_map(|(index, address)| {
            let pointer = address.wrapping_sub(off as i64 as u64);
            let halves = [pointer, pointer as u32 as u64, pointer ^ 0xdead_0000_0000_0000];
            let operand = 0x0123_4567_89ab_cdef_u64.rotate_left(index as u32);
            halves.map(|pointer| {
                let mut packet = [pointer.to_le_bytes(), operand.to_le_bytes()].concat();
                packet.resize(64, 0xa5);
                packet
            })
        })
        .collect()
}

const CAST: u8 = BPF_ALU64 | BPF_MOV | BPF_X;
/// Distances from the edges of pages.
const NEAR_ANYTHING: [i64; 6] = [0, -1, -4, -7, 8, 3];
/// The same for what is aligned to eight bytes: what is not ends the run.
const NEAR_WORDS: [i64; 3] = [0, -8, 16];
/// What the first page begins with.
const FIRST_WORD: u64 = 0x04df_ba95_704b_2601;
