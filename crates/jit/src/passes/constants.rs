//! Evaluation of code with known constants.

use std::collections::HashMap;

use super::definition;
use super::fold::constant;
use crate::xir::{Block, Function, Inst, Jump, Op, Terminator, Value};

/// Size of a call: it is code of its own, or is inlined.
const CALL_SIZE: usize = 10;

/// Constants of a block's parameters, by index; `None` if unknown.
pub(super) type Known = Vec<Option<u64>>;

/// Values that are known on the path that is followed.
pub(super) struct Constants<'a> {
    function: &'a Function,
    definitions: &'a [Option<Inst>],
    values: HashMap<Value, u64>,
}

impl<'a> Constants<'a> {
    pub(super) fn new(function: &'a Function, definitions: &'a [Option<Inst>]) -> Self {
        Constants { function, definitions, values: HashMap::new() }
    }

    /// Forgets all values except those that are constant on every path.
    pub(super) fn clear(&mut self) {
        self.values.clear();
    }

    /// Evaluates a block; gives the number of its instructions that remain.
    pub(super) fn block(&mut self, block: Block, params: &Known) -> usize {
        let data = self.function.block(block);
        for (&param, known) in data.params.iter().zip(params) {
            if let Some(known) = known {
                self.values.insert(param, *known);
            }
        }
        let mut size = 0;
        for &inst in &data.insts {
            let data = self.function.inst(inst);
            let known =
                data.result.and_then(|result| Some((result, self.evaluate(result, &data.op)?)));
            match known {
                Some((result, value)) => {
                    self.values.insert(result, value);
                }
                None => size += size_of(&data.op),
            }
        }
        // A branch whose outcome is known does not count.
        size + usize::from(self.taken(&data.end).nth(1).is_some())
    }

    fn evaluate(&self, result: Value, op: &Op) -> Option<u64> {
        let ty = self.function.ty(result);
        match *op {
            Op::Const(value) => Some(value),
            Op::Unary(op, a) => {
                Some(constant::unary(op, self.function.ty(a), ty, self.constant(a)?))
            }
            Op::Binary(op, a, b) => {
                Some(constant::binary(op, ty, self.constant(a)?, self.constant(b)?))
            }
            Op::Compare(cond, a, b) => {
                let (x, y) = (self.constant(a)?, self.constant(b)?);
                Some(constant::compare(cond, self.function.ty(a), x, y).into())
            }
            Op::Select(condition, a, b) => {
                self.constant(if self.constant(condition)? != 0 { a } else { b })
            }
            _ => None,
        }
    }

    /// The constant of a value on this path.
    fn constant(&self, value: Value) -> Option<u64> {
        self.values.get(&value).copied().or_else(|| {
            match definition(self.function, self.definitions, value)? {
                Op::Const(constant) => Some(*constant),
                _ => None,
            }
        })
    }

    pub(super) fn args(&self, jump: &Jump) -> Known {
        jump.args.iter().map(|&arg| self.constant(arg)).collect()
    }

    /// The jumps that a block's terminator may take.
    pub(super) fn taken<'t>(
        &self,
        end: &'t Terminator,
    ) -> impl Iterator<Item = &'t Jump> + use<'t> {
        let skipped = match end {
            Terminator::Branch(condition, ..) => {
                self.constant(*condition).map(|condition| usize::from(condition != 0))
            }
            _ => None,
        };
        end.jumps()
            .enumerate()
            .filter(move |(index, _)| Some(*index) != skipped)
            .map(|(_, jump)| jump)
    }
}

fn size_of(op: &Op) -> usize {
    match op {
        Op::MapLookup { .. }
        | Op::CallHelper { .. }
        | Op::CallKfunc { .. }
        | Op::CallRuntime { .. }
        | Op::Call { .. } => CALL_SIZE,
        _ => 1,
    }
}

/// Constants on both paths, if there was one before.
pub(super) fn merged(before: Option<Known>, now: Known) -> Known {
    match before {
        Some(before) => agreed(before, now),
        None => now,
    }
}

/// Constants that are known and equal on both paths.
pub(super) fn agreed(a: Known, b: Known) -> Known {
    a.into_iter().zip(b).map(|(a, b)| a.filter(|_| a == b)).collect()
}
