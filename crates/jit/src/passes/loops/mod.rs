//! Loops with a computable number of rounds: at least this number is done in front of the loop.
//!
//! `for (i = 0; i < n; i++) { if (p + 2 > end) break; sum += *p++; }` changes pointer, counter and
//! sum. In front of such a loop, the rounds that no exit can cut short are done without tests. If
//! they only sum numbers up, they are done at once: pointers and counters advance by a multiple,
//! and sums grow by the result of a function of the runtime. Else they are done by a copy of the
//! loop with a known number of rounds. The loop stays and does the rest, so that its end need not
//! be known.

mod chain;
mod trips;

use super::Context;
use super::assemble::Assembler;
use super::copy::Copy;
use crate::trust::Trust;
use crate::xir::{
    Arg, BinaryOp, Block, Cond, Dominators, Function, Jump, Op, RuntimeFunction, Terminator, Type,
    UnaryOp, Value, Width,
};
use chain::{Chain, Change, Sum};

/// Smallest number of rounds that are done in front; fewer are left to the loop.
const ROUNDS_MIN: u64 = 8;
/// Largest number of instructions of a round that is copied.
const REPEATED_MAX: usize = 100;

pub(super) fn count_rounds(function: &mut Function, context: Context<'_>) {
    if context.trust == Trust::Guest {
        // A run's time is counted in rounds, its accesses are checked one by one, and checks are
        // cheap behind the program's own.
        return;
    }
    let dominators = Dominators::new(function);
    let chains = Chain::find_all(function, &dominators);
    for chain in chains {
        if chain.is_sum || chain.size(function) <= REPEATED_MAX {
            foresee(function, &dominators, &chain);
        }
    }
}

/// Writes the code in front of a loop.
fn foresee(function: &mut Function, dominators: &Dominators, chain: &Chain) {
    let head = chain.blocks[0];
    let origin = chain.origin;
    let [front, bulk] = [function.add_block(), function.add_block()];
    let types: Vec<Type> =
        function.block(head).params.iter().map(|&param| function.ty(param)).collect();
    let first: Vec<Value> = types.iter().map(|&ty| function.add_param(front, ty)).collect();
    for &pred in dominators.predecessors(head) {
        if !chain.blocks.contains(&pred) {
            let jumps = function.block_mut(pred).end.jumps_mut();
            jumps.filter(|jump| jump.target == head).for_each(|jump| jump.target = front);
        }
    }
    let mut code = Assembler::new(function, origin);
    let rounds = trips::at_least(&mut code, chain, &first);
    let least = code.constant(Type::I64, ROUNDS_MIN);
    let many = code.value(Type::I32, Op::Compare(Cond::Uge, rounds, least));
    let insts = code.insts;
    let data = function.block_mut(front);
    data.insts = insts;
    let on = Jump { target: bulk, args: vec![] };
    data.end = Terminator::Branch(many, on, Jump { target: head, args: first.clone() });

    if chain.is_sum {
        sum_at_once(function, chain, bulk, rounds, &first);
    } else {
        repeat(function, chain, bulk, rounds, first);
    }
}

/// Writes the combined effect of all rounds.
fn sum_at_once(
    function: &mut Function,
    chain: &Chain,
    bulk: Block,
    rounds: Value,
    first: &[Value],
) {
    let mut code = Assembler::new(function, chain.origin);
    let changes = chain.changes.iter().zip(first);
    let args = changes.map(|(change, &value)| code.changed(change, value, rounds, first)).collect();
    let insts = code.insts;
    let data = function.block_mut(bulk);
    data.insts = insts;
    data.end = Terminator::Jump(Jump { target: chain.blocks[0], args });
}

/// Writes a loop of this number of rounds, in one block.
fn repeat(function: &mut Function, chain: &Chain, bulk: Block, rounds: Value, first: Vec<Value>) {
    let head = chain.blocks[0];
    let from = function.clone();
    let mut copy = Copy::new(function, &from, &chain.blocks);
    let once = copy.block(head);
    for &block in &chain.blocks {
        copy.insts(block, once, |_| ());
    }
    let back: Vec<Value> = chain.back.iter().map(|&value| copy.value(value)).collect();
    let left = function.add_param(once, Type::I64);
    let args = first.into_iter().chain([rounds]).collect();
    function.block_mut(bulk).end = Terminator::Jump(Jump { target: once, args });

    let mut code = Assembler::new(function, chain.origin);
    let then = code.binary_const(BinaryOp::Sub, left, 1);
    let zero = code.constant(Type::I64, 0);
    let more = code.value(Type::I32, Op::Compare(Cond::Ne, then, zero));
    let insts = code.insts;
    let again = Jump { target: once, args: back.iter().copied().chain([then]).collect() };
    let rest = Jump { target: head, args: back };
    let data = function.block_mut(once);
    data.insts.extend(insts);
    data.end = Terminator::Branch(more, again, rest);
    function.counted.push(once);
}

impl Assembler<'_> {
    /// A value after this number of rounds.
    fn changed(&mut self, change: &Change, value: Value, rounds: Value, first: &[Value]) -> Value {
        match change {
            Change::None => value,
            Change::Step { step, bits } => {
                let by = self.binary_const(BinaryOp::Mul, rounds, *step as u64);
                self.grown(value, by, *bits)
            }
            Change::Sum(sum) => {
                let by = self.sum(sum, rounds, first);
                self.grown(value, by, sum.bits)
            }
            // A loop with such a change is never a sum.
            Change::Other => value,
        }
    }

    /// `value + by`, in this number of bits.
    fn grown(&mut self, value: Value, by: Value, bits: u32) -> Value {
        let ty = self.function.ty(value);
        if bits == ty.bits() {
            let by = self.resized(by, ty);
            return self.binary(BinaryOp::Add, value, by);
        }
        let [value, by] = [value, by].map(|value| self.resized(value, Type::I32));
        let sum = self.binary(BinaryOp::Add, value, by);
        self.value(ty, Op::Unary(UnaryOp::Zext, sum))
    }

    fn sum(&mut self, sum: &Sum, rounds: Value, first: &[Value]) -> Value {
        let offset = sum.address.offset.wrapping_add(i64::from(sum.offset));
        let mut address = self.binary_const(BinaryOp::Add, first[sum.address.param], offset as u64);
        if let Some(base) = sum.address.base {
            address = self.binary(BinaryOp::Add, address, base);
        }
        let function = RuntimeFunction::Sum { wide: sum.width == Width::W32, swapped: sum.swapped };
        let args = vec![Arg::Value(address), Arg::Value(rounds)];
        self.value(Type::I64, Op::CallRuntime { function, args })
    }
}

/// Whether a block is in a loop.
fn is_in(blocks: &[Block], block: Block) -> bool {
    blocks.contains(&block)
}
