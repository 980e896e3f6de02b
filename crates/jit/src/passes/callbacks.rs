//! `bpf_loop` with a function of the program is a loop around calls of it: no helper, no way back
//! from the runtime into the program, and a body that can become part of the function.

use towpath_bpf::Errno;
use towpath_bpf::interp::MAX_LOOPS;
use towpath_bpf::proto::id;

use super::{Context, dead, definition, definitions};
use crate::xir::{
    Arg, BinaryOp, Block, BlockData, Cond, Dominators, Function, Inst, InstData, Jump, Op,
    Terminator, Type, UnaryOp, Value,
};

pub(super) fn call_in_loops(function: &mut Function, context: Context<'_>) {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    let mut changed = false;
    for &block in dominators.order() {
        // From the last to the first: what stands before keeps its place.
        for position in (0..function.block(block).insts.len()).rev() {
            let inst = function.block(block).insts[position];
            let data = function.inst(inst).clone();
            if let Some(call) = LoopCall::of(function, &definitions, &data) {
                call.write(function, block, position);
                changed = true;
            }
        }
    }
    if changed {
        // References to the callbacks: where one is left, its function is called by others too.
        dead::remove(function, context);
    }
}

/// A call of `bpf_loop`.
struct LoopCall {
    origin: u32,
    result: Value,
    count: Value,
    /// The count, where it is known.
    constant: Option<u32>,
    callee: u32,
    context: Value,
    /// Not known to be 0.
    flags: Option<Value>,
}

impl LoopCall {
    fn of(function: &Function, definitions: &[Option<Inst>], data: &InstData) -> Option<Self> {
        let Op::CallHelper { id: id::LOOP, args } = &data.op else { return None };
        let [Arg::Value(count), Arg::Value(callee), Arg::Value(context), Arg::Value(flags)] =
            args[..]
        else {
            return None;
        };
        let op = |value: Value| definition(function, definitions, value);
        let Some(&Op::FunctionRef(callee)) = op(callee) else { return None };
        let constant = match op(count) {
            Some(Op::Const(count)) => Some(*count as u32),
            _ => None,
        };
        let flags = (!matches!(op(flags), Some(Op::Const(0)))).then_some(flags);
        let (origin, result) = (data.origin, data.result?);
        Some(LoopCall { origin, result, count, constant, callee, context, flags })
    }

    fn write(&self, function: &mut Function, block: Block, position: usize) {
        let [head, body, next] = std::array::from_fn(|_| function.add_block());
        let data = function.block_mut(block);
        let insts = data.insts.split_off(position + 1);
        data.insts.truncate(position);
        let end = std::mem::replace(&mut data.end, Terminator::Unreachable);
        *function.block_mut(next) = BlockData { params: vec![self.result], insts, end };

        let mut at = block;
        if let Some(flags) = self.flags {
            let zero = self.constant(function, at, Type::I64, 0);
            let none = self.push(function, at, Type::I32, Op::Compare(Cond::Eq, flags, zero));
            at = self.refuse_unless(function, at, none, Errno::EINVAL, next);
        }
        let count = self.push(function, at, Type::I32, Op::Unary(UnaryOp::Trunc, self.count));
        if self.constant.is_none_or(|count| count > MAX_LOOPS) {
            let max = self.constant(function, at, Type::I32, MAX_LOOPS.into());
            let fits = self.push(function, at, Type::I32, Op::Compare(Cond::Ule, count, max));
            at = self.refuse_unless(function, at, fits, Errno::E2BIG, next);
        }
        let first = self.constant(function, at, Type::I64, 0);
        let count = self.push(function, at, Type::I64, Op::Unary(UnaryOp::Zext, count));
        let jump = |target, args| Jump { target, args };
        function.block_mut(at).end = Terminator::Jump(jump(head, vec![first]));

        let index = function.add_param(head, Type::I64);
        let more = self.push(function, head, Type::I32, Op::Compare(Cond::Ult, index, count));
        function.block_mut(head).end =
            Terminator::Branch(more, jump(body, vec![]), jump(next, vec![index]));

        let zero = self.constant(function, body, Type::I64, 0);
        let args = vec![index, self.context, zero, zero, zero];
        let call = Op::Call { function: self.callee, args };
        let ended = self.push(function, body, Type::I64, call);
        let one = self.constant(function, body, Type::I64, 1);
        let done = Op::Binary(BinaryOp::Add, index, one);
        let done = self.push(function, body, Type::I64, done);
        let ended = self.push(function, body, Type::I32, Op::Compare(Cond::Ne, ended, zero));
        function.block_mut(body).end =
            Terminator::Branch(ended, jump(next, vec![done]), jump(head, vec![done]));
    }

    /// Goes on in a new block where the condition holds, else to `next` with the error.
    fn refuse_unless(
        &self,
        function: &mut Function,
        at: Block,
        condition: Value,
        errno: Errno,
        next: Block,
    ) -> Block {
        let refused = self.constant(function, at, Type::I64, errno.to_reg());
        let target = function.add_block();
        let on = Jump { target, args: vec![] };
        let off = Jump { target: next, args: vec![refused] };
        function.block_mut(at).end = Terminator::Branch(condition, on, off);
        target
    }

    fn constant(&self, function: &mut Function, at: Block, ty: Type, value: u64) -> Value {
        self.push(function, at, ty, Op::Const(value))
    }

    fn push(&self, function: &mut Function, at: Block, ty: Type, op: Op) -> Value {
        function.push(at, self.origin, ty, op)
    }
}
