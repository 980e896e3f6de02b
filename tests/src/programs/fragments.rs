//! Steps on numbers, and choosing registers for them.

use towpath_bpf::insn::*;

use super::generate::Generator;
use super::state::Kind;

impl Generator<'_> {
    /// A register that holds a number, made if there is none.
    pub(super) fn scalar(&mut self) -> u8 {
        let known = self.state.find(|kind| kind == Kind::Scalar);
        if known.is_empty() || self.random.one_in(10) {
            let dst = self.target(Kind::Scalar);
            let imm = self.immediate();
            if self.random.one_in(6) {
                let value = self.random.bits() >> self.random.below(64);
                self.asm.load_imm64(dst, value);
            } else {
                self.asm.mov_imm(dst, imm);
            }
            return dst;
        }
        if self.misstep() && self.random.one_in(8) {
            return self.random.below(10) as u8;
        }
        *self.random.pick(&known)
    }

    /// A register to overwrite; it holds `kind` from now on.
    pub(super) fn target(&mut self, kind: Kind) -> u8 {
        let free = self.state.writable(kind);
        // Numbers may go anywhere in a loop's body; the rest avoids what is pinned. r0 is never
        // pinned, so there is always one.
        let reg = if free.is_empty() { 0 } else { *self.random.pick(&free) };
        self.state.set(reg, kind);
        reg
    }

    /// Any register that may be read.
    pub(super) fn readable(&mut self) -> u8 {
        let known = self.state.find(|kind| kind != Kind::Unset);
        if known.is_empty() { self.scalar() } else { *self.random.pick(&known) }
    }

    /// Constants near the edges of widths and sizes.
    pub(super) fn immediate(&mut self) -> i32 {
        let small = self.random.between(-16, 256) as i32;
        let any = self.random.bits() as i32;
        *self.random.pick(&[
            0,
            1,
            -1,
            2,
            8,
            14,
            64,
            0xff,
            0x7f,
            0x8000,
            0xffff,
            i32::MAX,
            i32::MIN,
            small,
            small,
            small,
            any,
        ])
    }

    /// One operation on numbers.
    pub(super) fn arithmetic(&mut self) {
        const OPS: [u8; 12] = [
            BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_LSH, BPF_RSH, BPF_MOD,
            BPF_XOR, BPF_MOV, BPF_ARSH,
        ];
        let dst = self.own_scalar();
        let class = *self.random.pick(&[BPF_ALU64, BPF_ALU64, BPF_ALU]);
        let bits = if class == BPF_ALU { 32 } else { 64 };
        match self.random.below(12) {
            0 => self.asm.put(class | BPF_NEG, dst, 0, 0, 0),
            1 => self.swap(dst),
            2 => self.sign_extend(class, dst),
            3 => {
                // The signed divisions of version 4.
                let op = *self.random.pick(&[BPF_DIV, BPF_MOD]);
                let src = self.scalar();
                self.asm.put(class | op | BPF_X, dst, src, 1, 0);
            }
            4..=7 => {
                let op = *self.random.pick(&OPS);
                let src = self.scalar();
                self.asm.put(class | op | BPF_X, dst, src, 0, 0);
            }
            _ => {
                let op = *self.random.pick(&OPS);
                let imm = match op {
                    BPF_LSH | BPF_RSH | BPF_ARSH => self.random.below(bits) as i32,
                    BPF_DIV | BPF_MOD => self.immediate() | 1,
                    _ => self.immediate(),
                };
                self.asm.put(class | op, dst, 0, 0, imm);
            }
        }
    }

    fn swap(&mut self, dst: u8) {
        let width = *self.random.pick(&[16, 32, 64]);
        let code =
            *self.random.pick(&[BPF_ALU | BPF_END, BPF_ALU | BPF_END | BPF_X, BPF_ALU64 | BPF_END]);
        self.asm.put(code, dst, 0, 0, width);
    }

    fn sign_extend(&mut self, class: u8, dst: u8) {
        let widths: &[i16] = if class == BPF_ALU { &[8, 16] } else { &[8, 16, 32] };
        let width = *self.random.pick(widths);
        let src = self.scalar();
        self.asm.put(class | BPF_MOV | BPF_X, dst, src, width, 0);
    }

    /// A register that holds a number and may be changed.
    pub(super) fn own_scalar(&mut self) -> u8 {
        let known: Vec<u8> = self
            .state
            .find(|kind| kind == Kind::Scalar)
            .into_iter()
            .filter(|reg| self.state.locked & (1 << reg) == 0)
            .collect();
        if !known.is_empty() && !self.random.one_in(6) {
            return *self.random.pick(&known);
        }
        let dst = self.target(Kind::Scalar);
        let imm = self.immediate();
        self.asm.mov_imm(dst, imm);
        dst
    }

    /// A number below `limit` (a power of two) in a register of its own.
    pub(super) fn bounded(&mut self, limit: i32) -> u8 {
        let dst = self.own_scalar();
        match self.random.below(3) {
            0 => self.asm.put(BPF_ALU | BPF_AND, dst, 0, 0, limit - 1),
            1 => {
                self.asm.alu_imm(BPF_AND, dst, limit - 1);
            }
            _ => {
                let shift = limit.trailing_zeros() as i32;
                self.asm.alu_imm(BPF_RSH, dst, 64 - shift.max(1));
            }
        }
        if self.misstep() {
            self.asm.alu_imm(BPF_ADD, dst, 1);
        }
        dst
    }
}
