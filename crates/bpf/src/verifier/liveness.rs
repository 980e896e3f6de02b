//! Registers that may still be read: a backward data-flow analysis of each function
//! (`compute_live_registers`). Dead registers may differ between equal states.

use crate::insn::*;

use super::env::Verifier;

/// r1..r5: arguments of calls; with r0, the registers that calls destroy.
const ARGUMENTS: u16 = 0b11_1110;
const CALLER_SAVED: u16 = 0b11_1111;

impl Verifier<'_> {
    /// Fills `live_regs` of every instruction.
    pub(crate) fn compute_live_registers(&mut self) {
        let effects: Vec<(u16, u16)> =
            (0..self.input.prog.insns.len()).map(|idx| self.use_def(idx)).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for idx in (0..effects.len()).rev() {
                let (used, defined) = effects[idx];
                let mut out = 0;
                for &next in self.successors(idx).as_slice() {
                    out |= self.learned.aux.get(next).map_or(0, |aux| aux.live_regs);
                }
                let live = (out & !defined) | used;
                changed |= live != self.learned.aux[idx].live_regs;
                self.learned.aux[idx].live_regs = live;
            }
        }
    }

    /// Registers that an instruction reads, and registers that it overwrites.
    pub(crate) fn use_def(&self, idx: usize) -> (u16, u16) {
        let insn = self.insn_at(idx);
        let (dst, src) = (1u16 << insn.dst, 1u16 << insn.src);
        match insn.class() {
            BPF_LD if insn.mode() == BPF_IMM => (0, dst),
            BPF_LD => {
                let index = if insn.mode() == BPF_IND { src } else { 0 };
                (index | 1 << 6, CALLER_SAVED)
            }
            BPF_LDX => (src, dst),
            BPF_ST => (dst, 0),
            BPF_STX if insn.mode() == BPF_ATOMIC => atomic_use_def(&insn),
            BPF_STX => (dst | src, 0),
            BPF_ALU | BPF_ALU64 => {
                let operand = if insn.is_reg_operand() { src } else { 0 };
                match insn.op() {
                    BPF_END | BPF_NEG => (dst, dst),
                    BPF_MOV => (operand, dst),
                    _ => (dst | operand, dst),
                }
            }
            _ => self.jump_use_def(&insn),
        }
    }

    fn jump_use_def(&self, insn: &Insn) -> (u16, u16) {
        match insn.op() {
            BPF_JA | BPF_JCOND => (0, 0),
            BPF_EXIT => (1, 0),
            BPF_CALL => {
                let count = self.call_traits(insn).arg_count;
                let used = match count {
                    Some(count) => ((1u16 << (count.min(5) + 1)) - 1) & ARGUMENTS,
                    None => ARGUMENTS,
                };
                (used, CALLER_SAVED)
            }
            _ => {
                let operand = if insn.is_reg_operand() { 1 << insn.src } else { 0 };
                ((1 << insn.dst) | operand, 0)
            }
        }
    }
}

fn atomic_use_def(insn: &Insn) -> (u16, u16) {
    let (dst, src) = (1u16 << insn.dst, 1u16 << insn.src);
    match insn.imm {
        BPF_CMPXCHG => (dst | src | 1, 1),
        BPF_LOAD_ACQ => (src, dst),
        BPF_STORE_REL => (dst | src, 0),
        imm if imm & BPF_FETCH != 0 => (dst | src, src),
        _ => (dst | src, 0),
    }
}
