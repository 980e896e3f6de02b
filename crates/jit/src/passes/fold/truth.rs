//! Comparisons with constants that follow from the operand's possible bits, or become simpler.

use super::Simpler;
use super::constant;
use super::rules::Rewriter;
use crate::xir::{BinaryOp, Cond, Op, UnaryOp, Value};

impl Rewriter<'_, '_> {
    /// The constant result of a comparison with a constant, if it is known.
    pub(super) fn known_comparison(&mut self, cond: Cond, a: Value, c: u64) -> Option<Simpler> {
        let (possible, c) = (self.possible(a), c & self.ty(a).mask());
        // No value is above its possible bits.
        let holds = match cond {
            Cond::Eq if c & !possible != 0 => false,
            Cond::Ne if c & !possible != 0 => true,
            Cond::Ult if possible < c => true,
            Cond::Ult if c == 0 => false,
            Cond::Ule if possible <= c => true,
            Cond::Ugt if possible <= c => false,
            Cond::Uge if possible < c => false,
            Cond::Uge if c == 0 => true,
            _ => return None,
        };
        Some(Simpler::Op(Op::Const(holds.into())))
    }

    /// Moves arithmetic of `x == c` and `x != c` from `x` to the constant.
    pub(super) fn equality(&mut self, cond: Cond, a: Value, c: u64) -> Option<Simpler> {
        if c == 1 && self.possible(a) == 1 {
            let zero = self.insert_const(self.ty(a), 0);
            return Some(Simpler::Op(Op::Compare(cond.negated(), a, zero)));
        }
        let Op::Unary(op, x) = self.op(a)? else { return None };
        let ty = self.ty(x);
        let swapped = match op {
            UnaryOp::Bswap16 => 0xffff,
            UnaryOp::Bswap32 => u64::from(u32::MAX),
            UnaryOp::Bswap64 => u64::MAX,
            _ => return None,
        };
        let c = self.insert_const(ty, constant::unary(op, ty, ty, c));
        let looked_at = match self.possible(x) & !swapped {
            0 => x,
            _ => {
                let mask = self.insert_const(ty, swapped);
                self.insert(ty, Op::Binary(BinaryOp::And, x, mask))
            }
        };
        Some(Simpler::Op(Op::Compare(cond, looked_at, c)))
    }
}
