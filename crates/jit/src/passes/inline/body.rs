//! A copy of a function in place of a call.

use super::Call;
use crate::xir::{
    Arg, Block, BlockData, Dominators, Function, Inlined, Jump, Op, StackRange, Terminator, Type,
    Value,
};

/// Puts `callee` where the call is, its frame pointer `frame` bytes from the caller's.
pub(super) fn put_in(caller: &mut Function, call: &Call, frame: i16, callee: &Function) {
    let next = split(caller, call);
    let at = call.block;
    let inst = caller.block_mut(at).insts.pop();
    let Some(data) = inst.map(|inst| caller.inst(inst).clone()) else { return };
    let Op::Call { args, .. } = data.op else { return };
    // The result becomes a parameter of the block behind.
    let result = data.result.unwrap_or_else(|| caller.add_value(Type::I64));
    caller.block_mut(next).params = vec![result];
    let mut copy = Copy {
        blocks: vec![None; callee.blocks.len()],
        values: vec![None; callee.values.len()],
        frame,
        next,
        callee,
        caller,
    };
    let entry = copy.all(&args);
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

/// Cuts the block behind the call; gives the part behind.
fn split(caller: &mut Function, call: &Call) -> Block {
    let next = caller.add_block();
    let block = caller.block_mut(call.block);
    let insts = block.insts.split_off(call.position + 1);
    let end = std::mem::replace(&mut block.end, Terminator::Unreachable);
    *caller.block_mut(next) = BlockData { params: vec![], insts, end };
    next
}

struct Copy<'a> {
    caller: &'a mut Function,
    callee: &'a Function,
    /// The caller's name for each of the callee's.
    blocks: Vec<Option<Block>>,
    values: Vec<Option<Value>>,
    frame: i16,
    /// Where returns go.
    next: Block,
}

impl Copy<'_> {
    fn all(&mut self, args: &[Value]) -> Block {
        let order = Dominators::new(self.callee).order().to_vec();
        for &block in &order {
            self.blocks[block.0 as usize] = Some(self.caller.add_block());
        }
        let callee = self.callee;
        for (param, arg) in callee.block(Function::ENTRY).params.iter().zip(args) {
            self.values[param.0 as usize] = Some(*arg);
        }
        for &block in &order {
            let new = self.block(block);
            if block != Function::ENTRY {
                let params = &callee.block(block).params;
                let params = params.iter().map(|&param| self.value(param)).collect();
                self.caller.block_mut(new).params = params;
            }
            for &inst in &callee.block(block).insts {
                let mut data = callee.inst(inst).clone();
                data.result = data.result.map(|result| self.value(result));
                self.rename(&mut data.op);
                let inst = self.caller.add_inst(data);
                self.caller.block_mut(new).insts.push(inst);
            }
            let end = self.end(&callee.block(block).end);
            self.caller.block_mut(new).end = end;
        }
        self.block(Function::ENTRY)
    }

    fn rename(&mut self, op: &mut Op) {
        op.for_each_operand_mut(|value| *value = self.value(*value));
        let frame = self.frame;
        let moved = |range: &mut StackRange| range.offset += frame;
        let moved_arg = |arg: &mut Arg| match arg {
            Arg::Value(_) => {}
            Arg::StackRead(range) | Arg::StackReadWrite(range) => moved(range),
        };
        match op {
            Op::StackAddr(offset) => *offset += frame,
            Op::StackLoad(range) | Op::StackStore(range, _) => moved(range),
            Op::MapLookup { key, .. } => moved_arg(key),
            Op::CallHelper { args, .. }
            | Op::CallKfunc { args, .. }
            | Op::CallRuntime { args, .. } => args.iter_mut().for_each(moved_arg),
            _ => {}
        }
    }

    fn end(&mut self, end: &Terminator) -> Terminator {
        let mut end = match end {
            Terminator::Return(value) => {
                let args = vec![self.value(*value)];
                return Terminator::Jump(Jump { target: self.next, args });
            }
            other => other.clone(),
        };
        end.for_each_operand_mut(|value| *value = self.value(*value));
        end.jumps_mut().for_each(|jump| jump.target = self.block(jump.target));
        end
    }

    fn value(&mut self, value: Value) -> Value {
        let slot = &mut self.values[value.0 as usize];
        *slot.get_or_insert_with(|| self.caller.add_value(self.callee.ty(value)))
    }

    fn block(&self, block: Block) -> Block {
        // Every block that the entry reaches has one, and no other is jumped to.
        self.blocks[block.0 as usize].unwrap_or(self.next)
    }
}
