//! Form of each single instruction: a known opcode, existing registers, and, in reached code,
//! unused fields that are zero (RFC 9669 section 3; the kernel's `bpf_opcode_in_insntable` and
//! "reserved fields" checks).

use crate::errno::Errno;
use crate::insn::*;

use super::env::{Result, Verifier};

impl Verifier<'_> {
    /// Checks every slot; afterwards register numbers are valid indices and wide loads have two
    /// slots.
    pub(crate) fn check_structure(&mut self) -> Result<()> {
        let count = self.input.prog.insns.len();
        if count == 0 || count as u64 > self.input.options.insns_processed_max {
            let message = format!("a program must have 1 to 1000000 instructions, not {count}");
            return Err(self.rejection_at(None, Errno::E2BIG, message, ""));
        }
        let mut idx = 0;
        while idx < count {
            self.path.insn_idx = idx;
            let insn = self.insn_at(idx);
            self.check_slot(&insn)?;
            if insn.is_ld_imm64() {
                self.check_wide_load(&insn, idx)?;
                idx += 1;
            }
            idx += 1;
        }
        Ok(())
    }

    fn check_slot(&self, insn: &Insn) -> Result<()> {
        if !is_known_opcode(insn) {
            let message = format!("unknown opcode {:02x}", insn.code);
            if insn.code == CALL_BY_REGISTER {
                let hint = "this calls a function whose address is in a variable, as compilers do \
                            with all helpers when they do not optimise: compile with -O2";
                return Err(self.reject_hint(Errno::EINVAL, message, hint));
            }
            return Err(self.reject(Errno::EINVAL, message));
        }
        // The encoding has room for an internal register, which programs may not use.
        for regno in [insn.dst, insn.src] {
            if regno > REG_FP {
                return Err(self.reject(Errno::EINVAL, format!("R{regno} is invalid")));
            }
        }
        if insn.class() == BPF_LDX && insn.imm != 0 {
            return Err(self.reject(Errno::EINVAL, "BPF_LDX uses reserved fields"));
        }
        Ok(())
    }

    /// Checks that the current instruction sets no unused field. As in the kernel, only reached
    /// instructions are checked; 64-bit loads were all checked before (`resolve_pseudo_ldimm64`).
    pub(crate) fn check_reserved(&self, insn: &Insn) -> Result<()> {
        let (reserved, class) = match insn.class() {
            BPF_ALU | BPF_ALU64 => (alu_reserved(insn), "BPF_ALU"),
            BPF_JMP | BPF_JMP32 => (jump_reserved(insn), "BPF_JMP"),
            BPF_ST => (insn.src != 0, "BPF_ST"),
            BPF_STX => (insn.mode() == BPF_MEM && insn.imm != 0, "BPF_STX"),
            _ => (false, ""),
        };
        if reserved {
            return Err(self.reject(Errno::EINVAL, format!("{class} uses reserved fields")));
        }
        Ok(())
    }

    fn check_wide_load(&self, insn: &Insn, idx: usize) -> Result<()> {
        let Some(second) = self.input.prog.insns.get(idx + 1) else {
            return Err(self.reject(Errno::EINVAL, "invalid bpf_ld_imm64 insn"));
        };
        if second.code != 0 || second.dst != 0 || second.src != 0 || second.off != 0 {
            return Err(self.reject(Errno::EINVAL, "invalid bpf_ld_imm64 insn"));
        }
        if insn.off != 0 {
            return Err(self.reject(Errno::EINVAL, "BPF_LD_IMM64 uses reserved fields"));
        }
        if insn.src > PSEUDO_MAP_IDX_VALUE || (insn.is_map_ref() && second.imm != 0) {
            return Err(self.reject(Errno::EINVAL, "unrecognized bpf_ld_imm64 insn"));
        }
        Ok(())
    }
}

/// Whether the ISA has the opcode (with the source field if that selects the operation).
fn is_known_opcode(insn: &Insn) -> bool {
    match insn.class() {
        BPF_ALU | BPF_ALU64 => match insn.op() {
            BPF_NEG => !insn.is_reg_operand(),
            BPF_END => insn.class() == BPF_ALU || !insn.is_reg_operand(),
            op => op <= BPF_END,
        },
        BPF_JMP => match insn.op() {
            BPF_JA | BPF_CALL | BPF_EXIT | BPF_JCOND => !insn.is_reg_operand(),
            op => op <= BPF_JSLE,
        },
        BPF_JMP32 => match insn.op() {
            BPF_JA => !insn.is_reg_operand(),
            BPF_CALL | BPF_EXIT => false,
            op => op <= BPF_JSLE,
        },
        BPF_LDX => match insn.mode() {
            BPF_MEM => true,
            BPF_MEMSX => insn.size_code() != BPF_DW,
            _ => false,
        },
        BPF_ST => insn.mode() == BPF_MEM,
        // Sizes of atomic operations are checked only in reached code.
        BPF_STX => matches!(insn.mode(), BPF_MEM | BPF_ATOMIC),
        _ => match insn.mode() {
            BPF_IMM => insn.size_code() == BPF_DW,
            BPF_ABS | BPF_IND => insn.size_code() != BPF_DW,
            _ => false,
        },
    }
}

/// Whether an ALU instruction sets an unused field.
fn alu_reserved(insn: &Insn) -> bool {
    let is64 = insn.class() == BPF_ALU64;
    match insn.op() {
        BPF_NEG => insn.src != 0 || insn.off != 0 || insn.imm != 0,
        BPF_END => insn.src != 0 || insn.off != 0 || !matches!(insn.imm, 16 | 32 | 64),
        BPF_MOV if insn.is_reg_operand() => {
            let sign_extension = matches!(insn.off, 0 | 8 | 16) || (is64 && insn.off == 32);
            // off 1, imm u32::MAX-like: cast into another address space (arena).
            let cast = is64 && insn.off == 1 && (insn.imm == 1 || insn.imm == 1 << 16);
            !(cast || (sign_extension && insn.imm == 0))
        }
        BPF_MOV => insn.src != 0 || insn.off != 0,
        BPF_DIV | BPF_MOD => !matches!(insn.off, 0 | 1) || operand_reserved(insn),
        _ => insn.off != 0 || operand_reserved(insn),
    }
}

fn operand_reserved(insn: &Insn) -> bool {
    if insn.is_reg_operand() { insn.imm != 0 } else { insn.src != 0 }
}

/// Whether a jump, call or exit sets an unused field.
fn jump_reserved(insn: &Insn) -> bool {
    match insn.op() {
        BPF_JA if insn.class() == BPF_JMP => insn.src != 0 || insn.dst != 0 || insn.imm != 0,
        BPF_JA => insn.src != 0 || insn.dst != 0 || insn.off != 0,
        BPF_EXIT => insn.src != 0 || insn.dst != 0 || insn.off != 0 || insn.imm != 0,
        BPF_CALL => {
            let offset = insn.off != 0 && insn.src != PSEUDO_KFUNC_CALL;
            insn.dst != 0 || offset || insn.src > PSEUDO_KFUNC_CALL
        }
        BPF_JCOND => insn.src != 0 || insn.dst != 0 || insn.imm != 0,
        _ => operand_reserved(insn),
    }
}

/// `BPF_JMP | BPF_CALL | BPF_X`, which no kernel accepts.
const CALL_BY_REGISTER: u8 = 0x8d;
