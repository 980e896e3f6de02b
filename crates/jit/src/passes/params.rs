//! Removes block parameters that always receive the same value.
//!
//! The builder gives each block all its live registers as parameters; this pass makes that form
//! minimal. A parameter whose arguments are one value (or the parameter itself, around a loop) is
//! replaced by that value: it is defined on every path to the block.

use super::Context;
use super::replace::Replacements;
use crate::xir::{Dominators, Function, Value};

pub(super) fn remove_redundant(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let mut replacements = Replacements::new(function);
    let mut changed = true;
    while changed {
        changed = false;
        for &block in dominators.order().iter().skip(1) {
            for index in (0..function.block(block).params.len()).rev() {
                let param = function.block(block).params[index];
                let Some(same) =
                    common_argument(function, &dominators, &replacements, block, index)
                else {
                    continue;
                };
                replacements.set(param, same);
                function.block_mut(block).params.remove(index);
                remove_argument(function, &dominators, block, index);
                changed = true;
            }
        }
    }
    replacements.apply(function);
}

fn common_argument(
    function: &Function,
    dominators: &Dominators,
    replacements: &Replacements,
    block: crate::xir::Block,
    index: usize,
) -> Option<Value> {
    let param = function.block(block).params[index];
    let mut common = None;
    for pred in dominators.predecessors(block) {
        for jump in function.block(*pred).end.jumps().filter(|jump| jump.target == block) {
            let arg = replacements.resolve(jump.args[index]);
            if arg == param || Some(arg) == common {
                continue;
            }
            if common.is_some() {
                return None;
            }
            common = Some(arg);
        }
    }
    common
}

fn remove_argument(
    function: &mut Function,
    dominators: &Dominators,
    block: crate::xir::Block,
    index: usize,
) {
    let mut preds = dominators.predecessors(block).to_vec();
    preds.dedup();
    for pred in preds {
        for jump in function.block_mut(pred).end.jumps_mut() {
            // A predecessor that jumps here twice is listed twice; its jumps shrink once each.
            if jump.target == block {
                jump.args.remove(index);
            }
        }
    }
}
