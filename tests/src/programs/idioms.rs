//! What compilers make of common C: the shapes that optimising passes look for, with variations.
//!
//! Each idiom works in r0 to r5, which nothing holds on to, and leaves a number in r0.

use towpath_bpf::insn::*;

use super::asm::Jump;
use super::generate::Generator;
use super::state::{Kind, SLOTS, slot_offset};

impl Generator<'_> {
    /// One idiom, and its result where it can be seen.
    pub(super) fn idiom(&mut self) {
        if self.state.locked & 0x3f != 0 {
            return self.arithmetic();
        }
        match self.random.below(22) {
            20 => self.arena(),
            0..=1 => self.map_idiom(),
            2..=3 => self.assembled_field(),
            4 => self.word_sum(),
            5 => self.variable_offset(),
            6 => self.pointer_to_callee(),
            7..=8 => self.overlapping(),
            9 => self.atomics(),
            10 => self.checksum_difference(),
            11 => self.moved_packet(),
            12 => self.loaded_bytes(),
            13 => self.byte_stores(),
            14 => self.copy(),
            15 => self.called_in_a_loop(),
            16 => self.summing_loop(),
            17..=18 => self.numbers(),
            // Each doubles the paths that the kernel looks at, which takes it seconds.
            21 if self.random.one_in(3) => self.may_goto(),
            _ => self.same_register_twice(),
        }
        if !self.random.one_in(4) {
            self.show();
        }
    }

    /// Everything below r6 is gone but a number in r0.
    pub(super) fn leaves_number(&mut self) {
        self.state.clobber();
    }

    /// Adds a number into the map of one entry, so that it counts.
    pub(super) fn show(&mut self) {
        if self.state.locked & 0x3f != 0 {
            return;
        }
        let src = self.scalar();
        let pointer = if src == 1 { 2 } else { 1 };
        self.single_value(pointer);
        let off = self.random.below(8) as i16 * 8;
        match self.random.below(3) {
            0 => self.asm.store(BPF_DW, pointer, src, off),
            1 => self.asm.put(BPF_STX | BPF_ATOMIC | BPF_DW, pointer, src, off, 0),
            _ => {
                let old = if src == 3 { 4 } else { 3 };
                self.asm.load(BPF_DW, old, pointer, off);
                self.asm.alu_imm(BPF_MUL, old, 31);
                self.asm.alu(BPF_ADD, old, src);
                self.asm.store(BPF_DW, pointer, old, off);
                self.state.set(old, Kind::Scalar);
            }
        }
    }

    /// `reg` = address of the value of the map of one entry.
    fn single_value(&mut self, reg: u8) {
        self.asm.put(BPF_LD | BPF_IMM | BPF_DW, reg, PSEUDO_MAP_VALUE, 0, super::SINGLE_MAP);
        self.asm.put(0, 0, 0, 0, 0);
        self.state.set(reg, Kind::Value(super::ARRAY_VALUE as i16));
    }

    /// The context, if it is where calls leave it alone.
    pub(super) fn kept_context(&self) -> Option<u8> {
        self.state.find(|kind| kind == Kind::Ctx).last().copied().filter(|ctx| *ctx >= 6)
    }

    /// r0 = 0, r2 = data, r3 = data_end; a jump is taken when there are fewer than `room` bytes.
    fn packet(&mut self, ctx: u8, room: i32) -> Jump {
        self.asm.mov_imm(0, 0);
        self.asm.load(BPF_W, 2, ctx, 0);
        self.asm.load(BPF_W, 3, ctx, 4);
        self.asm.mov(4, 2);
        self.asm.alu_imm(BPF_ADD, 4, room);
        match self.random.below(2) {
            0 => self.asm.jump(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 0),
            _ => self.asm.jump(BPF_JMP | BPF_JLT | BPF_X, 3, 4, 0),
        }
    }

    /// A field read byte by byte (or by halves), in either order, with gaps now and then.
    fn assembled_field(&mut self) {
        let Some(ctx) = self.kept_context() else { return self.arithmetic() };
        let skip = self.packet(ctx, 64);
        let piece = *self.random.pick(&[1usize, 1, 1, 2, 4]);
        let count = *self.random.pick(&[2, 2, 3, 4, 4, 8]);
        let count = if count * piece > 8 { 8 / piece } else { count };
        let start = self.random.below(50) as i16;
        let size = [BPF_B, BPF_B, BPF_H, BPF_W, BPF_W][piece];
        let swapped = self.random.one_in(2);
        let narrow = count * piece <= 4 && self.random.one_in(2);
        let class = if narrow { BPF_ALU } else { BPF_ALU64 };
        for index in 0..count {
            let place = if swapped { count - 1 - index } else { index };
            let gap = i16::from(self.random.one_in(20));
            let reg = if index == 0 { 0 } else { 5 };
            self.asm.load(size, reg, 2, start + (index * piece) as i16 + gap);
            let shift = (place * piece * 8) as i32;
            if shift > 0 {
                self.asm.put(class | BPF_LSH, reg, 0, 0, shift);
            }
            if index > 0 {
                let op = *self.random.pick(&[BPF_OR, BPF_OR, BPF_OR, BPF_ADD, BPF_XOR]);
                self.asm.put(class | op | BPF_X, 0, 5, 0, 0);
            }
            if self.random.one_in(24) {
                self.asm.store_imm(BPF_B, 2, start + (index * piece) as i16, 0x5a);
            }
        }
        if self.random.one_in(3) {
            let width = *self.random.pick(&[16, 32, 64]);
            self.asm.put(BPF_ALU | BPF_END | BPF_X, 0, 0, 0, width);
        }
        self.asm.land(skip);
        self.leaves_number();
    }

    /// The one's complement sum of some words: a loop with a check for each word, then folding.
    fn word_sum(&mut self) {
        let Some(ctx) = self.kept_context() else { return self.arithmetic() };
        let (size, bytes) = *self.random.pick(&[(BPF_H, 2), (BPF_H, 2), (BPF_W, 4), (BPF_B, 1)]);
        let rounds = 1 + self.random.below(24) as i32;
        self.asm.mov_imm(0, 0);
        self.asm.load(BPF_W, 1, ctx, 0);
        self.asm.load(BPF_W, 3, ctx, 4);
        self.asm.alu_imm(BPF_ADD, 1, *self.random.pick(&[0, 14, 34]));
        let counts_down = self.random.one_in(2);
        self.asm.mov_imm(4, if counts_down { rounds } else { 0 });
        let top = self.asm.here();
        self.asm.mov(5, 1);
        self.asm.alu_imm(BPF_ADD, 5, bytes);
        let out = self.asm.jump(BPF_JMP | BPF_JGT | BPF_X, 5, 3, 0);
        self.asm.load(size, 2, 1, 0);
        if self.random.one_in(4) {
            self.asm.put(BPF_ALU | BPF_END | BPF_X, 2, 0, 0, 16);
        }
        self.asm.alu(BPF_ADD, 0, 2);
        self.asm.alu_imm(BPF_ADD, 1, bytes);
        self.asm.alu_imm(BPF_ADD, 4, if counts_down { -1 } else { 1 });
        let (code, limit) = if counts_down { (BPF_JNE, 0) } else { (BPF_JLT, rounds) };
        self.asm.jump_back(BPF_JMP | code, 4, limit, top);
        self.asm.land(out);
        self.folded();
        self.leaves_number();
    }

    /// Folds r0 to 16 bits, once or twice, and inverts it now and then.
    fn folded(&mut self) {
        for _ in 0..self.random.below(3) {
            self.asm.mov(2, 0);
            self.asm.alu_imm(BPF_RSH, 2, 16);
            self.asm.alu_imm(BPF_AND, 0, 0xffff);
            self.asm.alu(BPF_ADD, 0, 2);
        }
        if self.random.one_in(3) {
            self.asm.alu_imm(BPF_XOR, 0, -1);
            self.asm.alu_imm(BPF_AND, 0, 0xffff);
        }
    }

    /// A header whose place depends on a byte of the one before.
    fn variable_offset(&mut self) {
        let Some(ctx) = self.kept_context() else { return self.arithmetic() };
        let skip = self.packet(ctx, 20);
        self.asm.load(BPF_B, 5, 2, self.random.below(16) as i16);
        self.asm.alu_imm(BPF_AND, 5, 15);
        self.asm.alu_imm(BPF_LSH, 5, 2);
        self.asm.alu(BPF_ADD, 2, 5);
        let room = 4 + self.random.below(12) as i32;
        self.asm.mov(4, 2);
        self.asm.alu_imm(BPF_ADD, 4, room);
        let short = self.asm.jump(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 0);
        let (size, bytes) = *self.random.pick(&[(BPF_B, 1), (BPF_H, 2), (BPF_W, 4)]);
        let off = self.random.below(room as usize - bytes + 1) as i16;
        self.asm.load(size, 0, 2, off);
        if self.random.one_in(3) {
            let other = self.random.below(room as usize - bytes + 1) as i16;
            self.asm.store(size, 2, 5, other);
            self.asm.load(size, 5, 2, off);
            self.asm.alu(BPF_XOR, 0, 5);
        }
        self.asm.land(short);
        self.asm.land(skip);
        self.leaves_number();
    }

    /// Stores and loads of different widths over the same two slots.
    fn overlapping(&mut self) {
        let slot = 1 + self.random.below(SLOTS - 1);
        let base = slot_offset(slot);
        for part in [0, 8] {
            let src = self.scalar();
            self.asm.store(BPF_DW, REG_FP, src, base + part);
        }
        (self.state.stack[slot], self.state.stack[slot - 1]) = (true, true);
        for _ in 0..2 + self.random.below(5) {
            let (size, bytes) = self.any_width();
            let off = base + self.random.below(16 / bytes) as i16 * bytes as i16;
            match self.random.below(4) {
                0 => {
                    let imm = self.immediate();
                    self.asm.store_imm(size, REG_FP, off, imm);
                }
                1..=2 => {
                    let src = self.scalar();
                    self.asm.store(size, REG_FP, src, off);
                }
                _ => {
                    let dst = self.target(Kind::Scalar);
                    self.asm.load(size, dst, REG_FP, off);
                }
            }
        }
        let (size, bytes) = self.any_width();
        let off = base + self.random.below(16 / bytes) as i16 * bytes as i16;
        let signed = size != BPF_DW && self.random.one_in(3);
        let mode = if signed { BPF_MEMSX } else { BPF_MEM };
        self.asm.put(BPF_LDX | mode | size, 0, REG_FP, off, 0);
        self.state.set(0, Kind::Scalar);
    }

    pub(super) fn any_width(&mut self) -> (u8, usize) {
        *self.random.pick(&[(BPF_B, 1), (BPF_H, 2), (BPF_W, 4), (BPF_DW, 8)])
    }

    /// Atomics of both widths on the stack or a map's value, ordered loads and stores among them.
    fn atomics(&mut self) {
        let on_stack = self.random.one_in(2);
        let slot = self.random.below(SLOTS);
        let (base, off) = if on_stack {
            let src = self.scalar();
            self.asm.store(BPF_DW, REG_FP, src, slot_offset(slot));
            self.state.stack[slot] = true;
            (REG_FP, slot_offset(slot))
        } else {
            self.single_value(1);
            (1, self.random.below(8) as i16 * 8)
        };
        let imm = self.immediate();
        self.asm.mov_imm(0, imm);
        self.asm.mov_imm(2, imm >> 3);
        for _ in 0..1 + self.random.below(3) {
            let size = *self.random.pick(&[BPF_W, BPF_DW]);
            let off = off + if size == BPF_W { 4 * self.random.below(2) as i16 } else { 0 };
            let op = *self.random.pick(&[
                0x00,
                0x01,
                0x40,
                0x41,
                0x50,
                0x51,
                0xa0,
                0xa1,
                BPF_XCHG,
                BPF_CMPXCHG,
            ]);
            self.asm.put(BPF_STX | BPF_ATOMIC | size, base, 2, off, op);
            self.asm.alu(BPF_ADD, 0, 2);
        }
        self.asm.load(BPF_DW, 3, base, off);
        self.asm.alu(BPF_XOR, 0, 3);
        self.leaves_number();
    }

    /// `while (i < n && p + size <= end) { sum += *p++; i++; }`, which ends early now and then.
    fn summing_loop(&mut self) {
        let Some(ctx) = self.kept_context() else { return self.arithmetic() };
        let (size, bytes) = self.any_width();
        let off = self.random.below(20) as i16;
        let class = *self.random.pick(&[BPF_ALU, BPF_ALU64]);
        let rounds = *self.random.pick(&[1, 7, 9, 20, 33, 100]);
        self.asm.load(BPF_W, 2, ctx, 4);
        self.asm.load(BPF_W, 3, ctx, 0);
        let start = self.immediate();
        self.asm.mov_imm(0, start);
        self.asm.mov_imm(1, 0);
        let top = self.asm.here();
        self.asm.mov(4, 3);
        self.asm.alu_imm(BPF_ADD, 4, i32::from(off) + bytes as i32);
        let short = self.asm.jump(BPF_JMP | BPF_JGT | BPF_X, 4, 2, 0);
        self.asm.load(size, 5, 3, off);
        let left = self.random.one_in(4).then(|| {
            let value = self.immediate();
            self.asm.jump(BPF_JMP | BPF_JEQ, 5, 0, value)
        });
        self.asm.put(class | BPF_ADD | BPF_X, 0, 5, 0, 0);
        self.asm.alu_imm(BPF_ADD, 3, bytes as i32);
        self.asm.alu_imm(BPF_ADD, 1, 1);
        let code = *self.random.pick(&[BPF_JLT, BPF_JNE, BPF_JSLT, BPF_JLE]);
        let class = *self.random.pick(&[BPF_JMP, BPF_JMP32]);
        self.asm.jump_back(class | code, 1, rounds, top);
        self.asm.land(short);
        if let Some(left) = left {
            self.asm.land(left);
        }
        self.leaves_number();
    }

    /// Bytes stored one by one, or by halves, out of one number.
    fn byte_stores(&mut self) {
        let Some(ctx) = self.kept_context() else { return self.arithmetic() };
        let kept = self.state.find(|kind| kind == Kind::Scalar);
        let src = kept.into_iter().find(|reg| *reg >= 6);
        let skip = self.packet(ctx, 32);
        match src {
            Some(src) => self.asm.mov(5, src),
            None => self.asm.load(BPF_DW, 5, 2, 24),
        }
        let start = self.random.below(16) as i16;
        let count = *self.random.pick(&[2, 3, 4, 8]);
        let (size, bytes) = *self.random.pick(&[(BPF_B, 1), (BPF_B, 1), (BPF_H, 2)]);
        let swapped = self.random.one_in(2);
        for index in 0..count {
            let place = if swapped { count - 1 - index } else { index };
            self.asm.store(size, 2, 5, start + place * bytes);
            let class = *self.random.pick(&[BPF_ALU64, BPF_ALU64, BPF_ALU64, BPF_ALU]);
            self.asm.put(class | BPF_RSH, 5, 0, 0, i32::from(bytes) * 8);
        }
        self.asm.load(BPF_DW, 0, 2, start);
        self.asm.land(skip);
        self.leaves_number();
    }

    /// Copies of neighbouring fields between packet, map value and stack, exchanges among them.
    fn copy(&mut self) {
        let Some(ctx) = self.kept_context() else { return self.arithmetic() };
        let skip = self.packet(ctx, 40);
        self.single_value(1);
        let slot = 2 + self.random.below(SLOTS - 2);
        let stack = slot_offset(slot);
        for part in 0..3 {
            self.asm.store_imm(BPF_DW, REG_FP, stack + 8 * part, i32::from(part) * 0x0101_0101);
        }
        let (size, bytes) = self.any_width();
        let bases = [(2u8, 0i16), (1, 0), (REG_FP, stack)];
        let (to, from) = (*self.random.pick(&bases), *self.random.pick(&bases));
        let [to_start, from_start] = [(); 2].map(|()| self.random.below(3) as i16 * 8);
        for index in 0..(16 / bytes).min(6) as i16 {
            let at = index * bytes as i16;
            let (to_off, from_off) = ((to_start + at) % 24, (from_start + at) % 24);
            self.asm.load(size, 5, from.0, from.1 + from_off);
            if self.random.one_in(3) {
                self.asm.load(size, 4, to.0, to.1 + to_off);
                self.asm.store(size, from.0, 4, from.1 + from_off);
            }
            self.asm.store(size, to.0, 5, to.1 + to_off);
        }
        self.asm.load(BPF_DW, 0, to.0, to.1 + to_start);
        self.asm.land(skip);
        for slot in slot - 2..=slot {
            self.state.stack[slot] = false;
        }
        self.leaves_number();
    }

    /// The same packet word before and after a store that may change it.
    fn same_register_twice(&mut self) {
        let Some(ctx) = self.kept_context() else { return self.arithmetic() };
        let skip = self.packet(ctx, 32);
        let (size, _) = self.any_width();
        let (other, _) = self.any_width();
        let off = self.random.below(16) as i16;
        self.asm.load(size, 5, 2, off);
        let near = self.random.between(-4, 4) as i16;
        let value = self.immediate();
        self.asm.store_imm(other, 2, (off + near).clamp(0, 24), value);
        self.asm.load(size, 0, 2, off);
        self.asm.alu_imm(BPF_MUL, 5, 3);
        self.asm.alu(BPF_ADD, 0, 5);
        self.asm.land(skip);
        self.leaves_number();
    }
}
