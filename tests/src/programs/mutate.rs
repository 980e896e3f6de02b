//! Small damage to a valid program, so that it sits at the edge of what can be proved.

use towpath_bpf::Insn;
use towpath_bpf::insn::*;

use super::edit::without;
use crate::random::Random;

/// Changes one to three instructions, each in a field that it uses.
pub(super) fn damage(insns: &mut Vec<Insn>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(insns.len());
        if insns[at].code == 0 || insns[at].is_ld_imm64() {
            continue;
        }
        if random.one_in(6) {
            if let Some(shorter) = without(insns, at..at + 1).filter(|p| !p.is_empty()) {
                *insns = shorter;
            }
            continue;
        }
        let insn = &mut insns[at];
        match insn.class() {
            BPF_LDX | BPF_ST | BPF_STX => damage_access(insn, random),
            BPF_JMP | BPF_JMP32 => damage_jump(insn, random),
            _ => damage_arithmetic(insn, random),
        }
    }
}

/// As `damage`, for programs whose functions must stay where they are: nothing is taken out, and
/// calls and references go to other kfuncs and maps of the object.
pub fn disturb(insns: &mut [Insn], kfuncs: usize, maps: usize, random: &mut Random) {
    for _ in 0..=random.below(2) {
        let at = random.below(insns.len());
        let behind_wide = at > 0 && insns[at - 1].is_ld_imm64();
        let insn = &mut insns[at];
        if insn.code == 0 || behind_wide {
            continue;
        }
        if insn.is_map_ref() && maps > 0 {
            insn.imm = random.below(maps) as i32;
        } else if insn.is_ld_imm64() {
            continue;
        } else if insn.is_kfunc_call() && kfuncs > 0 && !random.one_in(4) {
            insn.imm = random.below(kfuncs) as i32;
        } else if random.one_in(4) && insn.op() != BPF_EXIT {
            *insn = Insn::new(BPF_JMP | BPF_JA, 0, 0, 0, 0);
        } else {
            match insn.class() {
                BPF_LDX | BPF_ST | BPF_STX => damage_access(insn, random),
                BPF_JMP | BPF_JMP32 => damage_jump(insn, random),
                _ => damage_arithmetic(insn, random),
            }
        }
    }
}

fn damage_access(insn: &mut Insn, random: &mut Random) {
    match random.below(5) {
        0 => insn.dst = random.below(11) as u8,
        1 if insn.class() != BPF_ST => insn.src = random.below(11) as u8,
        2 => insn.code = (insn.code & !0x18) | *random.pick(&[BPF_B, BPF_H, BPF_W, BPF_DW]),
        3 => insn.off = insn.off.wrapping_mul(-1),
        _ => insn.off = insn.off.wrapping_add(*random.pick(&[1, -1, 4, -4, 8, -8])),
    }
}

fn damage_jump(insn: &mut Insn, random: &mut Random) {
    match (insn.op(), random.below(4)) {
        (BPF_EXIT, _) => {}
        (BPF_CALL, _) if insn.src == 0 => insn.imm = random.below(212) as i32,
        (BPF_CALL, _) => {}
        (_, 0) => insn.off = insn.off.wrapping_add(*random.pick(&[1, -1, 2, -2])),
        (BPF_JA, _) => {}
        (_, 1) if insn.is_reg_operand() => std::mem::swap(&mut insn.dst, &mut insn.src),
        (_, 2) if !insn.is_reg_operand() => change_immediate(insn, random),
        _ => {
            let op = *random.pick(&[0x10, 0x20, 0x30, 0x50, 0x60, 0xa0, 0xb0, 0xc0]);
            insn.code = (insn.code & 0x0f) | op;
        }
    }
}

fn damage_arithmetic(insn: &mut Insn, random: &mut Random) {
    match random.below(4) {
        0 => insn.dst = random.below(10) as u8,
        1 if insn.is_reg_operand() && insn.op() != BPF_END => insn.src = random.below(11) as u8,
        2 if !matches!(insn.op(), BPF_END | BPF_NEG) => {
            let op = *random.pick(&[0x00, 0x10, 0x20, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xc0]);
            (insn.code, insn.off) = ((insn.code & 0x0f) | op, 0);
        }
        _ if !insn.is_reg_operand() => change_immediate(insn, random),
        _ => {}
    }
}

fn change_immediate(insn: &mut Insn, random: &mut Random) {
    if !matches!(insn.op(), BPF_END | BPF_NEG) {
        insn.imm = insn.imm.wrapping_add(*random.pick(&[1, -1, 8, -8, 0x100, i32::MIN]));
    }
}
