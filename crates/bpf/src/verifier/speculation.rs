//! Arithmetic on pointers that can be masked: requirements on programs that must not reach other
//! memory even on mispredicted paths (`bypass_spec_v1` false; `sanitize_ptr_alu`).
//!
//! The kernel masks the added number, with a limit for each instruction. So the limit must be the
//! same on all paths, and the pointer must stay within its object. Speculative execution ahead of
//! branches isn't followed here: compiled code masks every access.

use crate::errno::Errno;
use crate::insn::{BPF_ADD, BPF_SUB, Insn, STACK_BYTES};

use super::call;
use super::env::{Access, Result, Verifier};
use super::info::Masking;
use super::reg::{Base, Reg};
use super::rejection::Rejection;

/// Reason why an operation can't be masked (`REASON_*`).
enum Unmaskable {
    Bounds,
    Type,
    Paths,
    Limit,
}

/// One addition or subtraction of a number and a pointer.
#[derive(Clone, Copy)]
pub(crate) struct Offset<'r> {
    pub(crate) pointer: &'r Reg,
    pub(crate) number: &'r Reg,
    pub(crate) pointer_is_dst: bool,
}

impl Verifier<'_> {
    /// Checks an addition of numbers at an instruction where other paths may add a pointer
    /// (`sanitize_val_alu`).
    pub(crate) fn check_number_masking(&mut self, insn: &Insn) -> Result<()> {
        if !self.is_masked(insn) {
            return Ok(());
        }
        self.note_masking(Masking::Number)
            .map_err(|why| self.unmaskable(insn, &why, insn.dst, insn.dst))
    }

    /// Checks an addition before the result is known.
    pub(crate) fn check_masking(&self, insn: &Insn, add: Offset<'_>) -> Result<()> {
        if !self.is_masked(insn) {
            return Ok(());
        }
        let mixed = (add.number.var.smin < 0) != (add.number.var.smax < 0);
        let why = if !add.number.var.tnum.is_const() && mixed {
            Some(Unmaskable::Bounds)
        } else {
            self.pointer_limit(add.pointer, goes_left(insn, add.number)).err()
        };
        why.map_or(Ok(()), |why| Err(self.unmaskable_offset(insn, &why, add)))
    }

    /// Checks the result in its register: it must stay within the object, and be masked by the same
    /// limit on all paths (`sanitize_check_bounds`).
    pub(crate) fn check_masked_result(&mut self, insn: &Insn, add: Offset<'_>) -> Result<()> {
        if self.input.options.bypass_spec_v1 {
            return Ok(());
        }
        self.check_result_bounds(insn.dst)?;
        if !self.is_masked(insn) {
            return Ok(());
        }
        let left = goes_left(insn, add.number);
        let result = *self.reg(insn.dst);
        let limits = (self.pointer_limit(add.pointer, left), self.pointer_limit(&result, left));
        let noted = match limits {
            (Ok(before), Ok(after)) => self.note_masking(Masking::Pointer {
                negative: add.number.var.smin < 0,
                constant: add.number.var.tnum.is_const(),
                pointer_is_dst: add.pointer_is_dst,
                limit: before.abs_diff(after),
            }),
            (Err(why), _) | (_, Err(why)) => Err(why),
        };
        noted.map_err(|why| self.unmaskable_offset(insn, &why, add))
    }

    /// Whether the operation would be masked: constants of instructions are not
    /// (`can_skip_alu_sanitation`).
    fn is_masked(&self, insn: &Insn) -> bool {
        let adds = matches!(insn.op(), BPF_ADD | BPF_SUB);
        !self.input.options.bypass_spec_v1 && adds && insn.is_reg_operand()
    }

    fn check_result_bounds(&mut self, regno: u8) -> Result<()> {
        let reg = *self.reg(regno);
        match reg.base() {
            Base::Stack => self.check_stack_result(regno, &reg),
            Base::MapValue => {
                let size = self.map_of(&reg).map_or(0, |map| map.value_size);
                let mut within = self.check_region(regno, reg.off.into(), 1, size, false).is_ok();
                if within {
                    let fields =
                        call::check_map_fields(self, regno, 0, 1, Access::Read, None, true);
                    within = fields.is_ok();
                }
                if within {
                    return Ok(());
                }
                let message = format!(
                    "R{regno} pointer arithmetic of map value goes out of range, prohibited for \
                     !root"
                );
                Err(self.reject_hint(Errno::EACCES, message, RANGE_HINT))
            }
            _ => Ok(()),
        }
    }

    /// Checks a result on the stack (`check_stack_access_for_ptr_arithmetic`).
    fn check_stack_result(&self, regno: u8, reg: &Reg) -> Result<()> {
        let Some(off) = reg.const_offset() else {
            let tnum = reg.var.tnum;
            let message = format!(
                "R{regno} variable stack access prohibited for !root, var_off=({:#x}; {:#x}) \
                 off={}",
                tnum.value, tnum.mask, reg.off
            );
            return Err(self.reject_hint(Errno::EACCES, message, STACK_HINT));
        };
        if (-(STACK_BYTES as i64)..0).contains(&off) {
            return Ok(());
        }
        let message = format!(
            "R{regno} stack pointer arithmetic goes out of range, prohibited for !root; off={off}"
        );
        Err(self.reject_hint(Errno::EACCES, message, RANGE_HINT))
    }

    /// Limit of the number that is added (`retrieve_ptr_limit`).
    fn pointer_limit(&self, pointer: &Reg, left: bool) -> Result<u32, Unmaskable> {
        let off = pointer.off as u32;
        let (limit, max) = match pointer.base() {
            Base::Stack => {
                let at = (pointer.var.tnum.value as u32).wrapping_add(off);
                (at.wrapping_neg(), STACK_BYTES as u32 + u32::from(left))
            }
            Base::MapValue => {
                let end = if left { pointer.var.smin as u32 } else { pointer.var.umax as u32 };
                (end.wrapping_add(off), self.map_of(pointer).map_or(0, |map| map.value_size))
            }
            _ => return Err(Unmaskable::Type),
        };
        if limit >= max { Err(Unmaskable::Limit) } else { Ok(limit) }
    }

    /// Records the masking of the instruction (`update_alu_sanitation_state`).
    fn note_masking(&mut self, masking: Masking) -> Result<(), Unmaskable> {
        let known = &mut self.learned.aux[self.path.insn_idx].masking;
        if known.is_some_and(|known| known != masking) {
            return Err(Unmaskable::Paths);
        }
        *known = Some(masking);
        Ok(())
    }

    fn unmaskable_offset(&self, insn: &Insn, why: &Unmaskable, add: Offset<'_>) -> Box<Rejection> {
        let (pointer, number) =
            if add.pointer_is_dst { (insn.dst, insn.src) } else { (insn.src, insn.dst) };
        self.unmaskable(insn, why, pointer, number)
    }

    /// The rejection for an operation that can't be masked (`sanitize_err`).
    fn unmaskable(
        &self,
        insn: &Insn,
        why: &Unmaskable,
        pointer_regno: u8,
        number_regno: u8,
    ) -> Box<Rejection> {
        const END: &str = "pointer arithmetic with it prohibited for !root";
        let verb = if insn.op() == BPF_ADD { "add" } else { "sub" };
        let dst = insn.dst;
        let message = match why {
            Unmaskable::Bounds => {
                format!("R{number_regno} has unknown scalar with mixed signed bounds, {END}")
            }
            Unmaskable::Type => {
                format!("R{pointer_regno} has pointer with unsupported alu operation, {END}")
            }
            Unmaskable::Paths => {
                format!("R{dst} tried to {verb} from different maps, paths or scalars, {END}")
            }
            Unmaskable::Limit => format!("R{dst} tried to {verb} beyond pointer bounds, {END}"),
        };
        self.reject_hint(Errno::EACCES, message, RANGE_HINT)
    }
}

fn goes_left(insn: &Insn, number: &Reg) -> bool {
    (insn.op() == BPF_ADD) == (number.var.smin < 0)
}

const RANGE_HINT: &str = "without CAP_PERFMON a pointer stays within its object, on each path and \
                          at each step, so that what a CPU does ahead of a check does too";
const STACK_HINT: &str =
    "without CAP_PERFMON an index into the stack is a constant: keep the array in a map";
