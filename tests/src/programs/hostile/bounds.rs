//! Bounds: what makes a number small enough to be an index, or nearly.

use towpath_bpf::insn::*;

use super::feature::Feature;
use super::writer::{SPILLS, Writer, spill};

impl Writer<'_> {
    /// Makes sure that `reg` is at most `max`, or goes where things fail; r1 and r5 are gone.
    pub(super) fn bound(&mut self, reg: u8, max: i32) {
        let max = if self.misses() { max + 1 + self.random.below(8) as i32 } else { max };
        match self.random.below(17) {
            0..=2 => self.masked(reg, max),
            3..=4 => self.compared(reg, max),
            5 => {
                self.asm.put(BPF_ALU | BPF_MOV | BPF_X, reg, reg, 0, 0);
                let jump = self.asm.jump(BPF_JMP32 | BPF_JGT, reg, 0, max);
                self.fail(jump);
            }
            6 => self.signed(reg, max),
            7..=8 => self.through_copy(reg, max),
            9 => self.by_register(reg, max),
            10 => {
                let jump = self.asm.jump(BPF_JMP | BPF_JSET, reg, 0, !low_bits(max));
                self.fail(jump);
            }
            11 => {
                let class = *self.random.pick(&[BPF_ALU64, BPF_ALU]);
                self.asm.put(class | BPF_MOD, reg, 0, 0, max + 1);
            }
            12 => {
                let shift = 64 - (max + 1).ilog2() as i32;
                self.asm.alu_imm(BPF_RSH, reg, shift.min(63));
            }
            13 => self.through_spill(reg, max),
            14 => self.clamped(reg, max),
            15 => self.narrowed(reg, max),
            _ => {
                let one = self.random.below(max as usize + 1) as i32;
                let jump = self.asm.jump(BPF_JMP | BPF_JNE, reg, 0, one);
                self.fail(jump);
            }
        }
        if self.random.one_in(12) {
            self.dead(reg, max);
        }
    }

    fn masked(&mut self, reg: u8, max: i32) {
        let class = *self.random.pick(&[BPF_ALU64, BPF_ALU]);
        self.asm.put(class | BPF_AND, reg, 0, 0, low_bits(max));
    }

    /// Unsigned, one way or the other.
    fn compared(&mut self, reg: u8, max: i32) {
        if self.random.one_in(2) {
            let jump = self.asm.jump(BPF_JMP | BPF_JGT, reg, 0, max);
            return self.fail(jump);
        }
        let good = self.asm.jump(BPF_JMP | BPF_JLE, reg, 0, max);
        let jump = self.asm.jump(BPF_JMP | BPF_JA, 0, 0, 0);
        self.fail(jump);
        self.asm.land(good);
    }

    /// Signed, from both sides; from one only, when something is wrong.
    fn signed(&mut self, reg: u8, max: i32) {
        let class = *self.random.pick(&[BPF_JMP, BPF_JMP, BPF_JMP32]);
        let one_side = self.misses();
        if class == BPF_JMP32 {
            self.asm.put(BPF_ALU | BPF_MOV | BPF_X, reg, reg, 0, 0);
        }
        let jump = self.asm.jump(class | BPF_JSGT, reg, 0, max);
        self.fail(jump);
        if !one_side {
            let jump = self.asm.jump(class | BPF_JSLT, reg, 0, 0);
            self.fail(jump);
        }
    }

    /// A copy is compared, with something added to it or not.
    fn through_copy(&mut self, reg: u8, max: i32) {
        let class = *self.random.pick(&[BPF_ALU64, BPF_ALU64, BPF_ALU]);
        if class == BPF_ALU && !self.misses() {
            self.asm.put(BPF_ALU | BPF_MOV | BPF_X, reg, reg, 0, 0);
        }
        self.asm.put(class | BPF_MOV | BPF_X, 1, reg, 0, 0);
        let by = *self.random.pick(&[0, 0, 1, 8, 100, -1]);
        if by != 0 {
            let class = *self.random.pick(&[BPF_ALU64, BPF_ALU64, BPF_ALU]);
            self.asm.put(class | BPF_ADD, 1, 0, 0, by);
        }
        let jump = self.asm.jump(BPF_JMP | BPF_JGT, 1, 0, max.saturating_add(by));
        self.fail(jump);
        if by > 0 {
            let jump = self.asm.jump(BPF_JMP | BPF_JLT, 1, 0, by);
            self.fail(jump);
        }
        if by < 0 {
            let jump = self.asm.jump(BPF_JMP | BPF_JGT, reg, 0, max);
            self.fail(jump);
        }
        self.mark(Feature::Linked);
    }

    /// The limit is in a register too, and need not be one number.
    fn by_register(&mut self, reg: u8, max: i32) {
        if self.random.one_in(2) {
            self.asm.mov_imm(5, max);
        } else {
            let slot = self.random.below(SPILLS);
            self.asm.load(BPF_DW, 5, REG_FP, spill(slot));
            self.asm.alu_imm(BPF_AND, 5, low_bits(max));
        }
        let class = *self.random.pick(&[BPF_JMP, BPF_JMP, BPF_JMP32]);
        if class == BPF_JMP32 && !self.misses() {
            self.asm.put(BPF_ALU | BPF_MOV | BPF_X, reg, reg, 0, 0);
        }
        let jump = match self.random.below(2) {
            0 => self.asm.jump(class | BPF_JGT | BPF_X, reg, 5, 0),
            _ => self.asm.jump(class | BPF_JLT | BPF_X, 5, reg, 0),
        };
        self.fail(jump);
    }

    /// What is on the stack is what was compared.
    fn through_spill(&mut self, reg: u8, max: i32) {
        let slot = self.random.below(SPILLS);
        self.asm.store(BPF_DW, REG_FP, reg, spill(slot));
        let jump = self.asm.jump(BPF_JMP | BPF_JGT, reg, 0, max);
        self.fail(jump);
        let size = *self.random.pick(&[BPF_DW, BPF_DW, BPF_W, BPF_H, BPF_B]);
        self.asm.load(size, reg, REG_FP, spill(slot));
        self.mark(Feature::Linked);
    }

    fn clamped(&mut self, reg: u8, max: i32) {
        let class = *self.random.pick(&[BPF_JMP, BPF_JMP, BPF_JMP32]);
        if class == BPF_JMP32 && !self.misses() {
            self.asm.put(BPF_ALU | BPF_MOV | BPF_X, reg, reg, 0, 0);
        }
        let good = self.asm.jump(class | BPF_JLE, reg, 0, max);
        let other = self.random.below(max as usize + 1) as i32;
        self.asm.mov_imm(reg, other);
        self.asm.land(good);
    }

    /// Only some of the bits count.
    fn narrowed(&mut self, reg: u8, max: i32) {
        let width = *self.random.pick(&[8, 16, 32]);
        self.asm.put(BPF_ALU64 | BPF_MOV | BPF_X, reg, reg, width, 0);
        let jump = self.asm.jump(BPF_JMP | BPF_JSGT, reg, 0, max);
        self.fail(jump);
        if !self.misses() {
            let jump = self.asm.jump(BPF_JMP | BPF_JSLT, reg, 0, 0);
            self.fail(jump);
        }
    }

    /// A branch that the bound rules out, with something in it that no program may do.
    fn dead(&mut self, reg: u8, max: i32) {
        let class = *self.random.pick(&[BPF_JMP, BPF_JMP32]);
        let over = match self.random.below(3) {
            0 => self.asm.jump(class | BPF_JLE, reg, 0, max),
            1 => self.asm.jump(BPF_JMP | BPF_JSGE, reg, 0, 0),
            _ => self.asm.jump(class | BPF_JNE, reg, 0, max + 1 + self.random.below(9) as i32),
        };
        self.asm.mov_imm(1, 0);
        self.asm.load(BPF_DW, 1, 1, 0);
        self.asm.land(over);
        self.asm.mov(1, reg);
        self.mark(Feature::Dead);
    }
}

/// The most ones at the low end that stay at or below `max`.
fn low_bits(max: i32) -> i32 {
    (1 << (max + 1).ilog2()) - 1
}
