//! Arithmetic instructions.

use towpath_bpf::Insn;
use towpath_bpf::insn::{
    BPF_ADD, BPF_ALU64, BPF_AND, BPF_ARSH, BPF_DIV, BPF_END, BPF_LSH, BPF_MOD, BPF_MOV, BPF_MUL,
    BPF_NEG, BPF_OR, BPF_RSH, BPF_SUB, BPF_XOR,
};

use super::super::ir::{BinaryOp, Op, Type, UnaryOp, Value};
use super::{BuildError, FunctionBuilder};

impl FunctionBuilder<'_> {
    pub(super) fn alu(&mut self, insn: Insn) -> Result<(), BuildError> {
        let ty = if insn.class() == BPF_ALU64 { Type::I64 } else { Type::I32 };
        let value = match insn.op() {
            BPF_MOV => self.mov(insn, ty)?,
            BPF_END => return self.byte_swap(insn),
            BPF_NEG => {
                let (zero, a) = (self.constant(ty, 0), self.reg_as(insn.dst, ty));
                self.push(ty, Op::Binary(BinaryOp::Sub, zero, a))
            }
            _ => {
                let Some(op) = binary_of(insn) else {
                    return Err(self.inconsistent("unknown arithmetic was verified"));
                };
                let (a, b) = (self.reg_as(insn.dst, ty), self.operand(insn, ty));
                self.push(ty, Op::Binary(op, a, b))
            }
        };
        self.set(insn.dst, ty, value);
        Ok(())
    }

    fn set(&mut self, reg: u8, ty: Type, value: Value) {
        match ty {
            Type::I64 => self.set_reg(reg, value),
            Type::I32 => self.set_reg32(reg, value),
        }
    }

    /// Moves, plain and sign-extending (RFC 9669 section 4.1: the offset is the source's width).
    fn mov(&mut self, insn: Insn, ty: Type) -> Result<Value, BuildError> {
        if !insn.is_reg_operand() || insn.off == 0 {
            return Ok(self.operand(insn, ty));
        }
        let value = self.reg_as(insn.src, ty);
        match (insn.off, ty) {
            (8, _) => Ok(self.push(ty, Op::Unary(UnaryOp::Sext8, value))),
            (16, _) => Ok(self.push(ty, Op::Unary(UnaryOp::Sext16, value))),
            (32, Type::I64) => {
                let low = self.push(Type::I32, Op::Unary(UnaryOp::Trunc, value));
                Ok(self.push(Type::I64, Op::Unary(UnaryOp::Sext, low)))
            }
            (1, Type::I64) => self.cast_address(value, insn.imm),
            _ => Err(self.inconsistent("an unknown move was verified")),
        }
    }

    /// `bswap` and the conversions to and from network order; this machine is little-endian.
    fn byte_swap(&mut self, insn: Insn) -> Result<(), BuildError> {
        let swaps = insn.class() == BPF_ALU64 || insn.is_reg_operand();
        let value = self.reg(insn.dst);
        match (insn.imm, swaps) {
            (16, true) => self.narrow_swap(insn.dst, UnaryOp::Bswap16),
            (32, true) => self.narrow_swap(insn.dst, UnaryOp::Bswap32),
            (64, true) => {
                let swapped = self.push(Type::I64, Op::Unary(UnaryOp::Bswap64, value));
                self.set_reg(insn.dst, swapped);
            }
            (16, false) => {
                let mask = self.constant(Type::I64, 0xffff);
                let low = self.push(Type::I64, Op::Binary(BinaryOp::And, value, mask));
                self.set_reg(insn.dst, low);
            }
            (32, false) => {
                let low = self.reg_as(insn.dst, Type::I32);
                self.set_reg32(insn.dst, low);
            }
            (64, false) => {}
            _ => return Err(self.inconsistent("an unknown byte swap was verified")),
        }
        Ok(())
    }

    fn narrow_swap(&mut self, reg: u8, op: UnaryOp) {
        let low = self.reg_as(reg, Type::I32);
        let swapped = self.push(Type::I32, Op::Unary(op, low));
        self.set_reg32(reg, swapped);
    }
}

fn binary_of(insn: Insn) -> Option<BinaryOp> {
    // A non-zero offset makes division and remainder signed (RFC 9669 section 4.1).
    let signed = insn.off == 1;
    Some(match insn.op() {
        BPF_ADD => BinaryOp::Add,
        BPF_SUB => BinaryOp::Sub,
        BPF_MUL => BinaryOp::Mul,
        BPF_DIV if signed => BinaryOp::SDiv,
        BPF_DIV => BinaryOp::UDiv,
        BPF_MOD if signed => BinaryOp::SRem,
        BPF_MOD => BinaryOp::URem,
        BPF_AND => BinaryOp::And,
        BPF_OR => BinaryOp::Or,
        BPF_XOR => BinaryOp::Xor,
        BPF_LSH => BinaryOp::Shl,
        BPF_RSH => BinaryOp::LShr,
        BPF_ARSH => BinaryOp::AShr,
        _ => return None,
    })
}
