//! Straightens control flow: merges a block into its only predecessor, empties unreachable ones.

use super::Context;
use super::replace::Replacements;
use crate::xir::{Block, Dominators, Function, Jump, Terminator, Value};

pub(super) fn simplify(function: &mut Function, _: Context<'_>) {
    skip_empty_blocks(function);
    let dominators = Dominators::new(function);
    for block in function.block_ids() {
        if !dominators.is_reachable(block) {
            let data = function.block_mut(block);
            data.params.clear();
            data.insts.clear();
            data.end = Terminator::Unreachable;
        }
    }
    merge_chains(function, &dominators);
}

/// Redirects a jump to a block that only jumps on. Such a block stays if its parameters are used
/// behind it, too.
fn skip_empty_blocks(function: &mut Function) {
    let used = used_elsewhere(function);
    let is_skipped = |block: Block| {
        let data = function.block(block);
        let next = onwards(function, block).filter(|next| next.target != block)?;
        let is_passed_on = data.params.iter().all(|param| !used[param.0 as usize]);
        is_passed_on.then(|| (data.params.clone(), next.clone()))
    };
    let forward: Vec<Option<(Vec<Value>, Jump)>> = function.block_ids().map(is_skipped).collect();
    for block in function.block_ids() {
        for jump in function.block_mut(block).end.jumps_mut() {
            // One step only: chains collapse over several runs of this pass, and cycles end.
            let Some((params, next)) = &forward[jump.target.0 as usize] else { continue };
            // Unreachable jumps may have a wrong number of arguments.
            if jump.args.len() == params.len() {
                let given = |arg: &Value| {
                    let index = params.iter().position(|param| param == arg);
                    index.map_or(*arg, |index| jump.args[index])
                };
                let args = next.args.iter().map(given).collect();
                *jump = Jump { target: next.target, args };
            }
        }
    }
}

/// The jump of a block that has no instructions.
fn onwards(function: &Function, block: Block) -> Option<&Jump> {
    let data = function.block(block);
    match &data.end {
        Terminator::Jump(jump) if data.insts.is_empty() => Some(jump),
        _ => None,
    }
}

/// Values that are used otherwise than by blocks that only pass on their parameters.
fn used_elsewhere(function: &Function) -> Vec<bool> {
    let mut used = vec![false; function.values.len()];
    for block in function.block_ids() {
        let data = function.block(block);
        for &inst in &data.insts {
            function.inst(inst).op.for_each_operand(|value| used[value.0 as usize] = true);
        }
        let passes_on = onwards(function, block).is_some();
        data.end.for_each_operand(|value| {
            if !passes_on || !data.params.contains(&value) {
                used[value.0 as usize] = true;
            }
        });
    }
    used
}

fn merge_chains(function: &mut Function, dominators: &Dominators) {
    let mut replacements = Replacements::new(function);
    for &block in dominators.order() {
        while let Some((next, args)) = only_successor(function, dominators, block) {
            let data = std::mem::replace(
                function.block_mut(next),
                crate::xir::BlockData {
                    params: vec![],
                    insts: vec![],
                    end: Terminator::Unreachable,
                },
            );
            for (param, arg) in data.params.iter().zip(args) {
                replacements.set(*param, arg);
            }
            let merged = function.block_mut(block);
            merged.insts.extend(data.insts);
            merged.end = data.end;
        }
    }
    replacements.apply(function);
}

/// The block that `block` always jumps to, if it has no other predecessor.
fn only_successor(
    function: &Function,
    dominators: &Dominators,
    block: Block,
) -> Option<(Block, Vec<Value>)> {
    match &function.block(block).end {
        Terminator::Jump(jump)
            if jump.target != Function::ENTRY
                && jump.target != block
                && dominators.predecessors(jump.target).len() == 1 =>
        {
            Some((jump.target, jump.args.clone()))
        }
        _ => None,
    }
}
