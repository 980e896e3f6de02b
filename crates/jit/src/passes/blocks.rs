//! Straightens control flow: merges a block into its only predecessor, empties unreachable ones.

use super::Context;
use super::replace::Replacements;
use crate::xir::{Block, Dominators, Function, Jump, Terminator};

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

/// A jump to a block that only jumps on goes there directly. Blocks with parameters stay: their
/// arguments would have to be rewritten.
fn skip_empty_blocks(function: &mut Function) {
    let forward: Vec<Option<Jump>> = function
        .block_ids()
        .map(|block| {
            let data = function.block(block);
            match &data.end {
                Terminator::Jump(jump)
                    if data.insts.is_empty() && data.params.is_empty() && jump.target != block =>
                {
                    Some(jump.clone())
                }
                _ => None,
            }
        })
        .collect();
    for block in function.block_ids() {
        for jump in function.block_mut(block).end.jumps_mut() {
            // One step only: chains collapse over the runs of this pass, and cycles can't trap us.
            if let Some(next) = &forward[jump.target.0 as usize] {
                *jump = next.clone();
            }
        }
    }
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

/// The block that `block` always jumps to, if nothing else does.
fn only_successor(
    function: &Function,
    dominators: &Dominators,
    block: Block,
) -> Option<(Block, Vec<crate::xir::Value>)> {
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
