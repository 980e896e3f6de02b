//! The time limit: functions and loops subtract their length from the run's budget.

use super::Writer;
use crate::trust::CALL_COST;
use crate::xir::{Block, Cond, Dominators, Function, Need, Op, Type};

pub(super) fn limit(function: &mut Function, is_entry: bool, budget: u32) {
    let dominators = Dominators::new(function);
    let Some(&entry) = dominators.order().first() else { return };
    for (block, cost) in costs(function, &dominators) {
        let (mut writer, old) = Writer::new(function, block);
        writer.origin = old.first().map_or(0, |&inst| writer.function.inst(inst).origin);
        if is_entry && block == entry {
            // A run begins with the full budget: whether the first part exceeds it is known at
            // compile time.
            let is_loop = dominators.latches(block).next().is_some();
            let left = budget.checked_sub(cost).filter(|_| !is_loop);
            writer.push(None, Op::BudgetSet(left.unwrap_or(budget)));
            if left.is_some() {
                let end = writer.function.block(block).end.clone();
                writer.insts.extend(old);
                writer.finish(end);
                continue;
            }
        }
        let spent = writer.value(Type::I32, Op::BudgetSpend(cost));
        let zero = writer.value(Type::I32, Op::Const(0));
        let fine = writer.value(Type::I32, Op::Compare(Cond::Eq, spent, zero));
        let address = writer.constant(0);
        let end = writer.function.block(block).end.clone();
        writer.guard(fine, address, budget, Need::Time);
        writer.insts.extend(old);
        writer.finish(end);
    }
}

/// Blocks that are charged, and their costs: the function's start for all of it, the start of each
/// loop for one round of it.
fn costs(function: &Function, dominators: &Dominators) -> Vec<(Block, u32)> {
    let length = |block: &Block| {
        let insts = function.block(*block).insts.iter();
        insts.map(|&inst| cost(&function.inst(inst).op)).sum::<u32>() + 1
    };
    let order = dominators.order();
    let mut costs = Vec::new();
    for (index, block) in order.iter().enumerate() {
        let last = dominators.latches(*block).filter_map(|latch| dominators.position(latch)).max();
        // All blocks in between are at least one round: the charge may be too high, never too low.
        let round = last.map(|last| order[index..=last as usize].iter().map(length).sum::<u32>());
        let whole = (index == 0).then(|| order.iter().map(length).sum::<u32>());
        if let Some(cost) = whole.or(round) {
            costs.push((*block, cost));
        }
    }
    costs
}

/// Cost of an instruction. Calls add further costs at run time.
fn cost(op: &Op) -> u32 {
    match op {
        Op::CallHelper { .. }
        | Op::CallKfunc { .. }
        | Op::CallRuntime { .. }
        | Op::MapLookup { .. } => CALL_COST,
        _ => 1,
    }
}
