//! Calls: of functions that do more than they return, of other programs, and what is thrown.

use towpath_bpf::insn::*;
use towpath_bpf::proto::id;

use super::feature::Feature;
use super::writer::{SPILLS, Signature, Writer, function_below, spill};
use super::{kfunc, maps};

impl Writer<'_> {
    /// A function of the program.
    pub(super) fn call_statement(&mut self) {
        if self.depth >= 3 {
            return self.change();
        }
        match self.random.below(9) {
            0..=2 | 8 => self.call_for_number(),
            3..=4 => self.call_that_writes(),
            5 => self.call_global(),
            6 => self.each_element(),
            _ => self.call_for_value(),
        }
    }

    /// A function that is told what may be done around its call.
    fn part(&mut self, signature: Signature) -> usize {
        let budget = 1 + self.random.below(2);
        let (depth, quiet) = (self.depth + 1, self.parts.is_quiet);
        self.parts.is_quiet |= self.limits.leaving;
        let part = function_below(self.parts, self.random, signature, budget, depth);
        self.parts.is_quiet = quiet;
        part
    }

    /// `reg = f(ctx, number)`, used as an index now and then as if it were what f says.
    fn call_for_number(&mut self) {
        let part = self.part(Signature::Number);
        let reg = self.free();
        self.pass_context();
        self.asm.mov(2, reg);
        self.call_part(part);
        self.mark(Feature::Subprogram);
        self.asm.mov(reg, 0);
        if self.random.one_in(2) {
            let place = self.place(maps::ARRAY_BYTES as i32);
            if self.random.one_in(2) {
                self.bound(reg, place.max);
            }
            self.single(1);
            self.touch(1, reg, place, Feature::ResultUsed);
        }
    }

    /// r1 = the context, or a number that will not do.
    fn pass_context(&mut self) {
        if self.has_context {
            return self.asm.mov(1, 6);
        }
        self.asm.mov_imm(1, 0);
    }

    /// `f(ctx, &pair, number)`, and what is then in the pair.
    fn call_that_writes(&mut self) {
        let part = self.part(Signature::Writer);
        let slot = 1 + self.random.below(SPILLS - 1);
        for slot in [slot, slot - 1] {
            let imm = self.immediate();
            self.asm.store_imm(BPF_DW, REG_FP, spill(slot), imm);
        }
        let reg = self.free();
        self.pass_context();
        self.address(2, spill(slot));
        self.asm.mov(3, reg);
        self.call_part(part);
        self.mark(Feature::Subprogram);
        let off = 8 * self.random.below(2) as i16;
        self.load(BPF_DW, reg, REG_FP, spill(slot) + off);
        let place = self.place(maps::ARRAY_BYTES as i32);
        if self.random.one_in(2) {
            self.bound(reg, place.max);
        }
        self.single(1);
        self.touch(1, reg, place, Feature::WrittenByCallee);
    }

    /// A function that is verified on its own, with memory at its limits.
    fn call_global(&mut self) {
        let reg = self.free();
        if self.random.one_in(2) && self.has_context {
            let part = self.part(Signature::GlobalNumber);
            self.pass_context();
            self.asm.mov(2, reg);
            self.call_part(part);
        } else {
            let nonnull = self.random.one_in(2);
            let part = self.part(Signature::GlobalMemory { nonnull });
            let index = self.index(maps::ARRAY_BYTES as i32 - 16);
            match self.random.below(4) {
                0 if !nonnull => self.asm.mov_imm(1, 0),
                1 => {
                    let slot = 1 + self.random.below(SPILLS - 1);
                    self.address(1, spill(slot));
                }
                _ => {
                    self.single(1);
                    self.asm.alu(BPF_ADD, 1, index);
                }
            }
            self.asm.mov(2, index);
            self.call_part(part);
        }
        self.mark(Feature::Global);
        if self.locked & 1 << reg == 0 {
            self.asm.mov(reg, 0);
        }
    }

    /// `bpf_for_each_map_elem`: a function gets each value, and the caller's stack.
    fn each_element(&mut self) {
        let part = self.part(Signature::Element);
        self.asm.load_map(1, maps::ARRAY);
        self.function_address(2, part);
        let slot = 1 + self.random.below(SPILLS - 1);
        self.address(3, spill(slot));
        self.asm.mov_imm(4, 0);
        self.asm.call(id::FOR_EACH_MAP_ELEM as i32);
        self.mark(Feature::Callback);
        let reg = self.free();
        self.asm.mov(reg, 0);
    }

    /// A function that looks something up and returns the value's address, unless it goes away.
    fn call_for_value(&mut self) {
        let part = self.looks_up();
        let place = self.place(maps::ARRAY_BYTES as i32);
        let index = self.index(place.max);
        self.contained(|writer| {
            writer.pass_context();
            writer.asm.mov(2, index);
            writer.call_part(part);
            writer.mark(Feature::Subprogram);
            writer.not_null(0, false);
            writer.touch(0, index, place, Feature::ResultUsed);
        });
    }

    fn looks_up(&mut self) -> usize {
        let leaves = self.random.one_in(3) && self.has_context && !self.limits.leaving;
        let entry = self.random.below(6) as i32;
        self.parts.plain_function(|asm| {
            asm.store_imm(BPF_W, REG_FP, -4, entry);
            if leaves {
                asm.mov(6, 1);
                asm.load_map(2, maps::PROGRAMS);
                asm.mov_imm(3, entry);
                asm.call(id::TAIL_CALL as i32);
            }
            asm.load_map(1, maps::ARRAY);
            asm.mov(2, REG_FP);
            asm.alu_imm(BPF_ADD, 2, -4);
            asm.call(id::MAP_LOOKUP_ELEM as i32);
            asm.exit();
        })
    }

    /// Another program, which may not be there.
    pub(super) fn tail_call(&mut self) {
        if !self.has_context || (self.limits.leaving && !self.misses()) {
            return self.change();
        }
        let reg = self.kept();
        self.asm.mov(1, 6);
        self.asm.load_map(2, maps::PROGRAMS);
        match self.random.below(3) {
            0 => self.asm.mov(3, reg),
            _ => {
                let slot = self.random.below(maps::PROGRAM_SLOTS as usize + 1) as i32;
                self.asm.mov_imm(3, slot);
            }
        }
        self.asm.call(id::TAIL_CALL as i32);
        let inside = self.signature != Signature::Entry;
        self.mark(if inside { Feature::TailCallInside } else { Feature::TailCall });
    }

    /// Throws, perhaps; then nothing may be held.
    pub(super) fn throw(&mut self) {
        let held = self.limits.leaving || self.parts.is_quiet;
        if !self.parts.throws || (held && !self.misses()) {
            return self.change();
        }
        let reg = self.kept();
        let imm = self.random.below(30) as i32;
        let over = self.compare(reg, imm);
        self.asm.mov_imm(1, imm);
        self.asm.call_kfunc(kfunc("bpf_throw"));
        self.asm.land(over);
        self.asm.mov_imm(0, 0);
        self.mark(Feature::Throw);
    }

    /// Moves head, tail or metadata, or pulls bytes out of frags.
    pub(super) fn move_packet(&mut self) {
        if !self.has_context {
            return self.change();
        }
        let reg = self.free();
        self.asm.mov(1, 6);
        match self.random.below(5) {
            0 => {
                self.asm.mov(2, reg);
                self.asm.call(id::XDP_ADJUST_HEAD as i32);
            }
            1 => self.move_by_constant(id::XDP_ADJUST_HEAD, &[-14, -40, 4, 14, 40]),
            2 => self.move_by_constant(id::XDP_ADJUST_TAIL, &[-4, -40, 16, 100]),
            3 => self.move_by_constant(id::XDP_ADJUST_META, &[-4, -8, -32, 4]),
            _ => {
                self.asm.mov_imm(2, 64);
                self.asm.call_kfunc(kfunc("bpf_xdp_pull_data"));
            }
        }
        self.mark(Feature::Moved);
        self.asm.mov(reg, 0);
    }

    fn move_by_constant(&mut self, helper: u32, by: &[i32]) {
        let by = *self.random.pick(by);
        self.asm.mov_imm(2, by);
        self.asm.call(helper as i32);
    }
}
