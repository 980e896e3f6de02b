//! ALU instructions: copies, arithmetic on numbers, and allowed arithmetic on pointers
//! (`check_alu_op`, `adjust_reg_min_max_vals`, `adjust_ptr_min_max_vals`).

use crate::errno::Errno;
use crate::insn::*;

use super::env::{Result, Verifier};
use super::reg::{ADD_CONST, ADD_CONST_32, ADD_CONST_64, Base, Flags, Payload, Reg, RegType};
use super::scalar::Scalar;
use super::show::type_name;
use super::speculation::Offset;
use super::stack::{VAR_OFF_MAX, value_bits};
use super::tnum::Tnum;

impl Verifier<'_> {
    /// Checks one ALU instruction.
    pub(crate) fn check_alu(&mut self, insn: &Insn) -> Result<()> {
        match insn.op() {
            BPF_END | BPF_NEG => self.check_unary(insn),
            BPF_MOV => self.check_mov(insn),
            _ => self.check_binary(insn),
        }
    }

    fn check_unary(&mut self, insn: &Insn) -> Result<()> {
        self.check_reg_read(insn.dst)?;
        self.note_operands(insn);
        self.check_reg_write(insn.dst, false)?;
        self.forbid_part(insn.dst, "pointer arithmetic prohibited")?;
        let reg = *self.reg(insn.dst);
        let mut out = Reg::UNKNOWN;
        if reg.is_scalar() {
            out.var = if insn.op() == BPF_NEG {
                let is64 = insn.class() == BPF_ALU64;
                reg.var.alu(BPF_NEG, &Scalar::constant(0), is64)
            } else {
                let swaps = insn.class() == BPF_ALU64 || insn.is_reg_operand();
                Scalar::from_tnum(swap_bytes(reg.var.tnum, insn.imm as u32 / 8, swaps))
            };
        }
        // The result of an operation on one number still depends on that number.
        out.precise = reg.is_scalar() && reg.precise;
        *self.reg_mut(insn.dst) = out;
        Ok(())
    }

    fn check_mov(&mut self, insn: &Insn) -> Result<()> {
        if !insn.is_reg_operand() {
            self.check_reg_write(insn.dst, false)?;
            let value = if insn.class() == BPF_ALU64 {
                i64::from(insn.imm) as u64
            } else {
                u64::from(insn.imm as u32)
            };
            *self.reg_mut(insn.dst) = Reg::constant(value);
            return Ok(());
        }
        self.check_reg_read(insn.src)?;
        self.note_operands(insn);
        self.check_reg_write(insn.dst, false)?;
        if insn.imm != 0 {
            return self.check_address_cast(insn);
        }
        let is64 = insn.class() == BPF_ALU64;
        if is64 && insn.off == 0 {
            self.assign_scalar_id(insn.src);
            *self.reg_mut(insn.dst) = *self.reg(insn.src);
            return Ok(());
        }
        let what = if is64 { "sign-extension part of pointer" } else { "partial copy of pointer" };
        self.forbid_part(insn.src, what)?;
        self.move_part(insn, is64);
        Ok(())
    }

    /// A 32-bit or sign-extending copy. The copy only equals its source if no bit is lost.
    fn move_part(&mut self, insn: &Insn, is64: bool) {
        let source = *self.reg(insn.src);
        if !source.is_scalar() {
            let mut out = Reg::UNKNOWN;
            if !is64 {
                out.var.truncate(4);
            }
            *self.reg_mut(insn.dst) = out;
            return;
        }
        let same = match insn.off {
            0 => value_bits(&source) <= 32,
            bits => source.var.umax < 1u64 << ((bits as u32 - 1) & 63),
        };
        if same {
            self.assign_scalar_id(insn.src);
        }
        let mut out = *self.reg(insn.src);
        if !same {
            out.id = 0;
            out.off = 0;
        }
        match (insn.off, is64) {
            (0, _) => out.var.truncate(4),
            (bits, true) => out.var.sign_extend(bits as u32 / 8),
            (bits, false) => out.var.sign_extend_32(bits as u32 / 8),
        }
        *self.reg_mut(insn.dst) = out;
    }

    fn check_address_cast(&mut self, insn: &Insn) -> Result<()> {
        if !self.has_arena() {
            let message =
                "addr_space_cast insn can only be used in a program that has an associated arena";
            return Err(self.reject(Errno::EINVAL, message));
        }
        let to_arena = insn.imm == 1;
        *self.reg_mut(insn.dst) = if to_arena {
            Reg { kind: RegType::plain(Base::Arena), ..Reg::UNKNOWN }
        } else {
            Reg::UNKNOWN
        };
        Ok(())
    }

    fn check_binary(&mut self, insn: &Insn) -> Result<()> {
        self.check_reg_read(insn.dst)?;
        if insn.is_reg_operand() {
            self.check_reg_read(insn.src)?;
        } else if matches!(insn.op(), BPF_DIV | BPF_MOD) && insn.imm == 0 {
            return Err(self.reject(Errno::EINVAL, "div by zero"));
        } else if matches!(insn.op(), BPF_LSH | BPF_RSH | BPF_ARSH) {
            let width = if insn.class() == BPF_ALU64 { 64 } else { 32 };
            if !(0..width).contains(&insn.imm) {
                return Err(self.reject(Errno::EINVAL, format!("invalid shift {}", insn.imm)));
            }
        }
        self.note_operands(insn);
        self.check_reg_write(insn.dst, false)?;
        self.apply_binary(insn)
    }

    fn apply_binary(&mut self, insn: &Insn) -> Result<()> {
        let dst = *self.reg(insn.dst);
        let operand = if insn.is_reg_operand() {
            *self.reg(insn.src)
        } else {
            Reg::constant(i64::from(insn.imm) as u64)
        };
        if let Some(pointer) = [dst, operand].into_iter().find(|reg| reg.is(Base::Arena)) {
            // Any result is an arena pointer again: only its low half is ever used.
            self.learned.aux[self.path.insn_idx].of_arena |= insn.class() == BPF_ALU64;
            *self.reg_mut(insn.dst) = pointer;
            return Ok(());
        }
        match (dst.is_scalar(), operand.is_scalar()) {
            (false, false) => {
                let may_know =
                    self.input.options.allow_ptr_leaks || self.are_of_packet(&dst, &operand);
                if insn.op() == BPF_SUB && may_know {
                    let is_length = self.are_of_packet(&dst, &operand);
                    self.learned.distance_at =
                        self.learned.distance_at.or(is_length.then_some(self.path.insn_idx));
                    self.mark_reg_unknown(insn.dst);
                    return Ok(());
                }
                let (regno, operator) = (insn.dst, operator(insn.op()));
                let message = format!("R{regno} pointer {operator} pointer prohibited");
                let hint = "a pointer is moved by a number: one of the two was to be one (an \
                            offset, or a distance such as data_end - data)";
                Err(self.reject_hint(Errno::EACCES, message, hint))
            }
            (true, false) => {
                self.mark_chain_precision(insn.dst)?;
                self.offset_pointer(insn, &operand, &dst, false)
            }
            (false, true) => {
                if insn.is_reg_operand() {
                    self.mark_chain_precision(insn.src)?;
                }
                self.offset_pointer(insn, &dst, &operand, true)
            }
            (true, true) => {
                if insn.is_reg_operand() && dst.precise {
                    self.mark_chain_precision(insn.src)?;
                }
                if matches!(insn.op(), BPF_AND | BPF_OR) && operand.var.is_const() {
                    self.follow_sign_apart(insn.dst)?;
                }
                self.check_number_masking(insn)?;
                let dst = *self.reg(insn.dst);
                self.combine_scalars(insn, &dst, &operand);
                Ok(())
            }
        }
    }

    /// Follows the two results of an arithmetic shift that leaves only a sign, 0 and -1, on
    /// separate paths: compilers mask such a number instead of jumping, and no view of a number
    /// holds just the two (`maybe_fork_scalars`).
    fn follow_sign_apart(&mut self, regno: u8) -> Result<()> {
        let var = self.reg(regno).var;
        let is64 = (var.smin, var.smax) == (-1, 0);
        if !is64 && (var.s32_min, var.s32_max) != (-1, 0) {
            return Ok(());
        }
        let known = |value: u64| if is64 { Scalar::constant(value) } else { var.known_low(value) };
        let mut cleared = self.path.cur.clone();
        cleared.frame_mut().regs[usize::from(regno)].var = known(0);
        self.reg_mut(regno).var = known(u64::MAX);
        self.push_pending_state(cleared, self.path.insn_idx, self.path.insn_idx)
    }

    fn combine_scalars(&mut self, insn: &Insn, dst: &Reg, operand: &Reg) {
        let is64 = insn.class() == BPF_ALU64;
        let mut out = Reg::scalar(dst.var.alu(insn.op(), &operand.var, is64));
        out.precise = dst.precise;
        if let Some(off) = constant_step(insn.op(), operand)
            && dst.id != 0
            && dst.id & ADD_CONST == 0
            && (is64 || dst.var.umax <= u64::from(u32::MAX))
        {
            // One constant distance to other registers is kept (`BPF_ADD_CONST`).
            out.id = dst.id | if is64 { ADD_CONST_64 } else { ADD_CONST_32 };
            out.off = off;
        }
        *self.reg_mut(insn.dst) = out;
    }

    /// `pointer OP number`; `pointer_is_dst` tells which operand of the instruction is the pointer.
    fn offset_pointer(
        &mut self,
        insn: &Insn,
        pointer: &Reg,
        offset: &Reg,
        pointer_is_dst: bool,
    ) -> Result<()> {
        if offset.var.is_contradiction() {
            self.mark_reg_unknown(insn.dst);
            return Ok(());
        }
        let name = type_name(pointer.kind);
        let regno = insn.dst;
        if insn.class() != BPF_ALU64 {
            if insn.op() == BPF_SUB && self.input.options.allow_ptr_leaks {
                self.mark_reg_unknown(regno);
                return Ok(());
            }
            let message = format!("R{regno} 32-bit pointer arithmetic prohibited");
            return Err(self.reject(Errno::EACCES, message));
        }
        if pointer.maybe_null() {
            let message =
                format!("R{regno} pointer arithmetic on {name} prohibited, null-check it first");
            let hint = "compare the pointer with NULL before adding to it";
            return Err(self.reject_hint(Errno::EACCES, message, hint));
        }
        if pointer.is(Base::Mem) && pointer.has(Flags::UNTRUSTED) {
            *self.reg_mut(regno) = *pointer;
            return Ok(());
        }
        let adds_zero = offset.const_value() == Some(0) && insn.op() == BPF_ADD;
        if !(may_be_offset(pointer.base()) || (pointer.is(Base::ConstMapPtr) && adds_zero)) {
            let message = format!("R{regno} pointer arithmetic on {name} prohibited");
            let hint = match pointer.base() {
                Base::PacketEnd => {
                    "data_end is only compared: add to the other side, (data + bytes > data_end) \
                     for (data > data_end - bytes)"
                }
                _ => "",
            };
            return Err(self.reject_hint(Errno::EACCES, message, hint));
        }
        self.check_sane_offset(offset, &name)?;
        self.check_sane_offset(pointer, &name)?;
        let add = Offset { pointer, number: offset, pointer_is_dst };
        self.check_masking(insn, add)?;
        let out = match insn.op() {
            BPF_ADD => self.add_to_pointer(pointer, offset),
            BPF_SUB => self.subtract_from_pointer(regno, pointer, offset, pointer_is_dst)?,
            BPF_AND | BPF_OR | BPF_XOR => {
                let operator = operator(insn.op());
                let message = format!("R{regno} bitwise operator {operator} on pointer prohibited");
                return Err(self.reject(Errno::EACCES, message));
            }
            op => {
                let operator = operator(op);
                let message =
                    format!("R{regno} pointer arithmetic with {operator} operator prohibited");
                return Err(self.reject(Errno::EACCES, message));
            }
        };
        self.check_sane_offset(&out, &name)?;
        *self.reg_mut(regno) = out;
        self.check_masked_result(insn, add)
    }

    fn add_to_pointer(&mut self, pointer: &Reg, offset: &Reg) -> Reg {
        let mut out = *pointer;
        if let Some(value) = offset.const_value()
            && let Ok(off) = i32::try_from(i64::from(pointer.off).wrapping_add(value as i64))
        {
            out.off = off;
            return out;
        }
        out.var = pointer.var.alu(BPF_ADD, &offset.var, true);
        self.forget_packet_range(&mut out, true);
        out
    }

    fn subtract_from_pointer(
        &mut self,
        regno: u8,
        pointer: &Reg,
        offset: &Reg,
        pointer_is_dst: bool,
    ) -> Result<Reg> {
        if !pointer_is_dst {
            let message = format!("R{regno} tried to subtract pointer from scalar");
            return Err(self.reject(Errno::EACCES, message));
        }
        if pointer.is(Base::Stack) {
            let message = format!("R{regno} subtraction from stack pointer prohibited");
            return Err(self.reject(Errno::EACCES, message));
        }
        let mut out = *pointer;
        if let Some(value) = offset.const_value()
            && let Ok(off) = i32::try_from(i64::from(pointer.off).wrapping_sub(value as i64))
        {
            out.off = off;
            return Ok(out);
        }
        out.var = pointer.var.alu(BPF_SUB, &offset.var, true);
        // A step backwards keeps the proved range ahead.
        self.forget_packet_range(&mut out, offset.var.smin < 0);
        Ok(out)
    }

    /// Makes a packet pointer with a new variable part a new base.
    fn forget_packet_range(&mut self, reg: &mut Reg, range_lost: bool) {
        if !reg.is_packet() {
            return;
        }
        reg.id = self.new_id();
        if range_lost {
            reg.payload = Payload::Range(0);
        }
    }

    /// Checks that offsets stay far from overflow (`check_reg_sane_offset`).
    fn check_sane_offset(&self, reg: &Reg, name: &str) -> Result<()> {
        let var = &reg.var;
        let limit = VAR_OFF_MAX;
        let value = var.tnum.value as i64;
        let message = if var.is_const() && (value >= limit || value <= -limit) {
            format!("math between {name} pointer and {value} is not allowed")
        } else if !reg.is_scalar() && (i64::from(reg.off) >= limit || i64::from(reg.off) <= -limit)
        {
            format!("{name} pointer offset {} is not allowed", reg.off)
        } else if var.smin == i64::MIN {
            format!(
                "math between {name} pointer and register with unbounded min value is not allowed"
            )
        } else if var.smin >= limit || var.smin <= -limit {
            format!("value {} makes {name} pointer be out of bounds", var.smin)
        } else {
            return Ok(());
        };
        let hint = "bound the number on both sides before adding it to the pointer \
                    (an unsigned compare, or a mask)";
        Err(self.reject_hint(Errno::EINVAL, message, hint))
    }
}

/// Distance of an addition or subtraction of a constant.
fn constant_step(op: u8, operand: &Reg) -> Option<i32> {
    let step = i32::try_from(operand.const_value()? as i64).ok()?;
    match op {
        BPF_ADD => Some(step),
        BPF_SUB => step.checked_neg(),
        _ => None,
    }
}

/// The low `bytes` bytes in reverse order (or, on this little-endian host, unchanged).
fn swap_bytes(tnum: Tnum, bytes: u32, swaps: bool) -> Tnum {
    let low = tnum.cast(bytes);
    if !swaps {
        return low;
    }
    let shift = 64 - bytes.clamp(1, 8) * 8;
    Tnum { value: low.value.swap_bytes() >> shift, mask: low.mask.swap_bytes() >> shift }
}

/// Whether pointers of this type may have an offset.
fn may_be_offset(base: Base) -> bool {
    matches!(
        base,
        Base::Ctx
            | Base::MapValue
            | Base::MapKey
            | Base::Stack
            | Base::PacketMeta
            | Base::Packet
            | Base::BtfId
            | Base::Mem
            | Base::Buf
            | Base::Func
            | Base::Dynptr
    )
}

fn operator(op: u8) -> &'static str {
    match op {
        BPF_ADD => "+=",
        BPF_SUB => "-=",
        BPF_MUL => "*=",
        BPF_DIV => "/=",
        BPF_OR => "|=",
        BPF_AND => "&=",
        BPF_LSH => "<<=",
        BPF_RSH => ">>=",
        BPF_MOD => "%=",
        BPF_XOR => "^=",
        BPF_ARSH => "s>>=",
        _ => "=",
    }
}
