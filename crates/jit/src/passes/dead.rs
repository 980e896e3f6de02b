//! Removes instructions with unused results, and unused parameters.

use super::Context;
use crate::xir::{Dominators, Function, Value};

pub(super) fn remove(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let needed = needed_values(function, &dominators);
    let is_needed = |value: Value| needed[value.0 as usize];
    for &block in dominators.order() {
        let mut insts = std::mem::take(&mut function.block_mut(block).insts);
        insts.retain(|&inst| {
            let data = function.inst(inst);
            has_effect(data) || data.result.is_some_and(is_needed)
        });
        function.block_mut(block).insts = insts;
    }
    for &block in dominators.order().iter().skip(1) {
        let keep: Vec<bool> = function.block(block).params.iter().map(|p| is_needed(*p)).collect();
        if keep.iter().all(|keep| *keep) {
            continue;
        }
        retain(&mut function.block_mut(block).params, &keep);
        let mut preds = dominators.predecessors(block).to_vec();
        preds.dedup();
        for pred in preds {
            let jumps = function.block_mut(pred).end.jumps_mut();
            jumps
                .filter(|jump| jump.target == block)
                .for_each(|jump| retain(&mut jump.args, &keep));
        }
    }
}

fn retain<T>(items: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    items.retain(|_| keep.next().copied().unwrap_or(true));
}

fn has_effect(data: &crate::xir::InstData) -> bool {
    !data.op.is_pure() && !data.op.is_read_only()
}

/// Values that effects and terminators depend on, also through parameters.
fn needed_values(function: &Function, dominators: &Dominators) -> Vec<bool> {
    let mut work: Vec<Value> = Vec::new();
    let mut definitions = vec![None; function.values.len()];
    let mut incoming: Vec<Vec<Value>> = vec![Vec::new(); function.values.len()];
    for &block in dominators.order() {
        let data = function.block(block);
        for &inst in &data.insts {
            let inst_data = function.inst(inst);
            if let Some(result) = inst_data.result {
                definitions[result.0 as usize] = Some(inst);
            }
            if has_effect(inst_data) {
                inst_data.op.for_each_operand(|value| work.push(value));
            }
        }
        // Arguments of jumps are needed only if their parameters are.
        data.end.for_each_own_operand(|value| work.push(value));
        for jump in data.end.jumps() {
            for (param, arg) in function.block(jump.target).params.iter().zip(&jump.args) {
                incoming[param.0 as usize].push(*arg);
            }
        }
    }
    let mut needed = vec![false; function.values.len()];
    while let Some(value) = work.pop() {
        if std::mem::replace(&mut needed[value.0 as usize], true) {
            continue;
        }
        work.extend_from_slice(&incoming[value.0 as usize]);
        if let Some(inst) = definitions[value.0 as usize] {
            function.inst(inst).op.for_each_operand(|operand| work.push(operand));
        }
    }
    needed
}
