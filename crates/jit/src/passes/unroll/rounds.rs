//! Following a loop's rounds with what is constant in them.

use std::collections::HashMap;

use super::super::definition;
use super::super::fold::constant;
use super::{Body, Shape};
use crate::xir::{Block, Function, Inst, Jump, Op, Terminator, Value};

/// What a call counts for: it is code of its own, or becomes some.
const CALL_SIZE: usize = 10;

/// What the parameters of a block are, by number; `None` where that is not known.
type Known = Vec<Option<u64>>;

pub(super) struct Rounds<'a> {
    function: &'a Function,
    definitions: &'a [Option<Inst>],
    body: &'a Body,
    /// What the next round starts with.
    start: Known,
    /// Constants of this round.
    values: HashMap<Value, u64>,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(function: &'a Function, shape: &'a Shape, body: &'a Body) -> Self {
        let (start, values) = (Known::new(), HashMap::new());
        let mut rounds = Rounds { function, definitions: &shape.definitions, body, start, values };
        let head = body.blocks[0];
        let outside = shape.dominators.predecessors(head).iter().filter(|&&pred| !body.has(pred));
        let jumps = outside.flat_map(|&pred| function.block(pred).end.jumps());
        let into = jumps.filter(|jump| jump.target == head).map(|jump| rounds.args(jump));
        rounds.start = into.reduce(agreed).unwrap_or_default();
        rounds
    }

    /// The next round: how many instructions it leaves to do, and whether another may follow.
    pub(super) fn follow(&mut self) -> (usize, bool) {
        self.values.clear();
        let head = self.body.blocks[0];
        let mut reached: HashMap<Block, Known> = HashMap::from([(head, self.start.clone())]);
        let mut back: Option<Known> = None;
        let mut size = 0;
        for &block in &self.body.blocks {
            let Some(params) = reached.remove(&block) else { continue };
            size += self.block(block, &params);
            for jump in self.taken(&self.function.block(block).end) {
                let args = self.args(jump);
                if jump.target == head {
                    back = Some(merged(back, args));
                } else if self.body.has(jump.target) {
                    let before = reached.remove(&jump.target);
                    reached.insert(jump.target, merged(before, args));
                }
            }
        }
        let comes_back = back.is_some();
        self.start = back.unwrap_or_default();
        (size, comes_back)
    }

    /// Evaluates a block; gives how many of its instructions are left.
    fn block(&mut self, block: Block, params: &Known) -> usize {
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
        // A branch that is known is none.
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

    /// What a value is in this round.
    fn constant(&self, value: Value) -> Option<u64> {
        // What is known of other rounds was forgotten; outside of the loop only constants are.
        self.values.get(&value).copied().or_else(|| {
            match definition(self.function, self.definitions, value)? {
                Op::Const(constant) => Some(*constant),
                _ => None,
            }
        })
    }

    fn args(&self, jump: &Jump) -> Known {
        jump.args.iter().map(|&arg| self.constant(arg)).collect()
    }

    /// The jumps that a block's end may take in this round.
    fn taken<'t>(&self, end: &'t Terminator) -> impl Iterator<Item = &'t Jump> + use<'t> {
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

fn merged(before: Option<Known>, now: Known) -> Known {
    match before {
        Some(before) => agreed(before, now),
        None => now,
    }
}

/// What is known either way, and the same.
fn agreed(a: Known, b: Known) -> Known {
    a.into_iter().zip(b).map(|(a, b)| a.filter(|_| a == b)).collect()
}
