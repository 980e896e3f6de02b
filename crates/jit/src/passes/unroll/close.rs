//! Passes values out of a loop as arguments of the jumps that leave it: each copy of the loop has
//! other values.

use std::collections::{BTreeMap, BTreeSet};

use super::Body;
use crate::xir::{Block, Dominators, Function, Value};

/// Makes each value that is defined in the loop and used outside a parameter of every block behind
/// the loop that it is live into. The next run of `params` removes redundant ones.
pub(super) fn pass_on(function: &mut Function, dominators: &Dominators, body: &Body) {
    let inside: BTreeSet<Value> =
        body.blocks.iter().flat_map(|&block| function.defined_in(block)).collect();
    let outside: Vec<Block> =
        dominators.order().iter().copied().filter(|&block| !body.has(block)).collect();
    let mut live: BTreeMap<Value, BTreeSet<Block>> = BTreeMap::new();
    for &block in &outside {
        for value in used(function, block).into_iter().filter(|value| inside.contains(value)) {
            reach_back(dominators, body, block, live.entry(value).or_default());
        }
    }
    for (value, blocks) in live {
        let ty = function.ty(value);
        let params: BTreeMap<Block, Value> =
            blocks.iter().map(|&block| (block, function.add_param(block, ty))).collect();
        for (&block, &param) in &params {
            rename(function, block, value, param);
        }
        for &block in outside.iter().chain(&body.blocks) {
            let here = params.get(&block).copied().unwrap_or(value);
            for jump in function.block_mut(block).end.jumps_mut() {
                if params.contains_key(&jump.target) {
                    jump.args.push(here);
                }
            }
        }
    }
}

/// Adds a block and its predecessors, back to the loop.
fn reach_back(dominators: &Dominators, body: &Body, block: Block, live: &mut BTreeSet<Block>) {
    let mut open = vec![block];
    while let Some(block) = open.pop() {
        if !body.has(block) && live.insert(block) {
            open.extend(dominators.predecessors(block));
        }
    }
}

fn used(function: &Function, block: Block) -> Vec<Value> {
    let mut used = Vec::new();
    let data = function.block(block);
    for &inst in &data.insts {
        function.inst(inst).op.for_each_operand(|value| used.push(value));
    }
    data.end.for_each_operand(|value| used.push(value));
    used
}

fn rename(function: &mut Function, block: Block, from: Value, to: Value) {
    let renamed = |value: &mut Value| {
        if *value == from {
            *value = to;
        }
    };
    for index in 0..function.block(block).insts.len() {
        let inst = function.block(block).insts[index];
        function.inst_mut(inst).op.for_each_operand_mut(renamed);
    }
    function.block_mut(block).end.for_each_operand_mut(renamed);
}
