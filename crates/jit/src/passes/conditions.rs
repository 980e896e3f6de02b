//! Turns conditions that were stored as numbers into conditions again.
//!
//! BPF has no instruction for the result of a comparison: clang loads 1, compares and jumps over a
//! load of 0, combines the results with `and` and `or`, and branches on the combination. The choice
//! between 1 and 0 is the comparison itself ([`from_numbers`]), and a branch on several of them
//! becomes several branches ([`split`]), which machines fuse with their comparisons.

use super::{Context, definition, definitions, emit};
use crate::xir::{
    BinaryOp, Block, Cond, Dominators, Function, Inst, Jump, Op, Terminator, Type, UnaryOp, Value,
};

/// Largest number of operations between a branch and the comparisons it depends on.
const DEPTH_MAX: u32 = 8;

/// Largest growth of the number of blocks: conditions may share parts.
const GROWTH_MAX: usize = 4;

/// Replaces `c ? 1 : 0` by `c != 0`.
pub(super) fn from_numbers(function: &mut Function, context: Context<'_>) {
    emit::rewrite(function, context, |emitter, op| {
        let Op::Select(condition, yes, no) = *op else { return None };
        let number = |value| match emitter.definition(value) {
            Some(Op::Const(number)) => Some(*number),
            _ => None,
        };
        let cond = match (number(yes)?, number(no)?) {
            (1, 0) => Cond::Ne,
            (0, 1) => Cond::Eq,
            _ => return None,
        };
        let ty = emitter.function.ty(yes);
        let condition_ty = emitter.function.ty(condition);
        let zero = emitter.constant(condition_ty, 0);
        let compare = Op::Compare(cond, condition, zero);
        Some(match ty {
            Type::I32 => compare,
            Type::I64 => Op::Unary(UnaryOp::Zext, emitter.value(Type::I32, compare)),
        })
    });
}

/// Replaces a branch on `a | b` or `a & b` of two conditions by a branch on each.
pub(super) fn split(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    let mut left: Vec<Block> = dominators.order().to_vec();
    let blocks_max = function.blocks.len() * GROWTH_MAX;
    while let Some(block) = left.pop().filter(|_| function.blocks.len() < blocks_max) {
        let Some(parts) = (Finder { function, definitions: &definitions }).parts(block) else {
            continue;
        };
        let second = function.add_block();
        let to_second = Jump { target: second, args: vec![] };
        let first = match parts.either {
            true => Terminator::Branch(parts.first, parts.yes.clone(), to_second),
            false => Terminator::Branch(parts.first, to_second, parts.no.clone()),
        };
        function.block_mut(block).end = first;
        function.block_mut(second).end = Terminator::Branch(parts.second, parts.yes, parts.no);
        left.extend([block, second]);
    }
}

/// The two branches that replace one.
struct Parts {
    first: Value,
    second: Value,
    /// Whether one of the conditions is enough.
    either: bool,
    yes: Jump,
    no: Jump,
}

struct Finder<'a> {
    function: &'a Function,
    definitions: &'a [Option<Inst>],
}

impl Finder<'_> {
    fn parts(&self, block: Block) -> Option<Parts> {
        let Terminator::Branch(condition, yes, no) = &self.function.block(block).end else {
            return None;
        };
        if yes.target == no.target {
            return None;
        }
        let (value, negated) = self.stripped(*condition);
        let (op, first, second) = match *self.op(value)? {
            Op::Binary(op @ (BinaryOp::Or | BinaryOp::And), a, b) => (op, a, b),
            _ => return None,
        };
        if !self.is_condition(first, DEPTH_MAX) || !self.is_condition(second, DEPTH_MAX) {
            return None;
        }
        let (yes, no) = if negated { (no, yes) } else { (yes, no) };
        let (yes, no) = (yes.clone(), no.clone());
        Some(Parts { first, second, either: op == BinaryOp::Or, yes, no })
    }

    /// The value that a condition tests, and whether it tests for 0.
    fn stripped(&self, mut value: Value) -> (Value, bool) {
        let mut negated = false;
        for _ in 0..DEPTH_MAX {
            value = match self.op(value) {
                Some(&Op::Compare(cond @ (Cond::Eq | Cond::Ne), x, y))
                    if self.is_zero(y) && self.is_condition(x, DEPTH_MAX) =>
                {
                    negated ^= cond == Cond::Eq;
                    x
                }
                Some(&Op::Unary(UnaryOp::Zext, x)) => x,
                Some(&Op::Unary(UnaryOp::Trunc, x)) if self.is_condition(x, DEPTH_MAX) => x,
                _ => break,
            };
        }
        (value, negated)
    }

    /// Whether a value is 0 or 1, as the result of one or several comparisons.
    fn is_condition(&self, value: Value, depth: u32) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        match self.op(value) {
            Some(Op::Compare(..)) => true,
            Some(&Op::Unary(UnaryOp::Zext | UnaryOp::Trunc, x)) => self.is_condition(x, depth),
            Some(&Op::Binary(BinaryOp::And | BinaryOp::Or, x, y)) => {
                self.is_condition(x, depth) && self.is_condition(y, depth)
            }
            _ => false,
        }
    }

    fn is_zero(&self, value: Value) -> bool {
        matches!(self.op(value), Some(Op::Const(0)))
    }

    fn op(&self, value: Value) -> Option<&Op> {
        definition(self.function, self.definitions, value)
    }
}
