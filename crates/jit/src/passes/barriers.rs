//! Speculation barriers in programs whose machine code is masked.
//!
//! Masks (`crates/jit/src/clif/masks.rs`) follow the branches of one function. Behind a call of
//! another function, and of a helper that checks its arguments by branches of its own, a barrier
//! replaces them: it makes sure that the call's result is final, and not speculative. A function's
//! own first barrier is emitted with the function.
//!
//! Against loads that overtake stores (Spectre v4) there is a barrier between a store to the stack
//! and any instruction that may read these bytes next. The kernel has one behind each store of a
//! pointer, and behind the first to a slot (`sanitize_stack_spill`), since a load might otherwise
//! find another pointer there, or a number of an attacker's choice. Here every store counts,
//! regardless of its value: most bytes of the stack are values in registers by now.

use towpath_bpf::insn::STACK_BYTES;
use towpath_bpf::verifier::StackBytes;

use crate::xir::{
    Alias, Arg, Block, Dominators, Function, Inst, InstData, Module, Op, Place, Reach, StackRange,
};

/// Masks a module's code, and inserts the barriers; no pass may run behind it.
pub(super) fn insert(module: &mut Module) {
    module.masked = true;
    module.all_mut().for_each(insert_into);
}

fn insert_into(function: &mut Function) {
    let dominators = Dominators::new(function);
    let entering = entering(function, &dominators);
    for &block in dominators.order() {
        let mut pending = entering[block.0 as usize];
        let old = std::mem::take(&mut function.block_mut(block).insts);
        let mut insts = Vec::with_capacity(old.len());
        for inst in old {
            let effect = step(&function.inst(inst).op, &mut pending);
            let barrier = |function: &mut Function| -> Inst {
                let origin = function.inst(inst).origin;
                function.add_inst(InstData { op: Op::Barrier, result: None, origin })
            };
            if effect.in_front {
                insts.push(barrier(function));
            }
            insts.push(inst);
            if effect.behind {
                insts.push(barrier(function));
            }
        }
        function.block_mut(block).insts = insts;
    }
}

/// Bytes of the stack that were written on some path to each block, without a barrier since.
fn entering(function: &Function, dominators: &Dominators) -> Vec<StackBytes> {
    let mut entering = vec![StackBytes::default(); function.blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for &block in dominators.order() {
            let mut pending = entering[block.0 as usize];
            for &inst in &function.block(block).insts {
                step(&function.inst(inst).op, &mut pending);
            }
            for Block(target) in function.block(block).end.jumps().map(|jump| jump.target) {
                let known = &mut entering[target as usize];
                let before = *known;
                known.add_all(&pending);
                changed |= *known != before;
            }
        }
    }
    entering
}

/// Barriers that an instruction needs.
struct Barriers {
    in_front: bool,
    behind: bool,
}

/// Processes an instruction, with the bytes whose stores may not be complete.
fn step(op: &Op, pending: &mut StackBytes) -> Barriers {
    let in_front = reads_pending(op, pending);
    let behind = hands_over(op);
    if in_front || behind {
        *pending = StackBytes::default();
    }
    match op {
        Op::StackStore(range, _) => add(pending, *range),
        Op::Store { place, .. }
        | Op::StoreRelease { place, .. }
        | Op::AtomicRmw { place, .. }
        | Op::CompareExchange { place, .. }
            if may_be_stack(place) =>
        {
            pending.add(-(STACK_BYTES as i64), 0);
        }
        _ => {}
    }
    Barriers { in_front, behind }
}

fn add(bytes: &mut StackBytes, range: StackRange) {
    let start = i64::from(range.offset);
    bytes.add(start, start + i64::from(range.len));
}

fn may_be_stack(place: &Place) -> bool {
    matches!(place.alias, Alias::Stack | Alias::Other)
}

/// Whether an instruction reads stack bytes that were just written.
fn reads_pending(op: &Op, pending: &StackBytes) -> bool {
    let named = |range: &StackRange| {
        let start = i64::from(range.offset);
        pending.overlaps(start, start + i64::from(range.len))
    };
    let anywhere = || *pending != StackBytes::default();
    match op {
        Op::StackLoad(range) => named(range),
        Op::Load { place, .. }
        | Op::LoadAcquire(place)
        | Op::AtomicRmw { place, .. }
        | Op::CompareExchange { place, .. } => may_be_stack(place) && anywhere(),
        Op::CallHelper { args, .. } | Op::CallKfunc { args, .. } => {
            args.iter().any(|arg| match arg {
                Arg::StackRead(range) | Arg::StackReadWrite(range) => named(range),
                // The value may be an address: nothing here tells.
                Arg::Value(_) => anywhere(),
            })
        }
        Op::CallRuntime { function, args } => args.iter().any(|arg| match arg {
            Arg::StackRead(range) | Arg::StackReadWrite(range) => named(range),
            Arg::Value(_) => function.effects().reads != Reach::Nothing && anywhere(),
        }),
        Op::MapLookup { key, .. } => match key {
            Arg::StackRead(range) | Arg::StackReadWrite(range) => named(range),
            Arg::Value(_) => anywhere(),
        },
        _ => false,
    }
}

/// Whether an instruction transfers control to code with branches of its own.
fn hands_over(op: &Op) -> bool {
    match op {
        Op::CallHelper { .. }
        | Op::CallKfunc { .. }
        | Op::MapLookup { .. }
        | Op::Call { .. }
        | Op::Guard { .. }
        | Op::Load { probe: true, .. } => true,
        Op::CallRuntime { function, .. } => function.checks_arguments(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xir::{Terminator, Type};

    const KEY: StackRange = StackRange { offset: -8, len: 8 };
    const OTHER: StackRange = StackRange { offset: -16, len: 8 };

    /// The instructions of a straight line of code with its barriers.
    fn with_barriers(ops: &[Op]) -> Vec<Op> {
        let mut function = Function::new("line");
        let block = function.add_block();
        let param = function.add_param(block, Type::I64);
        for op in ops {
            function.push_effect(block, 0, op.clone());
        }
        function.block_mut(block).end = Terminator::Return(param);
        insert_into(&mut function);
        let insts = &function.block(block).insts;
        insts.iter().map(|&inst| function.inst(inst).op.clone()).collect()
    }

    #[test]
    fn what_is_read_again_waits_for_its_store() {
        let value = crate::xir::Value(0);
        let (store, load) = (Op::StackStore(KEY, value), Op::StackLoad(KEY));
        let apart = [store.clone(), Op::StackLoad(OTHER)];
        assert_eq!(with_barriers(&apart), apart, "other bytes");
        assert_eq!(
            with_barriers(&[store.clone(), load.clone(), load.clone()]),
            [store.clone(), Op::Barrier, load.clone(), load],
            "one barrier does for all"
        );
        let lookup = Op::MapLookup { map: 0, key: Arg::StackRead(KEY) };
        assert_eq!(
            with_barriers(&[store.clone(), lookup.clone()]),
            [store, Op::Barrier, lookup, Op::Barrier]
        );
    }
}
