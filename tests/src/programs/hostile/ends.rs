//! Things that are used after their end: an iterator's element, a record, what is part of a dynptr,
//! the packet. No path may be accepted that reaches such a use.

use towpath_bpf::insn::*;
use towpath_bpf::proto::id;

use super::writer::Writer;
use super::{kfunc, maps};

impl Writer<'_> {
    /// Gets a thing, ends it, and uses it.
    pub(super) fn outlive(&mut self) {
        let reg = self.free();
        self.contained(|writer| match writer.random.below(6) {
            0..=1 => writer.element_outlives(reg),
            2 => writer.record_outlives(reg),
            3 => writer.part_of_record_outlives(reg),
            4 => writer.part_of_value_outlives(reg),
            _ if writer.has_context => writer.packet_outlives(reg),
            _ => writer.element_outlives(reg),
        });
        let imm = self.immediate();
        self.asm.mov_imm(reg, imm);
    }

    /// The pointer in `reg`, whose object is gone, is read: as it is, or from the stack.
    fn used_after_end(&mut self, reg: u8) {
        self.asm.load(BPF_W, 1, reg, 0);
        self.mark_end();
    }

    /// The pointer goes where it is used from, and back if that is the stack.
    fn set_aside(&mut self, reg: u8) -> Option<i16> {
        self.asm.mov(reg, 0);
        if self.random.one_in(2) {
            return None;
        }
        let slot = self.room(8);
        self.asm.store(BPF_DW, REG_FP, reg, slot);
        Some(slot)
    }

    fn fetch(&mut self, reg: u8, slot: Option<i16>) {
        if let Some(slot) = slot {
            self.asm.load(BPF_DW, reg, REG_FP, slot);
        }
    }

    fn element_outlives(&mut self, reg: u8) {
        let iterator = self.room(8);
        self.address(1, iterator);
        self.asm.mov_imm(2, 0);
        self.asm.mov_imm(3, 5);
        self.asm.call_kfunc(kfunc("bpf_iter_num_new"));
        self.address(1, iterator);
        self.asm.call_kfunc(kfunc("bpf_iter_num_next"));
        let checked_before = self.random.one_in(2);
        let none = checked_before.then(|| self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0));
        let slot = self.set_aside(reg);
        self.address(1, iterator);
        self.asm.call_kfunc(kfunc("bpf_iter_num_destroy"));
        self.fetch(reg, slot);
        match none {
            None => {
                let null = self.asm.jump(BPF_JMP | BPF_JEQ, reg, 0, 0);
                self.used_after_end(reg);
                self.asm.land(null);
            }
            Some(none) => {
                self.used_after_end(reg);
                let done = self.asm.jump(BPF_JMP | BPF_JA, 0, 0, 0);
                self.asm.land(none);
                self.address(1, iterator);
                self.asm.call_kfunc(kfunc("bpf_iter_num_destroy"));
                self.asm.land(done);
            }
        }
    }

    fn record_outlives(&mut self, reg: u8) {
        self.asm.load_map(1, maps::RING);
        self.asm.mov_imm(2, 16);
        self.asm.mov_imm(3, 0);
        self.asm.call(id::RINGBUF_RESERVE as i32);
        self.not_null(0, false);
        let slot = self.set_aside(reg);
        self.asm.mov(1, reg);
        self.asm.mov_imm(2, 0);
        let done = *self.random.pick(&[id::RINGBUF_SUBMIT, id::RINGBUF_DISCARD]);
        self.asm.call(done as i32);
        self.fetch(reg, slot);
        self.used_after_end(reg);
    }

    fn part_of_record_outlives(&mut self, reg: u8) {
        let dynptr = self.room(16);
        self.asm.load_map(1, maps::RING);
        self.asm.mov_imm(2, 16);
        self.asm.mov_imm(3, 0);
        self.address(4, dynptr);
        self.asm.call(id::RINGBUF_RESERVE_DYNPTR as i32);
        self.first_bytes(dynptr);
        let slot = self.set_aside(reg);
        self.address(1, dynptr);
        self.asm.mov_imm(2, 0);
        let done = *self.random.pick(&[id::RINGBUF_SUBMIT_DYNPTR, id::RINGBUF_DISCARD_DYNPTR]);
        self.asm.call(done as i32);
        self.fetch(reg, slot);
        let null = self.asm.jump(BPF_JMP | BPF_JEQ, reg, 0, 0);
        self.used_after_end(reg);
        self.asm.land(null);
    }

    fn part_of_value_outlives(&mut self, reg: u8) {
        let dynptr = self.room(16);
        self.single(1);
        self.asm.mov_imm(2, 16);
        self.asm.mov_imm(3, 0);
        self.address(4, dynptr);
        self.asm.call(id::DYNPTR_FROM_MEM as i32);
        self.first_bytes(dynptr);
        let slot = self.set_aside(reg);
        // It is overwritten.
        let off = 8 * self.random.below(2) as i16;
        self.asm.store_imm(BPF_DW, REG_FP, dynptr + off, 0);
        self.fetch(reg, slot);
        let null = self.asm.jump(BPF_JMP | BPF_JEQ, reg, 0, 0);
        self.used_after_end(reg);
        self.asm.land(null);
    }

    /// r0 = the first bytes of a dynptr, or null.
    fn first_bytes(&mut self, dynptr: i16) {
        self.address(1, dynptr);
        self.asm.mov_imm(2, 0);
        if self.random.one_in(2) {
            self.asm.mov_imm(3, 8);
            self.asm.call(id::DYNPTR_DATA as i32);
        } else {
            self.asm.mov_imm(3, 0);
            self.asm.mov_imm(4, 8);
            self.asm.call_kfunc(kfunc("bpf_dynptr_slice"));
        }
    }

    fn packet_outlives(&mut self, reg: u8) {
        self.asm.load(BPF_W, 0, 6, 0);
        self.asm.load(BPF_W, 3, 6, 4);
        self.asm.mov(4, 0);
        self.asm.alu_imm(BPF_ADD, 4, 8);
        let short = self.asm.jump(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 0);
        self.fail(short);
        let slot = self.set_aside(reg);
        self.asm.mov(1, 6);
        self.asm.mov_imm(2, 0);
        let moves =
            [id::XDP_ADJUST_HEAD, id::XDP_ADJUST_TAIL, id::XDP_ADJUST_META].map(|id| id as i32);
        let moves = *self.random.pick(&moves);
        self.asm.call(moves);
        self.fetch(reg, slot);
        self.used_after_end(reg);
    }
}
