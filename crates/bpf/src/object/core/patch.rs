//! Writing an answer into an instruction (`bpf_core_patch_insn`).

use super::value::Outcome;
use crate::insn::{
    BPF_ALU, BPF_ALU64, BPF_B, BPF_CALL, BPF_DW, BPF_H, BPF_JMP, BPF_LD, BPF_LDX, BPF_ST, BPF_STX,
    BPF_W, Insn,
};

/// Number of a helper that doesn't exist: a call of it is refused only where it can be reached.
pub const POISON_CALL: i32 = 0x0bad_2310;

/// Patches the instruction at `at`; true if it was poisoned.
pub(super) fn patch(outcome: &Outcome, insns: &mut [Insn], at: usize) -> Result<bool, String> {
    let Some(insn) = insns.get_mut(at) else {
        return Err("it is for an instruction outside of the function".to_owned());
    };
    if outcome.poison {
        poison(insns, at);
        return Ok(true);
    }
    match insn.class() {
        BPF_ALU | BPF_ALU64 => {
            if insn.is_reg_operand() {
                return Err("the instruction has no immediate".to_owned());
            }
            expect(outcome, i64::from(insn.imm) as u64 & 0xffff_ffff, outcome.old & 0xffff_ffff)?;
            insn.imm = outcome.new as i32;
        }
        BPF_LDX | BPF_ST | BPF_STX => {
            expect(outcome, i64::from(insn.off) as u64, outcome.old)?;
            if outcome.new > i16::MAX as u64 {
                return Err(format!("offset {} doesn't fit an instruction", outcome.new));
            }
            if outcome.width_differs {
                poison(insns, at);
                return Ok(true);
            }
            insn.off = outcome.new as i16;
            if outcome.new_bytes != outcome.old_bytes {
                resize(insn, outcome)?;
            }
        }
        BPF_LD => patch_load_imm64(outcome, insns, at)?,
        _ => return Err("the instruction has nothing to relocate".to_owned()),
    }
    Ok(false)
}

fn patch_load_imm64(outcome: &Outcome, insns: &mut [Insn], at: usize) -> Result<(), String> {
    let Some([low, high, ..]) = insns.get_mut(at..) else {
        return Err("the second half of the load is missing".to_owned());
    };
    if !low.is_ld_imm64() || low.src != 0 || low.off != 0 || high.code != 0 {
        return Err("the instruction isn't a load of a plain 64-bit number".to_owned());
    }
    let found = u64::from(low.imm as u32) | u64::from(high.imm as u32) << 32;
    expect(outcome, found, outcome.old)?;
    low.imm = outcome.new as i32;
    high.imm = (outcome.new >> 32) as i32;
    Ok(())
}

fn expect(outcome: &Outcome, found: u64, expected: u64) -> Result<(), String> {
    if outcome.check && found != expected {
        return Err(format!(
            "the instruction holds {found}, but the object's own types say {expected}"
        ));
    }
    Ok(())
}

/// Changes a load or store to the width of the field in the kernel.
fn resize(insn: &mut Insn, outcome: &Outcome) -> Result<(), String> {
    if insn.access_bytes() as u64 != outcome.old_bytes {
        return Err(format!(
            "the instruction accesses {} bytes of a field of {}",
            insn.access_bytes(),
            outcome.old_bytes
        ));
    }
    let size = match outcome.new_bytes {
        1 => BPF_B,
        2 => BPF_H,
        4 => BPF_W,
        8 => BPF_DW,
        other => return Err(format!("no instruction accesses {other} bytes")),
    };
    insn.code = insn.mode() | size | insn.class();
    Ok(())
}

/// Replaces the instruction, both halves of a 64-bit load.
fn poison(insns: &mut [Insn], at: usize) {
    let halves = if insns[at].is_ld_imm64() { 2 } else { 1 };
    for insn in insns.iter_mut().skip(at).take(halves) {
        *insn = Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, POISON_CALL);
    }
}
