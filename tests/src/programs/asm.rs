//! Emitting instructions, with jumps that are patched when their target is known.

use towpath_bpf::Insn;
use towpath_bpf::insn::*;

/// A jump whose target is not known yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Jump(usize);

/// Instructions being written.
#[derive(Debug, Default)]
pub(super) struct Asm {
    pub(super) insns: Vec<Insn>,
}

impl Asm {
    pub(super) fn put(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) {
        self.insns.push(Insn::new(code, dst, src, off, imm));
    }

    pub(super) fn mov(&mut self, dst: u8, src: u8) {
        self.put(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0);
    }

    pub(super) fn mov_imm(&mut self, dst: u8, imm: i32) {
        self.put(BPF_ALU64 | BPF_MOV, dst, 0, 0, imm);
    }

    pub(super) fn alu_imm(&mut self, op: u8, dst: u8, imm: i32) {
        self.put(BPF_ALU64 | op, dst, 0, 0, imm);
    }

    pub(super) fn alu(&mut self, op: u8, dst: u8, src: u8) {
        self.put(BPF_ALU64 | op | BPF_X, dst, src, 0, 0);
    }

    pub(super) fn load(&mut self, size: u8, dst: u8, src: u8, off: i16) {
        self.put(BPF_LDX | BPF_MEM | size, dst, src, off, 0);
    }

    pub(super) fn store(&mut self, size: u8, dst: u8, src: u8, off: i16) {
        self.put(BPF_STX | BPF_MEM | size, dst, src, off, 0);
    }

    pub(super) fn store_imm(&mut self, size: u8, dst: u8, off: i16, imm: i32) {
        self.put(BPF_ST | BPF_MEM | size, dst, 0, off, imm);
    }

    pub(super) fn load_map(&mut self, dst: u8, map: i32) {
        self.put(BPF_LD | BPF_IMM | BPF_DW, dst, PSEUDO_MAP_FD, 0, map);
        self.put(0, 0, 0, 0, 0);
    }

    pub(super) fn load_imm64(&mut self, dst: u8, value: u64) {
        self.put(BPF_LD | BPF_IMM | BPF_DW, dst, 0, 0, value as i32);
        self.put(0, 0, 0, 0, (value >> 32) as i32);
    }

    pub(super) fn call(&mut self, helper: i32) {
        self.put(BPF_JMP | BPF_CALL, 0, 0, 0, helper);
    }

    /// A call of the kfunc of that index.
    pub(super) fn call_kfunc(&mut self, index: i32) {
        self.put(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, index);
    }

    pub(super) fn exit(&mut self) {
        self.put(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    }

    /// A jump, conditional or not, to be landed.
    pub(super) fn jump(&mut self, code: u8, dst: u8, src: u8, imm: i32) -> Jump {
        self.put(code, dst, src, 0, imm);
        Jump(self.insns.len() - 1)
    }

    /// The jump just written.
    pub(super) fn last_jump(&self) -> Jump {
        Jump(self.insns.len().saturating_sub(1))
    }

    /// The next instruction is where `jump` goes.
    pub(super) fn land(&mut self, jump: Jump) {
        let distance = self.insns.len() - jump.0 - 1;
        self.insns[jump.0].off = i16::try_from(distance).unwrap_or(i16::MAX);
    }

    /// Where the next instruction will be.
    pub(super) fn here(&self) -> usize {
        self.insns.len()
    }

    /// A conditional jump back to `target`.
    pub(super) fn jump_back(&mut self, code: u8, dst: u8, imm: i32, target: usize) {
        let distance = target as i64 - self.insns.len() as i64 - 1;
        self.put(code, dst, 0, i16::try_from(distance).unwrap_or(i16::MIN), imm);
    }
}
