//! Lower bound of the number of rounds that no exit cuts short.

use super::super::assemble::Assembler;
use super::chain::{Affine, Chain, Change, Condition, Limit};
use crate::xir::{BinaryOp, Cond, Op, Type, UnaryOp, Value};

/// The least bound of all conditions, from the initial values of the loop.
pub(super) fn at_least(code: &mut Assembler<'_>, chain: &Chain, first: &[Value]) -> Value {
    let mut least: Option<Value> = None;
    for condition in &chain.conditions {
        let Change::Step { step, .. } = chain.changes[condition.value.param] else { continue };
        let rounds = rounds(code, condition, step, first);
        least = Some(match least {
            None => rounds,
            Some(other) => {
                let less = code.value(Type::I32, Op::Compare(Cond::Ult, rounds, other));
                code.value(Type::I64, Op::Select(less, rounds, other))
            }
        });
    }
    // A chain has a condition.
    least.unwrap_or_else(|| code.constant(Type::I64, 0))
}

/// Number of rounds for which `value cond limit` holds, or one less: the last one may be left to
/// the loop.
fn rounds(code: &mut Assembler<'_>, condition: &Condition, step: i64, first: &[Value]) -> Value {
    let signed = matches!(condition.cond, Cond::Slt | Cond::Sle);
    let start = start(code, condition.value, first, condition.ty);
    let limit = match &condition.limit {
        Limit::Value(value) => *value,
        Limit::Op(op) => code.value(condition.ty, op.clone()),
    };
    let holds = code.value(Type::I32, Op::Compare(condition.cond, start, limit));
    let [start, limit] = [start, limit].map(|value| match condition.ty {
        Type::I64 => value,
        Type::I32 if signed => code.value(Type::I64, Op::Unary(UnaryOp::Sext, value)),
        Type::I32 => code.zext(value),
    });
    let mut distance = code.binary(BinaryOp::Sub, limit, start);
    // Also for 32-bit values that have wrapped; they are never compared with wider limits.
    if condition.cond == Cond::Ne && condition.value.bits == Type::I32.bits() {
        distance = code.binary_const(BinaryOp::And, distance, u32::MAX.into());
    }
    let rounds = match step.trailing_zeros() {
        0 => distance,
        bits => code.binary_const(BinaryOp::LShr, distance, bits.into()),
    };
    let none = code.constant(Type::I64, 0);
    code.value(Type::I64, Op::Select(holds, rounds, none))
}

/// The compared value in the first round.
fn start(code: &mut Assembler<'_>, of: Affine, first: &[Value], ty: Type) -> Value {
    let mut value = first[of.param];
    if of.bits == 32 {
        value = code.resized(value, Type::I32);
    }
    if of.offset != 0 {
        value = code.binary_const(BinaryOp::Add, value, of.offset as u64);
    }
    if let Some(base) = of.base {
        value = code.binary(BinaryOp::Add, value, base);
    }
    code.resized(value, ty)
}
