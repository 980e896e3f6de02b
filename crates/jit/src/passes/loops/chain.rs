//! Loops that are one chain of blocks, each of which continues or leaves, and the changes of their
//! values.

use super::super::{definition, definitions};
use super::is_in;
use crate::xir::{
    BinaryOp, Block, Cond, Dominators, Function, Inst, Op, Place, Terminator, Type, UnaryOp, Value,
    Width,
};

/// Largest number of blocks of a loop.
const BLOCKS_MAX: usize = 6;

/// A loop without calls, whose exits depend on counters only.
pub(super) struct Chain {
    /// Blocks in order; the last one jumps to the first.
    pub(super) blocks: Vec<Block>,
    /// Arguments of the jump from the last block to the first.
    pub(super) back: Vec<Value>,
    /// Whether there are only counters and sums, and no stores.
    pub(super) is_sum: bool,
    /// Change of each parameter of the first block in a round.
    pub(super) changes: Vec<Change>,
    /// Conditions that must hold for a round to be done.
    pub(super) conditions: Vec<Condition>,
    /// BPF instruction of the loop's start.
    pub(super) origin: u32,
}

/// Change of a value in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// Adds a constant, in this number of bits.
    Step {
        step: i64,
        bits: u32,
    },
    Sum(Sum),
    /// Any other change.
    Other,
}

/// Adds a loaded number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) address: Affine,
    pub(super) offset: i32,
    pub(super) width: Width,
    /// Whether its bytes are reversed before.
    pub(super) swapped: bool,
    /// Number of bits of the addition.
    pub(super) bits: u32,
}

/// A parameter plus a constant, plus the low bits of another value from outside of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Affine {
    pub(super) param: usize,
    pub(super) offset: i64,
    pub(super) base: Option<Value>,
    pub(super) bits: u32,
}

/// A condition `value cond limit`, on values of one type.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    pub(super) cond: Cond,
    pub(super) value: Affine,
    pub(super) limit: Limit,
    pub(super) ty: Type,
}

/// A limit that is the same in each round.
#[derive(Debug, Clone)]
pub(super) enum Limit {
    /// A value from outside of the loop.
    Value(Value),
    /// A computation in the loop that has no operands.
    Op(Op),
}

impl Chain {
    /// Number of instructions of a round.
    pub(super) fn size(&self, function: &Function) -> usize {
        ops(function, &self.blocks).count()
    }

    /// The chains of a function.
    pub(super) fn find_all(function: &Function, dominators: &Dominators) -> Vec<Chain> {
        let definitions = definitions(function, dominators);
        let heads = dominators.order().iter().filter_map(|&head| {
            let back = |&&pred: &&Block| dominators.dominates(head, pred);
            let latch = dominators.predecessors(head).iter().find(back)?;
            blocks(function, head, *latch)
        });
        heads
            .filter_map(|blocks| Finder { function, definitions: &definitions, blocks }.chain())
            .collect()
    }
}

/// The blocks from a loop's head to its end, if each leads to the next one only.
fn blocks(function: &Function, head: Block, latch: Block) -> Option<Vec<Block>> {
    let mut blocks = vec![head];
    // Forwards from the head: the successor without parameters that leads to the end.
    while *blocks.last()? != latch {
        let at = *blocks.last()?;
        let next = function.block(at).end.jumps().map(|jump| jump.target).find(|&target| {
            function.block(target).params.is_empty() && reaches(function, target, latch, &blocks)
        })?;
        blocks.push(next);
        if blocks.len() > BLOCKS_MAX {
            return None;
        }
    }
    let is_plain = |op: &Op| {
        let is_load =
            matches!(op, Op::Load { probe: false, .. } | Op::StackLoad(_) | Op::CtxLoad(_));
        op.is_pure() || is_load || is_store(op)
    };
    let is_quiet = ops(function, &blocks).all(is_plain);
    is_quiet.then_some(blocks)
}

fn ops<'f>(function: &'f Function, blocks: &'f [Block]) -> impl Iterator<Item = &'f Op> {
    let insts = blocks.iter().flat_map(|&block| &function.block(block).insts);
    insts.map(|&inst| &function.inst(inst).op)
}

fn is_store(op: &Op) -> bool {
    matches!(op, Op::Store { .. } | Op::StackStore(..))
}

/// Whether `latch` is a few straight steps behind a block.
fn reaches(function: &Function, block: Block, latch: Block, seen: &[Block]) -> bool {
    if block == latch {
        return true;
    }
    if seen.len() >= BLOCKS_MAX || is_in(seen, block) {
        return false;
    }
    let mut seen = seen.to_vec();
    seen.push(block);
    function.block(block).end.jumps().any(|jump| reaches(function, jump.target, latch, &seen))
}

struct Finder<'a> {
    function: &'a Function,
    definitions: &'a [Option<Inst>],
    blocks: Vec<Block>,
}

impl Finder<'_> {
    fn chain(self) -> Option<Chain> {
        let head = self.blocks[0];
        let latch = *self.blocks.last()?;
        let mut back = self.function.block(latch).end.jumps().filter(|jump| jump.target == head);
        let (Some(back), None) = (back.next(), back.next()) else { return None };
        let back = back.args.clone();
        let changes: Vec<Change> =
            back.iter().enumerate().map(|(index, &arg)| self.change(index, arg)).collect();
        let conditions = self.conditions(&changes)?;
        let first = *self.function.block(head).insts.first()?;
        let origin = self.function.inst(first).origin;
        let is_sum = self.is_sum(&changes);
        Some(Chain { blocks: self.blocks, back, is_sum, changes, conditions, origin })
    }

    fn is_sum(&self, changes: &[Change]) -> bool {
        let is_walked = |sum: &Sum| {
            let step = Change::Step { step: sum.width.bytes().into(), bits: 64 };
            sum.address.bits == 64 && changes[sum.address.param] == step
        };
        let is_foreseen = |change: &Change| match change {
            Change::None | Change::Step { .. } => true,
            Change::Sum(sum) => is_walked(sum),
            Change::Other => false,
        };
        changes.iter().any(|change| matches!(change, Change::Sum(_)))
            && changes.iter().all(is_foreseen)
            && !ops(self.function, &self.blocks).any(is_store)
    }

    fn op(&self, value: Value) -> Option<&Op> {
        definition(self.function, self.definitions, value)
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.op(value)? {
            Op::Const(constant) => Some(*constant),
            _ => None,
        }
    }

    fn params(&self) -> &[Value] {
        &self.function.block(self.blocks[0]).params
    }

    /// Whether a value is defined in the loop.
    fn is_inside(&self, value: Value) -> bool {
        let mut defined = self.blocks.iter().flat_map(|&block| self.function.defined_in(block));
        defined.any(|defined| defined == value)
    }

    fn change(&self, index: usize, arg: Value) -> Change {
        let param = self.params()[index];
        if arg == param {
            return Change::None;
        }
        match self.affine(arg) {
            Some(Affine { param, offset: step, base: None, bits }) if param == index => {
                Change::Step { step, bits }
            }
            _ => self.sum(param, arg).map_or(Change::Other, Change::Sum),
        }
    }

    /// The sum `param + load`, or the same in 32 bits.
    fn sum(&self, param: Value, arg: Value) -> Option<Sum> {
        let ty = self.function.ty(param);
        let (a, b, bits) = match self.op(arg)? {
            Op::Binary(BinaryOp::Add, a, b) => (*a, *b, ty.bits()),
            Op::Unary(UnaryOp::Zext, inner) => match self.op(*inner)? {
                Op::Binary(BinaryOp::Add, a, b) => (*a, *b, 32),
                _ => return None,
            },
            _ => return None,
        };
        let is_sum = |value: Value| {
            value == param
                || (bits < ty.bits()
                    && matches!(self.op(value), Some(Op::Unary(UnaryOp::Trunc, v)) if *v == param))
        };
        let added = if is_sum(a) { b } else { a };
        (is_sum(a) != is_sum(b)).then_some(())?;
        let (place, swapped) = self.loaded(added)?;
        let address = self.affine(place.base)?;
        Some(Sum { address, offset: place.offset, width: place.width, swapped, bits })
    }

    /// Place that a value was loaded from in this round, and whether its bytes are reversed.
    fn loaded(&self, value: Value) -> Option<(Place, bool)> {
        match *self.op(value)? {
            Op::Unary(UnaryOp::Zext, inner) => self.loaded(inner),
            Op::Unary(op @ (UnaryOp::Bswap16 | UnaryOp::Bswap32), inner) => {
                let (place, swapped) = self.loaded(inner)?;
                let width = if op == UnaryOp::Bswap16 { Width::W16 } else { Width::W32 };
                (place.width == width).then_some((place, !swapped))
            }
            Op::Load { place, probe: false }
                if self.is_inside(value) && matches!(place.width, Width::W16 | Width::W32) =>
            {
                Some((place, false))
            }
            _ => None,
        }
    }

    fn affine(&self, value: Value) -> Option<Affine> {
        if let Some(param) = self.params().iter().position(|&param| param == value) {
            let bits = self.function.ty(value).bits();
            return Some(Affine { param, offset: 0, base: None, bits });
        }
        match *self.op(value)? {
            Op::Binary(BinaryOp::Add, a, b) => self.sum_of(value, a, b),
            Op::Unary(UnaryOp::Trunc, inner) => {
                Some(Affine { bits: 32, ..self.affine(inner)? }).filter(|of| of.base.is_none())
            }
            Op::Unary(UnaryOp::Zext, inner) => self.affine(inner),
            Op::Binary(BinaryOp::And, inner, mask) if self.constant(mask) == Some(LOW) => {
                Some(Affine { bits: 32, ..self.affine(inner)? }).filter(|of| of.base.is_none())
            }
            _ => None,
        }
    }

    fn sum_of(&self, value: Value, a: Value, b: Value) -> Option<Affine> {
        let ty = self.function.ty(value);
        let (of, other) = match self.affine(a) {
            Some(of) => (of, b),
            None => (self.affine(b)?, a),
        };
        // With fewer bits than the addition's, its wrap would be unknown.
        if of.bits != ty.bits() {
            return None;
        }
        match self.constant(other) {
            Some(constant) => {
                let signed = if ty == Type::I32 {
                    i64::from(constant as u32 as i32)
                } else {
                    constant as i64
                };
                Some(Affine { offset: of.offset.checked_add(signed)?, ..of })
            }
            None if of.base.is_none() && ty == Type::I64 && !self.is_inside(other) => {
                Some(Affine { base: Some(other), ..of })
            }
            None => None,
        }
    }

    fn conditions(&self, changes: &[Change]) -> Option<Vec<Condition>> {
        let mut conditions = Vec::new();
        for (index, &block) in self.blocks.iter().enumerate() {
            let next = self.blocks.get(index + 1).copied().unwrap_or(self.blocks[0]);
            match &self.function.block(block).end {
                Terminator::Jump(jump) if jump.target == next => {}
                Terminator::Branch(condition, yes, no) if yes.target != no.target => {
                    let stays = yes.target == next;
                    if is_in(&self.blocks, if stays { no.target } else { yes.target }) {
                        return None;
                    }
                    conditions.push(self.condition(*condition, stays, changes)?);
                }
                _ => return None,
            }
        }
        (!conditions.is_empty()).then_some(conditions)
    }

    fn condition(&self, value: Value, holds: bool, changes: &[Change]) -> Option<Condition> {
        let Op::Compare(cond, a, b) = *self.op(value)? else { return None };
        let cond = if holds { cond } else { cond.negated() };
        let ty = self.function.ty(a);
        let (of, limit, cond) = match (self.affine(a), self.limit(b)) {
            (Some(of), Some(limit)) => (of, limit, cond),
            _ => (self.affine(b)?, self.limit(a)?, swapped(cond)),
        };
        let Change::Step { step, bits } = changes[of.param] else { return None };
        let forward = step > 0 && (step as u64).is_power_of_two();
        let counts = match cond {
            Cond::Ult | Cond::Ule => {
                let plain = of.offset == 0 && of.base.is_none();
                forward && (bits >= of.bits || plain)
            }
            // The addition must not wrap into the sign.
            Cond::Slt | Cond::Sle => forward && of.bits == ty.bits() && bits >= of.bits,
            Cond::Ne => step == 1 && bits >= of.bits,
            _ => false,
        };
        counts.then_some(Condition { cond, value: of, limit, ty })
    }

    fn limit(&self, value: Value) -> Option<Limit> {
        if !self.is_inside(value) {
            return Some(Limit::Value(value));
        }
        match self.op(value)? {
            op @ (Op::Const(_) | Op::CtxLoad(_)) => Some(Limit::Op(op.clone())),
            _ => None,
        }
    }
}

/// The comparison with its operands swapped.
fn swapped(cond: Cond) -> Cond {
    use Cond::{Eq, Ne, Sge, Sgt, Sle, Slt, Uge, Ugt, Ule, Ult};
    match cond {
        Eq => Eq,
        Ne => Ne,
        Ult => Ugt,
        Ule => Uge,
        Ugt => Ult,
        Uge => Ule,
        Slt => Sgt,
        Sle => Sge,
        Sgt => Slt,
        Sge => Sle,
    }
}

/// The low 32 bits.
const LOW: u64 = 0xffff_ffff;
