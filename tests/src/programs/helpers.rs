//! Calls of helpers whose results don't depend on time, CPU or chance.

use towpath_bpf::insn::*;

use super::generate::Generator;
use super::state::{Kind, SLOTS, slot_offset};
use super::{ARRAY_MAP, DEV_MAP, HASH_MAP, PROGRAM_MAP, QUEUE_MAP};

impl Generator<'_> {
    /// One helper call; its result is a number in r0.
    pub(super) fn helper(&mut self) {
        if self.state.locked & 0x3f != 0 {
            return self.arithmetic();
        }
        match self.random.below(10) {
            0 => self.map_update(),
            1 => self.map_delete(),
            2 => self.adjust(),
            3 => self.checksum(),
            4 => self.redirect_map(),
            5 => self.redirect(),
            6 => self.packet_bytes(),
            7 => self.queue(),
            // Elsewhere it takes a function with types.
            8 if self.is_entry() => self.tail_call(),
            _ => self.buffer_length(),
        }
    }

    fn finish_call(&mut self, helper: i32) {
        self.asm.call(helper);
        self.state.clobber();
    }

    /// The context in r1; false when this function has none.
    fn context(&mut self) -> bool {
        let Some(&ctx) = self.state.find(|kind| kind == Kind::Ctx).last() else {
            self.arithmetic();
            return false;
        };
        if ctx != 1 {
            self.asm.mov(1, ctx);
        }
        true
    }

    /// Sets an argument to a number: a constant, or one at hand.
    fn argument(&mut self, reg: u8, choices: &[i32]) {
        let known = self.state.find(|kind| kind == Kind::Scalar);
        let known: Vec<u8> = known.into_iter().filter(|r| *r >= 6 || *r == 0).collect();
        if !known.is_empty() && self.random.one_in(4) {
            let src = *self.random.pick(&known);
            self.asm.mov(reg, src);
        } else {
            let imm = *self.random.pick(choices);
            self.asm.mov_imm(reg, imm);
        }
    }

    /// Address of `slots` initialised slots from `slot` downwards, in `reg`.
    fn stack_bytes(&mut self, reg: u8, slots: usize) {
        let lowest = slots - 1 + self.random.below(SLOTS - slots + 1);
        for slot in lowest + 1 - slots..=lowest {
            if !self.state.stack[slot] && !self.misstep() {
                let imm = self.immediate();
                self.asm.store_imm(BPF_DW, REG_FP, slot_offset(slot), imm);
                self.state.stack[slot] = true;
            }
        }
        self.asm.mov(reg, REG_FP);
        self.asm.alu_imm(BPF_ADD, reg, i32::from(slot_offset(lowest)));
    }

    fn map_update(&mut self) {
        let (map, slots) = *self.random.pick(&[(ARRAY_MAP, 8), (HASH_MAP, 3)]);
        self.stack_bytes(3, slots);
        self.state.set(3, Kind::Unset);
        self.state.locked |= 1 << 3;
        self.key(map);
        self.state.locked &= !(1 << 3);
        self.asm.load_map(1, map);
        self.argument(4, &[0, 0, 1, 2, 3]);
        self.finish_call(2);
    }

    fn map_delete(&mut self) {
        let map = *self.random.pick(&[ARRAY_MAP, HASH_MAP, HASH_MAP]);
        self.key(map);
        self.asm.load_map(1, map);
        self.finish_call(3);
    }

    /// Moves the packet's head, tail or metadata.
    fn adjust(&mut self) {
        let Some(&ctx) = self.state.find(|kind| kind == Kind::Ctx).last() else {
            return self.arithmetic();
        };
        let (helper, choices): (i32, &[i32]) = match self.random.below(3) {
            0 => (44, &[-20, -14, 14, 4, -300, 0]),
            1 => (65, &[-20, 8, 64, -1, 0, 5000]),
            _ => (54, &[-4, -32, 4, 3, 0]),
        };
        self.argument(2, choices);
        if ctx != 1 {
            self.asm.mov(1, ctx);
        }
        self.finish_call(helper);
        self.state.drop_packet_pointers();
        self.moves_packet = true;
    }

    fn checksum(&mut self) {
        self.stack_bytes(3, 3);
        self.asm.mov_imm(4, 8 * (1 + self.random.below(3) as i32));
        self.argument(5, &[0, -1, 0x1234]);
        self.asm.mov_imm(1, 0);
        self.asm.mov_imm(2, 0);
        self.finish_call(28);
    }

    fn redirect_map(&mut self) {
        self.argument(2, &[0, 1, 7]);
        self.argument(3, &[0, 1, 2, 3, 4, 8]);
        self.asm.load_map(1, DEV_MAP);
        self.finish_call(51);
    }

    fn redirect(&mut self) {
        self.argument(1, &[1, 99]);
        self.argument(2, &[0, 1]);
        self.finish_call(23);
    }

    /// `bpf_xdp_load_bytes` or `bpf_xdp_store_bytes`.
    fn packet_bytes(&mut self) {
        self.stack_bytes(3, 3);
        self.state.set(3, Kind::Unset);
        self.argument(2, &[0, 14, 60, 63, -1]);
        self.asm.mov_imm(4, 1 + self.random.below(24) as i32);
        if self.context() {
            let helper = *self.random.pick(&[189, 190]);
            self.finish_call(helper);
        }
    }

    /// Push, pop or peek.
    fn queue(&mut self) {
        self.stack_bytes(2, 1);
        self.asm.load_map(1, QUEUE_MAP);
        match self.random.below(3) {
            0 => self.finish_call(88),
            1 => self.finish_call(89),
            _ => {
                self.argument(3, &[0, 2, 1]);
                self.finish_call(87);
            }
        }
    }

    /// A tail call: into an empty slot, which falls through, or to the program itself.
    fn tail_call(&mut self) {
        let Some(&ctx) = self.state.find(|kind| kind == Kind::Ctx).last() else {
            return self.arithmetic();
        };
        self.argument(3, &[0, 3, 4, -1, 1, 1]);
        if ctx != 1 {
            self.asm.mov(1, ctx);
        }
        self.asm.load_map(2, PROGRAM_MAP);
        self.finish_call(12);
        // Nothing is returned.
        self.state.set(0, Kind::Unset);
        self.state.drop_packet_pointers();
        self.moves_packet = true;
    }

    fn buffer_length(&mut self) {
        if self.context() {
            self.finish_call(188);
        }
    }
}
