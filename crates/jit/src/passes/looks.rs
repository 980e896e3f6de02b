//! Loops check whether the run was asked to end ([`crate::interrupt`]).
//!
//! Compiled code can be left at any instruction, so most loops need no check. But a function of the
//! runtime cannot be left, and a loop that calls one in every round is hardly ever interrupted
//! outside of it. If such a call is not followed by a check of its own, the loop gets one: a load
//! and a branch, which are cheap beside any call.

use super::Context;
use crate::xir::{Block, Dominators, Function, InstData, Op, may_stop};

pub(super) fn insert(function: &mut Function, _context: Context<'_>) {
    let dominators = Dominators::new(function);
    let order = dominators.order();
    let is_blind = |block: &Block| {
        let insts = &function.block(*block).insts;
        insts.iter().any(|&inst| is_blind_call(&function.inst(inst).op))
    };
    let mut heads = Vec::new();
    for (index, &head) in order.iter().enumerate() {
        // All blocks in between are examined: the check may be unnecessary, but is never missing.
        let last = dominators.latches(head).filter_map(|latch| dominators.position(latch)).max();
        if last.is_some_and(|last| order[index..=last as usize].iter().any(is_blind)) {
            heads.push(head);
        }
    }
    for head in heads {
        let first = function.block(head).insts.first();
        let origin = first.map_or(0, |&inst| function.inst(inst).origin);
        let look = function.add_inst(InstData { op: Op::Look, result: None, origin });
        function.block_mut(head).insts.insert(0, look);
    }
}

/// A call without a check after it.
fn is_blind_call(op: &Op) -> bool {
    match op {
        Op::MapLookup { .. } => true,
        Op::CallRuntime { function, .. } => !function.effects().stops,
        Op::CallHelper { id, .. } => !may_stop(*id),
        _ => false,
    }
}
