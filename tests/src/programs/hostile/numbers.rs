//! Numbers: where they come from, what happens to them, and what bounds them.

use towpath_bpf::insn::*;
use towpath_bpf::proto::id;

use super::feature::Feature;
use super::maps;
use super::writer::{POINTER, SPILLS, Signature, Writer, spill};

impl Writer<'_> {
    /// Constants near the edges of widths, and small ones.
    pub(super) fn immediate(&mut self) -> i32 {
        let small = self.random.between(-9, 70) as i32;
        let any = self.random.bits() as i32;
        let edges = [0, 1, -1, 7, 8, 63, 64, 0xff, 0xffff, i32::MAX, i32::MIN, i32::MIN + 1];
        let edge = *self.random.pick(&edges);
        *self.random.pick(&[small, small, edge, any])
    }

    /// A statement that only changes a number.
    pub(super) fn change(&mut self) {
        let reg = self.free();
        if self.random.one_in(2) {
            self.source(reg);
        }
        self.launder(reg);
        if self.random.one_in(3) {
            let slot = self.random.below(SPILLS);
            self.asm.store(BPF_DW, REG_FP, reg, spill(slot));
        }
    }

    /// `reg` = some number; r0 to r5 are gone.
    pub(super) fn source(&mut self, reg: u8) {
        match self.random.below(16) {
            0..=2 => self.value_source(reg),
            3..=4 => self.packet_source(reg),
            5 => {
                self.asm.call(id::GET_PRANDOM_U32 as i32);
                self.asm.mov(reg, 0);
            }
            6..=8 => {
                let (size, bytes) = self.width();
                let slot = self.random.below(SPILLS);
                let off = spill(slot) + (self.random.below(8 / bytes) * bytes) as i16;
                self.load(size, reg, REG_FP, off);
            }
            9 if self.has_context => {
                let field = *self.random.pick(&[12, 16]);
                self.asm.load(BPF_W, reg, 6, field);
            }
            10 => {
                let value = self.random.bits() >> self.random.below(64);
                self.asm.load_imm64(reg, value);
            }
            11 => self.atomic_source(reg),
            12 => self.given(reg),
            13..=14 => {
                let from = 7 + self.random.below(3) as u8;
                if self.locked & 1 << from == 0 {
                    self.asm.mov(reg, from);
                }
            }
            _ => {
                let imm = self.immediate();
                self.asm.mov_imm(reg, imm);
            }
        }
    }

    /// A number of the map of one value.
    fn value_source(&mut self, reg: u8) {
        self.single(1);
        let (size, bytes) = self.width();
        let off = (self.random.below(64 / bytes) * bytes) as i16;
        self.load(size, reg, 1, off);
    }

    /// A number of the packet, if it is long enough.
    fn packet_source(&mut self, reg: u8) {
        if !self.has_context {
            return self.value_source(reg);
        }
        let imm = self.immediate();
        self.asm.mov_imm(reg, imm);
        self.asm.load(BPF_W, 2, 6, 0);
        self.asm.load(BPF_W, 3, 6, 4);
        self.asm.mov(4, 2);
        self.asm.alu_imm(BPF_ADD, 4, 14);
        let short = self.asm.jump(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 0);
        let (size, bytes) = self.width();
        let off = self.random.below(15 - bytes) as i16;
        self.load(size, reg, 2, off);
        self.asm.land(short);
    }

    /// What an atomic operation on the stack finds there.
    fn atomic_source(&mut self, reg: u8) {
        let slot = self.random.below(SPILLS);
        let ops = [0x01, 0x41, 0x51, 0xa1, BPF_XCHG, BPF_CMPXCHG];
        let op = *self.random.pick(&ops);
        let imm = self.immediate();
        self.asm.mov_imm(2, imm);
        if op == BPF_CMPXCHG {
            let imm = self.immediate();
            self.asm.mov_imm(0, imm);
        }
        let size = *self.random.pick(&[BPF_W, BPF_DW]);
        self.asm.put(BPF_STX | BPF_ATOMIC | size, REG_FP, 2, spill(slot), op);
        self.mark(Feature::Fetch);
        let old = if op == BPF_CMPXCHG { 0 } else { 2 };
        self.asm.mov(reg, old);
    }

    /// A number of the memory that the function was given.
    fn given(&mut self, reg: u8) {
        let imm = self.immediate();
        let bytes = match self.signature {
            Signature::Writer | Signature::Round | Signature::GlobalMemory { .. } => 16,
            Signature::Element => 64,
            _ => return self.asm.mov_imm(reg, imm),
        };
        self.asm.load(BPF_DW, 1, REG_FP, POINTER);
        let careless = self.signature == Signature::GlobalMemory { nonnull: false };
        let mut null = None;
        if careless && !self.misses() {
            self.asm.mov_imm(reg, imm);
            null = Some(self.asm.jump(BPF_JMP | BPF_JEQ, 1, 0, 0));
        }
        let off = self.random.below(bytes / 8) as i16 * 8;
        let off = if self.misses() { bytes as i16 } else { off };
        self.asm.load(BPF_DW, reg, 1, off);
        if let Some(null) = null {
            self.asm.land(null);
        }
    }

    /// `reg` = address of the map of one value.
    pub(super) fn single(&mut self, reg: u8) {
        self.asm.put(BPF_LD | BPF_IMM | BPF_DW, reg, PSEUDO_MAP_VALUE, 0, maps::SINGLE);
        self.asm.put(0, 0, 0, 0, 0);
    }

    pub(super) fn width(&mut self) -> (u8, usize) {
        *self.random.pick(&[(BPF_B, 1), (BPF_H, 2), (BPF_W, 4), (BPF_DW, 8)])
    }

    /// A load, with sign now and then.
    pub(super) fn load(&mut self, size: u8, dst: u8, src: u8, off: i16) {
        let signed = size != BPF_DW && self.random.one_in(4);
        let mode = if signed { BPF_MEMSX } else { BPF_MEM };
        self.asm.put(BPF_LDX | mode | size, dst, src, off, 0);
    }

    /// Changes a number in a way that verifiers can follow, more or less.
    pub(super) fn launder(&mut self, reg: u8) {
        let class = *self.random.pick(&[BPF_ALU64, BPF_ALU64, BPF_ALU]);
        let bits = if class == BPF_ALU { 32 } else { 64 };
        let small = self.random.between(-8, 72) as i32;
        match self.random.below(20) {
            0..=1 => self.asm.put(class | BPF_ADD, reg, 0, 0, small),
            2 => self.asm.put(class | BPF_SUB, reg, 0, 0, small),
            3 => self.bitwise(class, reg),
            4 => {
                let by = self.random.below(bits) as i32;
                let op = *self.random.pick(&[BPF_LSH, BPF_RSH, BPF_ARSH]);
                self.asm.put(class | op, reg, 0, 0, by);
            }
            5 => {
                let widths: &[i16] = if class == BPF_ALU { &[8, 16] } else { &[8, 16, 32] };
                let width = *self.random.pick(widths);
                self.asm.put(class | BPF_MOV | BPF_X, reg, reg, width, 0);
            }
            6 => self.asm.put(BPF_ALU | BPF_MOV | BPF_X, reg, reg, 0, 0),
            7 => self.asm.put(class | BPF_NEG, reg, 0, 0, 0),
            8 => {
                let code = *self.random.pick(&[BPF_ALU, BPF_ALU | BPF_X, BPF_ALU64]);
                let width = *self.random.pick(&[16, 32, 64]);
                self.asm.put(code | BPF_END, reg, 0, 0, width);
            }
            9 => {
                let by = *self.random.pick(&[2, 3, 4, 8, -1, 0x101]);
                self.asm.put(class | BPF_MUL, reg, 0, 0, by);
            }
            10 => {
                let op = *self.random.pick(&[BPF_DIV, BPF_MOD]);
                let by = *self.random.pick(&[2, 3, 7, 16, 64, -1, -3]);
                let signed = i16::from(self.random.one_in(3));
                self.asm.put(class | op, reg, 0, signed, by);
            }
            11..=13 => self.through_stack(reg),
            14 => self.with_another(class, reg),
            15 => self.sign_bits(reg),
            16 => self.two_ways(reg),
            17 => self.unequal(reg),
            _ => {
                let op = *self.random.pick(&[BPF_ADD, BPF_SUB, BPF_XOR, BPF_AND, BPF_OR]);
                let imm = self.immediate();
                self.asm.put(class | op, reg, 0, 0, imm);
            }
        }
    }

    fn bitwise(&mut self, class: u8, reg: u8) {
        let op = *self.random.pick(&[BPF_AND, BPF_AND, BPF_OR, BPF_XOR]);
        let imm = *self.random.pick(&[1, 7, 8, 15, 31, 63, 0xff, 0xf0, -8, -64, 0x8000, i32::MIN]);
        self.asm.put(class | op, reg, 0, 0, imm);
    }

    /// Onto the stack and back, in the same width or another.
    fn through_stack(&mut self, reg: u8) {
        let slot = self.random.below(SPILLS);
        let (store, _) = self.width();
        self.asm.store(store, REG_FP, reg, spill(slot));
        let (other, bytes) = self.width();
        let (size, off) = match self.random.below(3) {
            0 => (store, 0),
            1 => (other, 0),
            _ => (other, (self.random.below(8 / bytes) * bytes) as i16),
        };
        if self.random.one_in(4) {
            let imm = self.immediate();
            let (size, bytes) = self.width();
            let at = (self.random.below(8 / bytes) * bytes) as i16;
            self.asm.store_imm(size, REG_FP, spill(slot) + at, imm);
        }
        self.load(size, reg, REG_FP, spill(slot) + off);
        if size != store || off != 0 {
            self.mark(Feature::Pieces);
        }
    }

    /// Arithmetic with another number.
    fn with_another(&mut self, class: u8, reg: u8) {
        let slot = self.random.below(SPILLS);
        let (size, _) = self.width();
        self.load(size, 1, REG_FP, spill(slot));
        let ops = [BPF_ADD, BPF_SUB, BPF_MUL, BPF_AND, BPF_OR, BPF_XOR, BPF_LSH, BPF_RSH];
        let more = [BPF_ARSH, BPF_DIV, BPF_MOD];
        let op =
            if self.random.one_in(4) { *self.random.pick(&more) } else { *self.random.pick(&ops) };
        if self.random.one_in(2) {
            self.asm.put(class | BPF_AND, 1, 0, 0, *self.random.pick(&[3, 15, 31, 63]));
        }
        let signed = i16::from(matches!(op, BPF_DIV | BPF_MOD) && self.random.one_in(2));
        self.asm.put(class | op | BPF_X, reg, 1, signed, 0);
    }

    /// All bits the sign's, then some of them.
    fn sign_bits(&mut self, reg: u8) {
        let (class, by) = *self.random.pick(&[(BPF_ALU64, 63), (BPF_ALU, 31), (BPF_ALU64, 31)]);
        self.asm.put(class | BPF_ARSH, reg, 0, 0, by);
        let op = *self.random.pick(&[BPF_AND, BPF_OR, BPF_XOR]);
        let imm = *self.random.pick(&[7, 8, 56, -8, 1]);
        self.asm.put(class | op, reg, 0, 0, imm);
    }

    /// One of two numbers, by a third.
    fn two_ways(&mut self, reg: u8) {
        let slot = self.random.below(SPILLS);
        self.asm.load(BPF_DW, 1, REG_FP, spill(slot));
        let (imm, other) = (self.immediate(), self.random.below(64) as i32);
        let jump = self.compare(1, imm);
        self.asm.mov_imm(reg, other);
        self.asm.land(jump);
    }

    /// What is left once one value is ruled out.
    fn unequal(&mut self, reg: u8) {
        let (or, and) = *self.random.pick(&[(0xe0, 0xf0), (0x10, 0x18), (1, 3), (0x30, 0x3f)]);
        self.asm.alu_imm(BPF_OR, reg, or);
        self.asm.alu_imm(BPF_AND, reg, and);
        let code = *self.random.pick(&[BPF_JEQ, BPF_JNE]);
        let class = *self.random.pick(&[BPF_JMP, BPF_JMP32]);
        let jump = self.asm.jump(class | code, reg, 0, *self.random.pick(&[or, and]));
        self.asm.alu_imm(BPF_SUB, reg, or);
        self.asm.land(jump);
    }

    /// Any comparison with a constant.
    pub(super) fn compare(&mut self, reg: u8, imm: i32) -> crate::programs::asm::Jump {
        const OPS: [u8; 11] = [
            BPF_JEQ, BPF_JNE, BPF_JGT, BPF_JGE, BPF_JLT, BPF_JLE, BPF_JSGT, BPF_JSGE, BPF_JSLT,
            BPF_JSLE, BPF_JSET,
        ];
        let class = *self.random.pick(&[BPF_JMP, BPF_JMP, BPF_JMP32]);
        let op = *self.random.pick(&OPS);
        self.asm.jump(class | op, reg, 0, imm)
    }
}
