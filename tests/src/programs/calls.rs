//! Idioms around calls: keys assembled on the stack, maps of all kinds, functions that get stack.

use towpath_bpf::insn::*;
use towpath_bpf::interp::MAX_LOOPS;

use super::asm::Asm;
use super::generate::{Function, Generator};
use super::state::{Kind, SLOTS, slot_offset};
use super::{HASH_MAP, INNER_VALUE, LRU_MAP, OUTER_MAP, PERCPU_HASH_MAP, PERCPU_MAP};

impl Generator<'_> {
    /// A lookup with a key assembled in pieces; counts in the value, or puts an element there.
    pub(super) fn map_idiom(&mut self) {
        match self.random.below(5) {
            0 => self.element(HASH_MAP, 8, 24),
            1 => self.element(LRU_MAP, 12, 16),
            2 => self.element(PERCPU_HASH_MAP, 4, 8),
            3 => self.element(PERCPU_MAP, 4, 16),
            _ => self.inner_element(),
        }
    }

    /// `key` bytes on the stack from several stores; returns their offset.
    fn pieces(&mut self, bytes: usize) -> i16 {
        let slots = bytes.div_ceil(8);
        let lowest = slots - 1 + self.random.below(SLOTS - slots + 1);
        let base = slot_offset(lowest);
        let small = self.random.one_in(2);
        let mut at = 0;
        while at < bytes {
            let (size, width) = self.any_width();
            if at % width != 0 || at + width > bytes {
                continue;
            }
            // Keys that come again are what makes a lookup find something.
            if small || self.random.one_in(2) {
                let imm = if at == 0 { self.random.below(4) as i32 } else { 0 };
                self.asm.store_imm(size, REG_FP, base + at as i16, imm);
            } else {
                let src = self.bounded(4);
                self.asm.store(size, REG_FP, src, base + at as i16);
            }
            at += width;
        }
        for slot in 0..bytes / 8 {
            self.state.stack[lowest - slot] = true;
        }
        if !bytes.is_multiple_of(8) {
            self.state.stack[lowest + 1 - slots] = false;
        }
        base
    }

    pub(super) fn address(&mut self, reg: u8, offset: i16) {
        self.asm.mov(reg, REG_FP);
        self.asm.alu_imm(BPF_ADD, reg, i32::from(offset));
    }

    /// `if ((v = lookup(&map, &key))) v->count++; else update(&map, &key, &one, 0)`
    fn element(&mut self, map: i32, key_bytes: usize, value_bytes: usize) {
        let key = self.pieces(key_bytes);
        self.address(2, key);
        self.asm.load_map(1, map);
        self.asm.call(1);
        let null = self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0);
        let off = self.random.below(value_bytes / 8) as i16 * 8;
        self.asm.load(BPF_DW, 1, 0, off);
        self.asm.alu_imm(BPF_ADD, 1, 1);
        self.asm.store(BPF_DW, 0, 1, off);
        self.asm.mov(0, 1);
        let over = self.asm.jump(BPF_JMP | BPF_JA, 0, 0, 0);
        self.asm.land(null);
        if self.random.one_in(4) {
            self.asm.mov_imm(0, -1);
        } else {
            let value = PRIVATE;
            for part in 0..value_bytes as i16 / 8 {
                self.asm.store_imm(BPF_DW, REG_FP, value + 8 * part, i32::from(part) + 1);
            }
            self.address(2, key);
            self.address(3, value);
            let flags = *self.random.pick(&[0, 0, 1, 2]);
            self.asm.mov_imm(4, flags);
            self.asm.load_map(1, map);
            self.asm.call(2);
        }
        self.asm.land(over);
        self.leaves_number();
    }

    /// An element of a map in a map.
    fn inner_element(&mut self) {
        let outer = self.pieces(4);
        self.address(2, outer);
        self.asm.load_map(1, OUTER_MAP);
        self.asm.call(1);
        let no_map = self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0);
        let index = self.random.below(5) as i32;
        self.asm.store_imm(BPF_W, REG_FP, PRIVATE, index);
        self.asm.mov(1, 0);
        self.address(2, PRIVATE);
        self.asm.call(1);
        let no_value = self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0);
        let off = self.random.below(INNER_VALUE as usize / 8) as i16 * 8;
        self.asm.mov_imm(1, index + 1);
        let op = *self.random.pick(&[0x00, 0x01, 0x40, 0xa1]);
        self.asm.put(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, off, op);
        self.asm.load(BPF_DW, 0, 0, off);
        self.asm.land(no_map);
        self.asm.land(no_value);
        self.leaves_number();
    }

    /// A function that reads and writes its caller's stack.
    pub(super) fn pointer_to_callee(&mut self) {
        if !self.may_call() {
            return self.arithmetic();
        }
        let slot = 1 + self.random.below(SLOTS - 1);
        for at in [slot, slot - 1] {
            let src = self.scalar();
            self.asm.store(BPF_DW, REG_FP, src, slot_offset(at));
            self.state.stack[at] = true;
        }
        self.address(1, slot_offset(slot));
        let imm = self.immediate();
        self.asm.mov_imm(2, imm);
        let callee = self.small_function();
        self.call(callee);
        if self.random.one_in(2) {
            self.asm.load(BPF_DW, 1, REG_FP, slot_offset(slot));
            self.asm.alu(BPF_ADD, 0, 1);
        }
        self.leaves_number();
    }

    /// `bpf_loop` with a function that reads and writes its caller's stack, and may end the loop.
    pub(super) fn called_in_a_loop(&mut self) {
        if !self.callbacks || !self.may_call() {
            return self.arithmetic();
        }
        let slot = 1 + self.random.below(SLOTS - 1);
        for at in [slot, slot - 1] {
            let src = self.scalar();
            self.asm.store(BPF_DW, REG_FP, src, slot_offset(at));
            self.state.stack[at] = true;
        }
        let src = self.scalar();
        match self.random.below(4) {
            0 => {
                // Refused at run time: it would take minutes otherwise.
                self.asm.mov(1, src);
                self.asm.alu_imm(BPF_OR, 1, 2 * MAX_LOOPS as i32);
            }
            1 => {
                self.asm.mov(1, src);
                self.asm.alu_imm(BPF_AND, 1, *self.random.pick(&[15, 15, 511]));
            }
            _ => {
                let rounds = self.random.below(12) as i32;
                self.asm.mov_imm(1, rounds);
            }
        }
        self.address(3, slot_offset(slot));
        let flags = if self.random.one_in(10) { self.immediate() } else { 0 };
        self.asm.mov_imm(4, flags);
        let callback = self.callback();
        self.reference(2, callback);
        self.asm.call(HELPER_LOOP);
        if self.random.one_in(2) {
            self.asm.load(BPF_DW, 1, REG_FP, slot_offset(slot));
            self.asm.alu(BPF_ADD, 0, 1);
        }
        self.leaves_number();
    }

    /// `f(u32 index, long *at)`: over 16 bytes at `at`; not 0 ends the loop.
    fn callback(&mut self) -> Function {
        let mut asm = Asm::default();
        let (size, bytes) = self.any_width();
        let off = self.random.below(16 / bytes) as i16 * bytes as i16;
        match self.random.below(3) {
            0 => asm.store(size, 2, 1, off),
            1 => {
                asm.store(BPF_DW, REG_FP, 1, -8);
                asm.load(size, 3, 2, off);
                asm.alu(BPF_ADD, 3, 1);
                asm.store(BPF_DW, 2, 3, 0);
                asm.load(BPF_DW, 1, REG_FP, -8);
            }
            _ => {
                asm.load(BPF_DW, 3, 2, 8);
                asm.alu_imm(BPF_MUL, 3, 31);
                asm.alu(BPF_XOR, 3, 1);
                asm.store(BPF_DW, 2, 3, 8);
            }
        }
        asm.load(size, 3, 2, off);
        asm.mov_imm(0, 0);
        // Few loops go on for ever: a random count may be large.
        let on = asm.jump(BPF_JMP | BPF_JSGT, 3, 0, 9);
        let few = asm.jump(BPF_JMP | BPF_JLT, 1, 0, 20);
        asm.land(on);
        asm.mov_imm(0, 1);
        asm.land(few);
        asm.exit();
        Function { insns: asm.insns, calls: Vec::new() }
    }

    /// `f(long *at, long n)`: over 16 bytes at `at`.
    fn small_function(&mut self) -> Function {
        let mut asm = Asm::default();
        let (size, bytes) = self.any_width();
        let off = self.random.below(16 / bytes) as i16 * bytes as i16;
        asm.load(BPF_DW, 0, 1, 0);
        match self.random.below(4) {
            0 => asm.store(size, 1, 2, off),
            1 => asm.put(BPF_STX | BPF_ATOMIC | BPF_DW, 1, 2, 8, BPF_FETCH),
            2 => {
                asm.store(BPF_DW, REG_FP, 2, -8);
                asm.load(BPF_DW, 3, 1, 8);
                asm.store(BPF_DW, REG_FP, 3, -16);
                asm.load(size, 4, REG_FP, -16 + off);
                asm.store(BPF_DW, 1, 4, 0);
            }
            _ => {
                let skip = asm.jump(BPF_JMP | BPF_JSGT, 2, 0, 0);
                asm.store(size, 1, 0, off);
                asm.land(skip);
                asm.load(size, 3, 1, off);
                asm.alu(BPF_XOR, 0, 3);
            }
        }
        asm.alu(BPF_ADD, 0, 2);
        asm.exit();
        Function { insns: asm.insns, calls: Vec::new() }
    }

    /// `bpf_csum_diff` over words of the stack or the packet, folded.
    pub(super) fn checksum_difference(&mut self) {
        let slot = 1 + self.random.below(SLOTS - 1);
        let base = slot_offset(slot);
        let src = self.scalar();
        self.asm.store(BPF_DW, REG_FP, src, base);
        let src = self.scalar();
        self.asm.store(BPF_DW, REG_FP, src, base + 8);
        (self.state.stack[slot], self.state.stack[slot - 1]) = (true, true);
        if self.random.one_in(3) {
            let imm = self.immediate();
            self.asm.store_imm(BPF_H, REG_FP, base + 2, imm);
        }
        let sizes = [0, 4, 8, 4];
        let (from, to) = (*self.random.pick(&sizes), *self.random.pick(&[4, 8, 16, 4]));
        self.address(1, base);
        self.asm.mov_imm(2, from);
        self.address(3, if to == 16 || from == 0 { base } else { base + 8 });
        self.asm.mov_imm(4, if from == 0 { to } else { to.min(8) });
        if from == 0 && self.random.one_in(2) {
            self.asm.mov_imm(1, 0);
        }
        let seed = *self.random.pick(&[0, 0xffff, 0x1234, 1]);
        self.asm.mov_imm(5, seed);
        self.asm.call(28);
        if self.random.one_in(2) {
            self.asm.mov(2, 0);
            self.asm.alu_imm(BPF_RSH, 2, 16);
            self.asm.alu_imm(BPF_AND, 0, 0xffff);
            self.asm.alu(BPF_ADD, 0, 2);
        }
        self.leaves_number();
    }

    /// Moves head, tail or metadata, then reads and writes what is there now.
    pub(super) fn moved_packet(&mut self) {
        let Some(ctx) = self.kept_context() else { return self.arithmetic() };
        let (helper, by) = *self.random.pick(&[
            (44, -14),
            (44, -20),
            (44, 8),
            (65, -4),
            (65, 30),
            (54, -8),
            (54, -4),
        ]);
        self.asm.mov(1, ctx);
        self.asm.mov_imm(2, by);
        self.asm.call(helper);
        self.state.clobber();
        self.state.drop_packet_pointers();
        self.moves_packet = true;
        let failed = self.asm.jump(BPF_JMP | BPF_JNE, 0, 0, 0);
        let meta = helper == 54;
        self.asm.load(BPF_W, 2, ctx, if meta { 8 } else { 0 });
        self.asm.load(BPF_W, 3, ctx, if meta { 0 } else { 4 });
        let room = if meta { 4 } else { 28 };
        self.asm.mov(4, 2);
        self.asm.alu_imm(BPF_ADD, 4, room);
        let short = self.asm.jump(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 0);
        for _ in 0..3 {
            let off = self.random.below(room as usize / 4) as i16 * 4;
            if self.random.one_in(2) {
                let imm = self.immediate();
                self.asm.store_imm(BPF_W, 2, off, imm);
            } else {
                self.asm.load(BPF_W, 5, 2, off);
                self.asm.alu(BPF_ADD, 0, 5);
            }
        }
        self.asm.land(failed);
        self.asm.land(short);
        self.leaves_number();
    }

    /// A helper fills unwritten stack bytes; they are read when it says it did.
    pub(super) fn loaded_bytes(&mut self) {
        let Some(ctx) = self.kept_context() else { return self.arithmetic() };
        let bytes = *self.random.pick(&[1, 2, 4, 6, 8, 12, 16, 20]);
        let offset = *self.random.pick(&[0, 6, 12, 14, 26, 40]);
        self.asm.mov(1, ctx);
        self.asm.mov_imm(2, offset);
        self.address(3, PRIVATE);
        self.asm.mov_imm(4, bytes);
        self.asm.call(189);
        let failed = self.asm.jump(BPF_JMP | BPF_JNE, 0, 0, 0);
        let (size, width) = self.any_width();
        let places = bytes as usize / width;
        if places > 0 {
            let off = PRIVATE + (self.random.below(places) * width) as i16;
            self.asm.load(size, 0, REG_FP, off);
        }
        if places > 0 && self.random.one_in(2) {
            self.asm.store(size, REG_FP, 0, PRIVATE);
            self.asm.mov(1, ctx);
            self.asm.mov_imm(2, offset + 1);
            self.address(3, PRIVATE);
            self.asm.mov_imm(4, bytes);
            self.asm.call(190);
        }
        self.asm.land(failed);
        self.state.set(0, Kind::Scalar);
        self.leaves_number();
    }
}

/// 32 bytes below the slots that numbers are spilled to, for one idiom at a time.
pub(super) const PRIVATE: i16 = slot_offset(SLOTS + 3);

/// `bpf_loop`
const HELPER_LOOP: i32 = 181;
