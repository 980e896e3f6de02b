//! Steps on memory: packet, map values, stack.

use towpath_bpf::insn::*;

use super::generate::Generator;
use super::state::{Kind, SLOTS, slot_offset};
use super::{ARRAY_ENTRIES, ARRAY_MAP, ARRAY_VALUE, HASH_MAP, HASH_VALUE, SINGLE_MAP};

impl Generator<'_> {
    /// Loads the packet's bounds and proves some bytes of it, leaving the function without them.
    pub(super) fn packet_bounds(&mut self) {
        let Some(&ctx) = self.state.find(|kind| kind == Kind::Ctx).last() else {
            return self.arithmetic();
        };
        let room = *self.random.pick(&[1, 14, 20, 34, 54, 64, 100]);
        let data = self.target(Kind::Unset);
        let (end, sum) = (self.other(&[data, ctx]), self.other(&[data, ctx]));
        let meta = self.random.one_in(10);
        let (first, last) = if meta { (8, 0) } else { (0, 4) };
        self.asm.load(BPF_W, data, ctx, first);
        self.asm.load(BPF_W, end, ctx, last);
        if end == sum || !self.random.one_in(2) {
            // data + room > end, on the pointer itself when there is no third register.
            let sum = if end == sum { data } else { sum };
            if sum != data {
                self.asm.mov(sum, data);
            }
            self.asm.alu_imm(BPF_ADD, sum, i32::from(room));
            self.check_end(sum, end);
            if sum == data {
                self.asm.alu_imm(BPF_ADD, sum, -i32::from(room));
            }
            self.spoil(&[sum, end], data);
        } else {
            // end - data < room
            self.asm.mov(sum, end);
            self.asm.alu(BPF_SUB, sum, data);
            let jump = self.asm.jump(BPF_JMP | BPF_JLT, sum, 0, i32::from(room));
            self.leave(jump);
            self.spoil(&[end], data);
            self.state.set(sum, Kind::Scalar);
            // The verifier learns nothing of the packet from a length.
            self.state.set(data, Kind::Packet(0));
            return;
        }
        self.state.set(data, Kind::Packet(room));
    }

    /// Leaves the function when `sum` is beyond `end`, in one of the forms compilers write.
    fn check_end(&mut self, sum: u8, end: u8) {
        let (code, dst, src) = *self.random.pick(&[
            (BPF_JGT, sum, end),
            (BPF_JLT, end, sum),
            (BPF_JGT, sum, end),
            (BPF_JGE, sum, end),
        ]);
        let jump = self.asm.jump(BPF_JMP | code | BPF_X, dst, src, 0);
        self.leave(jump);
    }

    fn spoil(&mut self, regs: &[u8], except: u8) {
        for &reg in regs.iter().filter(|reg| **reg != except) {
            self.state.set(reg, Kind::Unset);
        }
    }

    /// A writable register outside of `taken`.
    fn other(&mut self, taken: &[u8]) -> u8 {
        let free: Vec<u8> = self
            .state
            .writable(Kind::Unset)
            .into_iter()
            .filter(|reg| !taken.contains(reg))
            .collect();
        if free.is_empty() { 0 } else { *self.random.pick(&free) }
    }

    /// A pointer into a map's value, leaving the function when there is none.
    pub(super) fn map_value(&mut self) {
        if self.random.one_in(3) {
            let off = self.random.below(ARRAY_VALUE as usize / 8) as i32 * 8;
            let dst = self.target(Kind::Value((ARRAY_VALUE as i32 - off) as i16));
            self.asm.put(BPF_LD | BPF_IMM | BPF_DW, dst, PSEUDO_MAP_VALUE, 0, SINGLE_MAP);
            self.asm.put(0, 0, 0, 0, off);
            return;
        }
        let (map, size) =
            if self.random.one_in(3) { (HASH_MAP, HASH_VALUE) } else { (ARRAY_MAP, ARRAY_VALUE) };
        self.key(map);
        self.asm.load_map(1, map);
        self.asm.call(1);
        self.state.clobber();
        if !self.misstep() {
            let null = self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0);
            self.leave(null);
        }
        self.state.set(0, Kind::Value(size as i16));
        let keep: Vec<u8> =
            self.state.writable(Kind::Value(size as i16)).into_iter().filter(|r| *r > 6).collect();
        if !keep.is_empty() && self.random.one_in(2) {
            let dst = *self.random.pick(&keep);
            self.asm.mov(dst, 0);
            self.state.set(dst, Kind::Value(size as i16));
        }
    }

    /// Puts a key on the stack and its address into r2.
    pub(super) fn key(&mut self, map: i32) {
        let slot = self.random.below(SLOTS);
        let off = slot_offset(slot);
        let entries = ARRAY_ENTRIES as i32;
        if self.random.one_in(2) {
            let key = self.bounded(entries * 2);
            let size = if map == HASH_MAP { BPF_DW } else { BPF_W };
            self.asm.store(size, REG_FP, key, off);
        } else {
            let key = self.random.below(entries as usize + 1) as i32;
            let size = if map == HASH_MAP { BPF_DW } else { BPF_W };
            self.asm.store_imm(size, REG_FP, off, key);
        }
        if map == HASH_MAP {
            self.state.stack[slot] = true;
        }
        self.asm.mov(2, REG_FP);
        self.asm.alu_imm(BPF_ADD, 2, i32::from(off));
        self.state.set(2, Kind::Unset);
    }

    /// One access to something that may be accessed.
    pub(super) fn memory_step(&mut self) {
        let pointers = self.state.find(|kind| matches!(kind, Kind::Packet(1..) | Kind::Value(1..)));
        if pointers.is_empty() || self.random.one_in(3) {
            return self.stack_step();
        }
        let pointer = *self.random.pick(&pointers);
        let (room, is_value) = match self.state.regs[usize::from(pointer)] {
            Kind::Packet(room) => (room, false),
            Kind::Value(room) => (room, true),
            _ => (0, false),
        };
        if self.random.one_in(4) {
            return self.variable_access(pointer, room);
        }
        let size = *self.random.pick(&[BPF_B, BPF_H, BPF_W, BPF_DW]);
        let bytes = i16::from([4u8, 2, 1, 8][usize::from(size >> 3)]);
        if room < bytes {
            return self.stack_step();
        }
        let mut off = self.random.below((room - bytes) as usize + 1) as i16;
        if self.misstep() {
            off = room - bytes + 1;
        }
        match self.random.below(8) {
            0..=3 => {
                let dst = self.target(Kind::Scalar);
                let signed = size != BPF_DW && self.random.one_in(6);
                let mode = if signed { BPF_MEMSX } else { BPF_MEM };
                self.asm.put(BPF_LDX | mode | size, dst, pointer, off, 0);
            }
            4 if is_value => self.atomic(pointer, room),
            5 => {
                let imm = self.immediate();
                self.asm.store_imm(size, pointer, off, imm);
            }
            _ => {
                let src = self.scalar();
                if src != pointer {
                    self.asm.store(size, pointer, src, off);
                }
            }
        }
    }

    /// An access at a masked offset.
    fn variable_access(&mut self, pointer: u8, room: i16) {
        let span = *self.random.pick(&[2i16, 4, 8, 16, 32]);
        if room < span + 8 {
            return self.stack_step();
        }
        let index = self.bounded(i32::from(span));
        let dst = self.other(&[pointer, index]);
        if [pointer, index].contains(&dst) {
            return;
        }
        // A register for the index may have been taken from the pointer.
        let (Kind::Packet(_) | Kind::Value(_)) = self.state.regs[usize::from(pointer)] else {
            return;
        };
        self.asm.mov(dst, pointer);
        self.asm.alu(BPF_ADD, dst, index);
        self.state.set(dst, Kind::Unset);
        if matches!(self.state.regs[usize::from(pointer)], Kind::Packet(_)) {
            return;
        }
        let size = *self.random.pick(&[BPF_B, BPF_H, BPF_W, BPF_DW]);
        if self.random.one_in(2) {
            let src = self.scalar();
            if src != dst {
                self.asm.store(size, dst, src, 0);
            }
        } else {
            self.asm.load(size, dst, dst, 0);
            self.state.set(dst, Kind::Scalar);
        }
    }

    fn atomic(&mut self, pointer: u8, room: i16) {
        let size = *self.random.pick(&[BPF_W, BPF_DW]);
        let bytes = if size == BPF_W { 4 } else { 8 };
        if room < bytes {
            return;
        }
        let off = self.random.below((room / bytes) as usize) as i16 * bytes;
        let ops = [0x00, 0x40, 0x50, 0xa0];
        let op = *self.random.pick(&ops) | i32::from(self.random.one_in(2));
        let op = *self.random.pick(&[op, op, BPF_XCHG, BPF_CMPXCHG]);
        if op == BPF_CMPXCHG {
            if self.state.writable(Kind::Scalar).contains(&0) && pointer != 0 {
                let imm = self.immediate();
                self.asm.mov_imm(0, imm);
                self.state.set(0, Kind::Scalar);
            } else {
                return;
            }
        }
        let src = if op & BPF_FETCH != 0 { self.own_scalar() } else { self.scalar() };
        if src == pointer {
            return;
        }
        if !matches!(self.state.regs[usize::from(pointer)], Kind::Value(_)) {
            return;
        }
        self.asm.put(BPF_STX | BPF_ATOMIC | size, pointer, src, off, op);
    }

    /// Spills a number, fills one, or parts of them; or carries a pointer over the stack.
    fn stack_step(&mut self) {
        let slot = self.random.below(SLOTS);
        let off = slot_offset(slot);
        if self.random.one_in(5) {
            return self.carry(slot);
        }
        if !self.state.stack[slot] || self.random.one_in(2) {
            let src = self.scalar();
            self.asm.store(BPF_DW, REG_FP, src, off);
            self.state.stack[slot] = true;
            if self.random.one_in(4) {
                let imm = self.immediate();
                let size = *self.random.pick(&[BPF_B, BPF_H, BPF_W]);
                self.asm.store_imm(size, REG_FP, off + 4 * self.random.below(2) as i16, imm);
            }
            return;
        }
        let size = *self.random.pick(&[BPF_B, BPF_H, BPF_W, BPF_DW, BPF_DW]);
        let part = if size == BPF_DW { 0 } else { 4 * self.random.below(2) as i16 };
        let dst = self.target(Kind::Scalar);
        self.asm.load(size, dst, REG_FP, off + part);
    }

    /// A pointer (or number) to the stack and back.
    fn carry(&mut self, slot: usize) {
        let src = self.readable();
        let kind = self.state.regs[usize::from(src)];
        self.asm.store(BPF_DW, REG_FP, src, slot_offset(slot));
        let dst = self.target(kind);
        self.asm.load(BPF_DW, dst, REG_FP, slot_offset(slot));
        self.state.stack[slot] = kind == Kind::Scalar;
    }
}
