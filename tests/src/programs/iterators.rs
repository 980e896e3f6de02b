//! Loops that the verifier lets run without following each round: over `bpf_iter_num`, as `bpf_for`
//! and compilers write them, and with `may_goto` (`can_loop`).

use towpath_bpf::insn::*;

use super::calls::PRIVATE;
use super::generate::Generator;

impl Generator<'_> {
    /// `for (i = start; i < end; i++) sum += f(i);` over an iterator on the stack.
    ///
    /// The test for the next number stands at the top, as it is written, or at the bottom too, as
    /// compilers turn loops: the call of `bpf_iter_num_next` is then there twice.
    pub(super) fn numbers(&mut self) {
        if !self.may_call() {
            return self.arithmetic();
        }
        let (iterator, sum) = (PRIVATE, PRIVATE + 8);
        self.asm.store_imm(BPF_DW, REG_FP, sum, 0);
        let near = self.random.below(20) as i32 - 4;
        let start = *self.random.pick(&[near, near, near, i32::MIN, i32::MAX - 40]);
        let count = *self.random.pick(&[0, 1, 2, 7, 8, 9, 40]);
        self.address(1, iterator);
        self.asm.mov_imm(2, start);
        self.asm.mov_imm(3, start + count);
        self.asm.call_kfunc(NEW);
        let (is_turned, leaves_early) = (self.random.one_in(2), self.random.one_in(3));
        let top = self.asm.here();
        let mut outs = Vec::new();
        self.next_number(iterator);
        outs.push(self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0));
        let body = self.asm.here();
        self.add_number(sum);
        if leaves_early {
            let limit = self.random.below(30) as i32;
            outs.push(self.asm.jump(BPF_JMP | BPF_JSGT, 1, 0, limit));
        }
        if is_turned {
            self.next_number(iterator);
            self.asm.jump_back(BPF_JMP | BPF_JNE, 0, 0, body);
        } else {
            self.asm.jump_back(BPF_JMP | BPF_JA, 0, 0, top);
        }
        outs.into_iter().for_each(|out| self.asm.land(out));
        self.address(1, iterator);
        self.asm.call_kfunc(DESTROY);
        self.asm.load(BPF_DW, 0, REG_FP, sum);
        self.leaves_number();
    }

    /// `for (i = 0; i < n && can_loop; i++) sum = f(sum, i);` for an unknown number.
    ///
    /// `may_goto` stands at the top, at the bottom, or at both, as compilers turn loops, and leaves
    /// for behind the loop or for code of its own.
    pub(super) fn may_goto(&mut self) {
        let limit = self.scalar();
        self.asm.mov(2, limit);
        self.asm.alu_imm(BPF_AND, 2, *self.random.pick(&[0, 1, 7, 63]));
        let (start, first) = (self.immediate(), self.random.below(3) as i32);
        self.asm.mov_imm(0, start);
        self.asm.mov_imm(1, first);
        let is_turned = self.random.one_in(2);
        let mut outs = vec![self.asm.jump(BPF_JMP | BPF_JCOND, 0, 0, 0)];
        let top = self.asm.here();
        let mut outs_between = Vec::new();
        if !is_turned || self.random.one_in(3) {
            outs_between.push(self.asm.jump(BPF_JMP | BPF_JGE | BPF_X, 1, 2, 0));
        }
        match self.random.below(3) {
            0 => self.asm.alu(BPF_ADD, 0, 1),
            1 => {
                self.asm.alu_imm(BPF_MUL, 0, 31);
                self.asm.alu(BPF_XOR, 0, 1);
            }
            _ => self.asm.put(BPF_ALU | BPF_ADD | BPF_X, 0, 1, 0, 0),
        }
        self.asm.alu_imm(BPF_ADD, 1, 1);
        if is_turned {
            outs_between.push(self.asm.jump(BPF_JMP | BPF_JGE | BPF_X, 1, 2, 0));
        }
        outs.push(self.asm.jump(BPF_JMP | BPF_JCOND, 0, 0, 0));
        self.asm.jump_back(BPF_JMP | BPF_JA, 0, 0, top);
        if self.random.one_in(2) {
            outs.drain(..).for_each(|out| self.asm.land(out));
            self.asm.alu_imm(BPF_XOR, 0, 0x55);
        }
        outs.into_iter().chain(outs_between).for_each(|out| self.asm.land(out));
        self.leaves_number();
    }

    /// r0 = where the next number is, or null.
    fn next_number(&mut self, iterator: i16) {
        self.address(1, iterator);
        self.asm.call_kfunc(NEXT);
    }

    /// Adds something of the number at r0, which goes to r1, to the sum on the stack.
    fn add_number(&mut self, sum: i16) {
        self.asm.load(BPF_W, 1, 0, 0);
        if self.random.one_in(2) {
            self.asm.alu_imm(BPF_LSH, 1, 32);
            self.asm.alu_imm(BPF_ARSH, 1, 32);
        }
        self.asm.load(BPF_DW, 2, REG_FP, sum);
        match self.random.below(3) {
            0 => self.asm.alu(BPF_ADD, 2, 1),
            1 => {
                self.asm.alu_imm(BPF_MUL, 2, 31);
                self.asm.alu(BPF_XOR, 2, 1);
            }
            _ => self.asm.alu_imm(BPF_ADD, 2, 1),
        }
        self.asm.store(BPF_DW, REG_FP, 2, sum);
    }
}

/// Where the kfuncs are in the list.
const NEW: i32 = 0;
const NEXT: i32 = 1;
const DESTROY: i32 = 2;
