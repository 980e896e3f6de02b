//! Small damage to a valid program, so that it sits at the edge of what can be proved.

use towpath_bpf::Insn;
use towpath_bpf::insn::*;

use super::edit::without;
use crate::random::Random;

/// Changes one to three instructions.
pub(super) fn damage(insns: &mut Vec<Insn>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(insns.len());
        if insns[at].code == 0 || insns[at].is_ld_imm64() {
            continue;
        }
        match random.below(8) {
            0 => {
                if let Some(shorter) = without(insns, at..at + 1).filter(|p| !p.is_empty()) {
                    *insns = shorter;
                }
            }
            1 => insns[at].dst = random.below(11) as u8,
            2 if insns[at].is_reg_operand() => insns[at].src = random.below(11) as u8,
            3 => insns[at].off = insns[at].off.wrapping_add(random.between(-9, 9) as i16),
            4 => change_operation(&mut insns[at], random),
            _ => {
                let step = *random.pick(&[1, -1, 8, -8, 0x100, i32::MIN]);
                insns[at].imm = insns[at].imm.wrapping_add(step);
            }
        }
    }
}

/// Another operation, size or condition of the same class.
fn change_operation(insn: &mut Insn, random: &mut Random) {
    match insn.class() {
        BPF_LDX | BPF_ST | BPF_STX => {
            insn.code = (insn.code & !0x18) | *random.pick(&[BPF_B, BPF_H, BPF_W, BPF_DW]);
        }
        BPF_JMP | BPF_JMP32 if matches!(insn.op(), BPF_CALL | BPF_EXIT | BPF_JA) => {}
        _ => insn.code = (insn.code & 0x0f) | ((random.below(14) as u8) << 4),
    }
}
