//! Loops: with iterators, with `may_goto`, with functions, and plain ones that count.

use towpath_bpf::insn::*;
use towpath_bpf::proto::id;

use super::feature::Feature;
use super::writer::{Limits, SPILLS, Signature, Writer, function_below, spill};
use super::{kfunc, maps};

impl Writer<'_> {
    /// A loop around other statements.
    pub(super) fn loop_statement(&mut self) {
        match self.random.below(6) {
            0..=1 if !self.limits.calls => self.iterate(),
            2 => self.may_goto(),
            3..=4 if !self.limits.calls && self.depth < 3 => self.rounds(),
            _ => self.count(),
        }
    }

    /// `for (it = new(a, b); p = next(&it); ) ...; destroy(&it)`
    fn iterate(&mut self) {
        let iterator = self.room(8);
        self.address(1, iterator);
        let start = self.random.between(-3, 9) as i32;
        let count = self.random.below(6) as i32;
        self.asm.mov_imm(2, start);
        self.asm.mov_imm(3, start + count);
        self.asm.call_kfunc(kfunc("bpf_iter_num_new"));
        let reg = self.free();
        let top = self.asm.here();
        self.address(1, iterator);
        self.asm.call_kfunc(kfunc("bpf_iter_num_next"));
        let out = self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0);
        if self.random.one_in(4) {
            // The element stays where it is while other things happen, or goes with the next one.
            self.asm.mov(reg, 0);
            if self.misses() {
                self.address(1, iterator);
                self.asm.call_kfunc(kfunc("bpf_iter_num_next"));
            } else {
                self.nested(Limits { leaving: true, ..Limits::default() }, 1 << reg);
            }
            self.asm.load(BPF_W, reg, reg, 0);
            self.mark(Feature::Iterator);
        } else {
            let load = if self.random.one_in(2) { BPF_MEM } else { BPF_MEMSX };
            self.asm.put(BPF_LDX | load | BPF_W, reg, 0, 0, 0);
            self.mark(Feature::Iterator);
            self.use_element(reg, start, count);
            self.nested(Limits { leaving: true, ..Limits::default() }, 0);
        }
        self.asm.jump_back(BPF_JMP | BPF_JA, 0, 0, top);
        self.asm.land(out);
        self.address(1, iterator);
        if !self.misses() {
            self.asm.call_kfunc(kfunc("bpf_iter_num_destroy"));
        }
        // What it is on the way out of the loop differs from path to path.
        self.asm.mov_imm(reg, count);
    }

    /// An element as an index, which its iterator does not bound.
    fn use_element(&mut self, reg: u8, start: i32, count: i32) {
        if start < 0 && !self.misses() {
            return;
        }
        self.contained(|writer| {
            if !writer.misses() {
                let jump = writer.asm.jump(BPF_JMP | BPF_JGT, reg, 0, start + count);
                writer.fail(jump);
            }
            writer.single(1);
            writer.asm.alu(BPF_ADD, 1, reg);
            let (size, _) = writer.width();
            writer.asm.load(size, 2, 1, 0);
            writer.mark(Feature::ValueAt);
        });
    }

    /// A loop that the verifier lets run as long as it likes.
    fn may_goto(&mut self) {
        let reg = self.free();
        let slot = self.random.below(SPILLS);
        let imm = self.random.below(4) as i32;
        self.asm.store_imm(BPF_DW, REG_FP, spill(slot), imm);
        if self.random.one_in(2) {
            self.asm.mov_imm(reg, imm);
        }
        let top = self.asm.here();
        let out = self.asm.jump(BPF_JMP | BPF_JCOND, 0, 0, 0);
        self.asm.load(BPF_DW, 1, REG_FP, spill(slot));
        let enough = self.asm.jump(BPF_JMP | BPF_JGT, 1, 0, 4 + imm);
        self.asm.alu_imm(BPF_ADD, 1, 1);
        self.asm.store(BPF_DW, REG_FP, 1, spill(slot));
        if self.random.one_in(2) {
            self.asm.alu_imm(BPF_ADD, reg, 1);
        }
        self.nested(Limits::default(), 0);
        self.asm.jump_back(BPF_JMP | BPF_JA, 0, 0, top);
        self.asm.land(out);
        self.asm.mov(1, reg);
        self.mark(Feature::MayGoto);
        self.asm.land(enough);
        if self.random.one_in(3) {
            let place = self.place(maps::ARRAY_BYTES as i32);
            if !self.misses() {
                self.contained_bound(reg, place.max);
            }
            self.single(1);
            self.touch(1, reg, place, Feature::MayGoto);
        }
    }

    /// A bound whose failure makes the number 0.
    fn contained_bound(&mut self, reg: u8, max: i32) {
        let good = self.asm.jump(BPF_JMP | BPF_JLE, reg, 0, max);
        self.asm.mov_imm(reg, 0);
        self.asm.land(good);
    }

    /// `bpf_loop` with a function that may write to this one's stack.
    fn rounds(&mut self) {
        let quiet = self.parts.is_quiet;
        self.parts.is_quiet |= self.limits.leaving;
        let (depth, budget) = (self.depth + 1, 1 + self.random.below(2));
        let part = function_below(self.parts, self.random, Signature::Round, budget, depth);
        self.parts.is_quiet = quiet;
        let reg = self.free();
        let slot = 1 + self.random.below(SPILLS - 1);
        for slot in [slot, slot - 1] {
            let imm = self.random.below(16) as i32;
            self.asm.store_imm(BPF_DW, REG_FP, spill(slot), imm);
        }
        if self.random.one_in(2) {
            let rounds = self.random.below(5) as i32;
            self.asm.mov_imm(1, rounds);
        } else {
            self.asm.mov(1, reg);
            self.asm.alu_imm(BPF_AND, 1, 7);
        }
        self.function_address(2, part);
        self.address(3, spill(slot));
        self.asm.mov_imm(4, 0);
        self.asm.call(id::LOOP as i32);
        self.mark(Feature::Callback);
        self.asm.load(BPF_DW, reg, REG_FP, spill(slot));
        let place = self.place(maps::ARRAY_BYTES as i32);
        if self.random.one_in(2) {
            self.bound(reg, place.max);
        }
        self.single(1);
        self.touch(1, reg, place, Feature::WrittenByCallee);
    }

    /// A loop with a number of rounds.
    fn count(&mut self) {
        let reg = self.free();
        let rounds = 1 + self.random.below(4) as i32;
        let up = self.random.one_in(2);
        self.asm.mov_imm(reg, if up { 0 } else { rounds });
        let top = self.asm.here();
        if self.random.one_in(2) {
            self.single(1);
            self.asm.alu(BPF_ADD, 1, reg);
            let (size, _) = self.width();
            self.asm.load(size, 2, 1, 0);
            self.mark(Feature::Loop);
        }
        self.nested(Limits::default(), 1 << reg);
        self.asm.alu_imm(BPF_ADD, reg, if up { 1 } else { -1 });
        let (code, limit) = if up { (BPF_JLT, rounds) } else { (BPF_JNE, 0) };
        let class = *self.random.pick(&[BPF_JMP, BPF_JMP32]);
        self.asm.jump_back(class | code, reg, limit, top);
    }
}
