//! Joins a value that was cut into pieces and put together again: stack cells that are smaller than
//! the accesses leave such code.

use super::Simpler;
use super::rules::Rewriter;
use crate::xir::{BinaryOp, Op, Type, UnaryOp, Value};

impl Rewriter<'_, '_> {
    /// `x >> c << c` and `(x >> c & mask) << c` clear bits of `x`.
    pub(super) fn shift_back(
        &mut self,
        op: BinaryOp,
        a: Value,
        c: u64,
        ty: Type,
    ) -> Option<Simpler> {
        if op != BinaryOp::Shl || c == 0 || c >= u64::from(ty.bits()) {
            return None;
        }
        let (inner, mask) = self.masked(a);
        let Op::Binary(BinaryOp::LShr, x, count) = self.op(inner)? else { return None };
        if self.constant(count)? != c {
            return None;
        }
        let mask = self.insert_const(ty, mask << c);
        Some(Simpler::Op(Op::Binary(BinaryOp::And, x, mask)))
    }

    /// A mask that clears only what a shift drops is not needed.
    pub(super) fn shift_of_masked(
        &mut self,
        op: BinaryOp,
        a: Value,
        count: Value,
        ty: Type,
    ) -> Option<Simpler> {
        let c = self.constant(count).filter(|&c| c < u64::from(ty.bits()))?;
        let kept = match op {
            BinaryOp::LShr => ty.mask() >> c << c,
            BinaryOp::Shl => ty.mask() >> c,
            _ => return None,
        };
        let Op::Binary(BinaryOp::And, x, mask) = self.op(a)? else { return None };
        let is_kept = self.constant(mask)? & kept == kept;
        is_kept.then_some(Simpler::Op(Op::Binary(op, x, count)))
    }

    /// A sum that only changes bits which a shift drops is not needed: `(x + 7) >> 12` is `x >> 12`
    /// if `x` is a multiple of 8.
    pub(super) fn shift_of_sum(
        &mut self,
        op: BinaryOp,
        a: Value,
        count: Value,
        ty: Type,
    ) -> Option<Simpler> {
        let c = self.constant(count).filter(|&c| op == BinaryOp::LShr && c < 64)?;
        let Op::Binary(BinaryOp::Add, x, term) = self.op(a)? else { return None };
        let term = self.constant(term)?;
        let zeroes = u64::from(self.possible_bits(x).trailing_zeros()).min(c);
        let shifted_out = (1 << zeroes) - 1;
        if term & shifted_out == 0 {
            return None;
        }
        let term = self.insert_const(ty, term & !shifted_out);
        let sum = self.insert(ty, Op::Binary(BinaryOp::Add, x, term));
        Some(Simpler::Op(Op::Binary(op, sum, count)))
    }

    /// `x & m | x & n` is `x & (m | n)`.
    pub(super) fn same_source(
        &mut self,
        op: BinaryOp,
        a: Value,
        b: Value,
        ty: Type,
    ) -> Option<Simpler> {
        if op != BinaryOp::Or {
            return None;
        }
        let (x, m) = self.masked(a);
        let (y, n) = self.masked(b);
        if x != y || (m == ty.mask() && n == ty.mask()) {
            return None;
        }
        let mask = self.insert_const(ty, m | n);
        Some(Simpler::Op(Op::Binary(BinaryOp::And, x, mask)))
    }

    /// A value as another one of the same width with some bits cleared.
    fn masked(&self, value: Value) -> (Value, u64) {
        let all = (value, self.ty(value).mask());
        match self.op(value) {
            Some(Op::Binary(BinaryOp::And, x, mask)) => {
                self.constant(mask).map_or(all, |mask| (x, mask))
            }
            Some(Op::Unary(UnaryOp::Zext, low)) => {
                let (low, mask) = self.masked(low);
                match self.op(low) {
                    Some(Op::Unary(UnaryOp::Trunc, x)) => (x, mask),
                    _ => all,
                }
            }
            _ => all,
        }
    }
}
