//! A copy of a function in place of a call of it.

use super::super::copy::Copy;
use super::Call;
use crate::xir::{
    Arg, Block, BlockData, Dominators, Function, Inlined, Jump, Op, StackRange, Terminator, Type,
    Value,
};

/// Replaces the call by a copy of `callee`, with its frame pointer `frame` bytes from the caller's.
pub(super) fn put_in(caller: &mut Function, call: &Call, frame: i16, callee: &Function) {
    let next = split(caller, call);
    let at = call.block;
    let inst = caller.block_mut(at).insts.pop();
    let Some(data) = inst.map(|inst| caller.inst(inst).clone()) else { return };
    let Op::Call { args, .. } = data.op else { return };
    // The result becomes a parameter of the block behind the call.
    let result = data.result.unwrap_or_else(|| caller.add_value(Type::I64));
    caller.block_mut(next).params = vec![result];
    let entry = copy(caller, callee, &args, frame, next);
    caller.block_mut(at).end = Terminator::Jump(Jump { target: entry, args: vec![] });
    let depth = u32::from(frame.unsigned_abs());
    caller.stack_bytes = caller.stack_bytes.max(depth + callee.stack_bytes);
    let of_callee = Inlined { start: callee.start, frame };
    let within = callee.inlined.iter();
    let within = within.map(|inner| Inlined { frame: inner.frame + frame, ..*inner });
    for inlined in std::iter::once(of_callee).chain(within) {
        if !caller.inlined.contains(&inlined) {
            caller.inlined.push(inlined);
        }
    }
}

/// Splits the block behind the call; gives the second part.
fn split(caller: &mut Function, call: &Call) -> Block {
    let next = caller.add_block();
    let block = caller.block_mut(call.block);
    let insts = block.insts.split_off(call.position + 1);
    let end = std::mem::replace(&mut block.end, Terminator::Unreachable);
    *caller.block_mut(next) = BlockData { params: vec![], insts, end };
    next
}

/// Copies all blocks of a function; gives the entry. Returns become jumps to `next`.
fn copy(
    caller: &mut Function,
    callee: &Function,
    args: &[Value],
    frame: i16,
    next: Block,
) -> Block {
    let order = Dominators::new(callee).order().to_vec();
    let mut copy = Copy::new(caller, callee, &order);
    for (&param, &arg) in callee.block(Function::ENTRY).params.iter().zip(args) {
        copy.set(param, arg);
    }
    let entry = copy.block(Function::ENTRY);
    copy.into.block_mut(entry).params.clear();
    for &block in &order {
        let new = copy.block(block);
        copy.insts(block, new, |op| move_frame(op, frame));
        let end = match callee.block(block).end {
            Terminator::Return(value) => {
                Terminator::Jump(Jump { target: next, args: vec![copy.value(value)] })
            }
            _ => copy.end(block),
        };
        copy.into.block_mut(new).end = end;
    }
    entry
}

/// Addresses the stack from another frame pointer, at this distance.
fn move_frame(op: &mut Op, frame: i16) {
    let moved = |range: &mut StackRange| range.offset += frame;
    let moved_arg = |arg: &mut Arg| match arg {
        Arg::Value(_) => {}
        Arg::StackRead(range) | Arg::StackReadWrite(range) => moved(range),
    };
    match op {
        Op::StackAddr(offset) => *offset += frame,
        Op::StackLoad(range) | Op::StackStore(range, _) => moved(range),
        Op::MapLookup { key, .. } => moved_arg(key),
        Op::CallHelper { args, .. } | Op::CallKfunc { args, .. } | Op::CallRuntime { args, .. } => {
            args.iter_mut().for_each(moved_arg);
        }
        _ => {}
    }
}
