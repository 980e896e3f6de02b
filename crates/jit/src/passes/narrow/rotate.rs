//! Rotations: `x << k | x >> (bits - k)`, also if clang has moved the left shift into a
//! multiplication: `(x * c & mask) >> (bits - k) | x * (c << k)` rotates `x * c`.

use super::super::definition;
use crate::xir::{BinaryOp, Dominators, Function, Inst, InstData, Op, Type, Value};

pub(super) fn find(function: &mut Function, dominators: &Dominators, definitions: &[Option<Inst>]) {
    for &block in dominators.order() {
        let mut at = 0;
        while at < function.block(block).insts.len() {
            let inst = function.block(block).insts[at];
            let finder = Finder { function, definitions };
            if let Some((value, count)) = finder.rotation(inst) {
                let (origin, ty) = (function.inst(inst).origin, function.ty(value));
                let result = function.add_value(ty);
                let op = Op::Const(count.into());
                let constant = function.add_inst(InstData { op, result: Some(result), origin });
                function.block_mut(block).insts.insert(at, constant);
                function.inst_mut(inst).op = Op::Binary(BinaryOp::Rotl, value, result);
                at += 1;
            }
            at += 1;
        }
    }
}

struct Finder<'a> {
    function: &'a Function,
    definitions: &'a [Option<Inst>],
}

impl Finder<'_> {
    /// The value that an instruction rotates to the left, and the count.
    fn rotation(&self, inst: Inst) -> Option<(Value, u32)> {
        // The halves share no bits, so all three operations combine them.
        let Op::Binary(BinaryOp::Or | BinaryOp::Add | BinaryOp::Xor, a, b) =
            self.function.inst(inst).op
        else {
            return None;
        };
        self.halves(a, b).or_else(|| self.halves(b, a))
    }

    fn halves(&self, low: Value, high: Value) -> Option<(Value, u32)> {
        let (shifted, right) = self.binary_const(BinaryOp::LShr, low)?;
        let ty = self.function.ty(low);
        let right = u32::try_from(right).ok().filter(|right| (1..ty.bits()).contains(right))?;
        let left = ty.bits() - right;
        let value = self.without_low_mask(shifted, right, ty);
        let is_rest = match self.binary_const(BinaryOp::Shl, high) {
            Some((other, count)) => {
                count == u64::from(left) && self.without_high_mask(other, right, ty) == value
            }
            None => self.is_shifted_product(value, high, left, ty),
        };
        is_rest.then_some((value, left))
    }

    /// Whether `value` is `x * c` and `high` is `x * (c << left)`.
    fn is_shifted_product(&self, value: Value, high: Value, left: u32, ty: Type) -> bool {
        let product = |value| self.binary_const(BinaryOp::Mul, value);
        match (product(value), product(high)) {
            (Some((x, c)), Some((y, shifted))) => x == y && shifted == c << left & ty.mask(),
            _ => false,
        }
    }

    /// The value without a mask that only clears bits which a shift to the right drops anyway.
    fn without_low_mask(&self, value: Value, right: u32, ty: Type) -> Value {
        let kept = ty.mask() << right & ty.mask();
        match self.binary_const(BinaryOp::And, value) {
            Some((inner, mask)) if mask & kept == kept => inner,
            _ => value,
        }
    }

    /// The value without a mask that only clears bits which a shift to the left drops anyway.
    fn without_high_mask(&self, value: Value, right: u32, ty: Type) -> Value {
        let kept = ty.mask() >> (ty.bits() - right);
        match self.binary_const(BinaryOp::And, value) {
            Some((inner, mask)) if mask & kept == kept => inner,
            _ => value,
        }
    }

    /// The operands of `x op constant`.
    fn binary_const(&self, op: BinaryOp, value: Value) -> Option<(Value, u64)> {
        match *self.op(value)? {
            Op::Binary(found, x, constant) if found == op => match *self.op(constant)? {
                Op::Const(constant) => Some((x, constant)),
                _ => None,
            },
            _ => None,
        }
    }

    fn op(&self, value: Value) -> Option<&Op> {
        definition(self.function, self.definitions, value)
    }
}
