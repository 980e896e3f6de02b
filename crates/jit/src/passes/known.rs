//! Behind a branch its condition is known: what was selected by it is one of its operands there.
//!
//! A lookup gives `inside ? address : 0`; where the program has tested it, the address alone is
//! left, and the select is dead.

use super::{Context, definitions};
use crate::xir::{Block, Cond, Dominators, Function, Op, Terminator, Value};

pub(super) fn use_branches(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    let op = |function: &Function, value: Value| {
        definitions[value.0 as usize].map(|inst| function.inst(inst).op.clone())
    };
    let mut selects = Vec::new();
    for &block in dominators.order() {
        for &inst in &function.block(block).insts {
            let data = function.inst(inst);
            if let (Some(result), Op::Select(condition, a, b)) = (data.result, &data.op) {
                selects.push((result, *condition, *a, *b));
            }
        }
    }
    if selects.is_empty() {
        return;
    }
    for &block in dominators.order() {
        let Terminator::Branch(tested, yes, no) = function.block(block).end.clone() else {
            continue;
        };
        for &(select, condition, a, b) in &selects {
            let Some(holds) =
                implied(tested, condition, op(function, tested), |value| op(function, value))
            else {
                continue;
            };
            let (on_yes, on_no) = if holds { (a, b) } else { (b, a) };
            replace_below(function, &dominators, yes.target, select, on_yes);
            replace_below(function, &dominators, no.target, select, on_no);
        }
    }
}

/// Whether `tested != 0` means that `condition` holds (`true`) or does not (`false`).
fn implied(
    tested: Value,
    condition: Value,
    test: Option<Op>,
    op: impl Fn(Value) -> Option<Op>,
) -> Option<bool> {
    if tested == condition {
        return Some(true);
    }
    match (test, op(condition)) {
        (Some(Op::Compare(cond, x, y)), Some(Op::Compare(other, p, q)))
            if (x, y) == (p, q) && cond == other.negated() =>
        {
            Some(false)
        }
        (Some(Op::Compare(cond @ (Cond::Eq | Cond::Ne), x, zero)), _)
            if x == condition && op(zero) == Some(Op::Const(0)) =>
        {
            Some(cond == Cond::Ne)
        }
        _ => None,
    }
}

/// Replaces a value in every block that only paths through `top` reach.
fn replace_below(
    function: &mut Function,
    dominators: &Dominators,
    top: Block,
    old: Value,
    new: Value,
) {
    if dominators.predecessors(top).len() != 1 {
        return;
    }
    let replace = |value: &mut Value| {
        if *value == old {
            *value = new;
        }
    };
    for &block in dominators.order() {
        if !dominators.dominates(top, block) {
            continue;
        }
        for inst in function.block(block).insts.clone() {
            function.inst_mut(inst).op.for_each_operand_mut(replace);
        }
        function.block_mut(block).end.for_each_operand_mut(replace);
    }
}
