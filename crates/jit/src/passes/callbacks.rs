//! Turns `bpf_loop` and `bpf_for_each_map_elem` over an array, with a function of the program, into
//! loops around calls of it: no helper, no call back from the runtime into the program, and a body
//! that can be inlined.

use towpath_bpf::Errno;
use towpath_bpf::interp::MAX_LOOPS;
use towpath_bpf::proto::id;

use towpath_maps::Layout;

use super::{Context, dead, definition, definitions};
use crate::environment::KEYS_MAX;
use crate::trust::Trust;
use crate::xir::{
    Arg, BinaryOp, Block, BlockData, Cond, Dominators, Function, Inst, InstData, Jump, MapMeta, Op,
    Terminator, Type, UnaryOp, Value,
};

pub(super) fn call_in_loops(function: &mut Function, context: Context<'_>) {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    let mut changed = false;
    for &block in dominators.order() {
        // From the last to the first: positions before don't change.
        for position in (0..function.block(block).insts.len()).rev() {
            let inst = function.block(block).insts[position];
            let data = function.inst(inst).clone();
            if let Some(call) = LoopCall::of(function, context, &definitions, &data) {
                call.write(function, block, position);
                changed = true;
            }
        }
    }
    if changed {
        // Removes references to the callbacks: a remaining one means that the function has other
        // callers.
        dead::remove(function, context);
    }
}

/// A call of a helper that calls a function of the program repeatedly.
struct LoopCall {
    origin: u32,
    result: Value,
    rounds: Rounds,
    callee: u32,
    context: Value,
    /// The flags, if they are not known to be 0.
    flags: Option<Value>,
}

/// Number of rounds, and the arguments of each.
enum Rounds {
    /// `bpf_loop`: a count of rounds, with the round's number as argument; and the constant count,
    /// if known.
    Counted(Value, Option<u64>),
    /// `bpf_for_each_map_elem`: one round for each element of an array.
    Elements(Elements),
}

/// A known array.
struct Elements {
    map: u32,
    handle: Value,
    entries: u32,
    /// Distance from value to value, in bytes.
    stride: u64,
    /// Distance from CPU to CPU in bytes; 0 if all CPUs share the values.
    cpu_stride: u64,
}

impl LoopCall {
    fn of(
        function: &Function,
        context: Context<'_>,
        definitions: &[Option<Inst>],
        data: &InstData,
    ) -> Option<Self> {
        let Op::CallHelper { id, args } = &data.op else { return None };
        let [Arg::Value(first), Arg::Value(callee), Arg::Value(argument), Arg::Value(flags)] =
            args[..]
        else {
            return None;
        };
        let op = |value: Value| definition(function, definitions, value);
        let rounds = match (*id, op(first)) {
            (id::LOOP, Some(Op::Const(count))) => Rounds::Counted(first, Some(*count)),
            (id::LOOP, _) => Rounds::Counted(first, None),
            (id::FOR_EACH_MAP_ELEM, Some(Op::MapRef(map))) => {
                Rounds::Elements(Elements::of(context, *map, first)?)
            }
            _ => return None,
        };
        let Some(&Op::FunctionRef(callee)) = op(callee) else { return None };
        let flags = (!matches!(op(flags), Some(Op::Const(0)))).then_some(flags);
        let (origin, result) = (data.origin, data.result?);
        Some(LoopCall { origin, result, rounds, callee, context: argument, flags })
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
        let count;
        (at, count) = self.count(function, at, next);
        let first = self.constant(function, at, Type::I64, 0);
        let jump = |target, args| Jump { target, args };
        function.block_mut(at).end = Terminator::Jump(jump(head, vec![first]));

        let index = function.add_param(head, Type::I64);
        let more = self.push(function, head, Type::I32, Op::Compare(Cond::Ult, index, count));
        function.block_mut(head).end =
            Terminator::Branch(more, jump(body, vec![]), jump(next, vec![index]));

        let zero = self.constant(function, body, Type::I64, 0);
        let args = match &self.rounds {
            Rounds::Counted(..) => vec![index, self.context, zero, zero, zero],
            Rounds::Elements(elements) => {
                let [key, value] = self.element(function, body, elements, index);
                vec![elements.handle, key, value, self.context, zero]
            }
        };
        let call = Op::Call { function: self.callee, args };
        let ended = self.push(function, body, Type::I64, call);
        let one = self.constant(function, body, Type::I64, 1);
        let done = Op::Binary(BinaryOp::Add, index, one);
        let done = self.push(function, body, Type::I64, done);
        let ended = self.push(function, body, Type::I32, Op::Compare(Cond::Ne, ended, zero));
        function.block_mut(body).end =
            Terminator::Branch(ended, jump(next, vec![done]), jump(head, vec![done]));
    }

    /// The number of rounds, and the block in which it is known; too many rounds lead to `next`.
    fn count(&self, function: &mut Function, mut at: Block, next: Block) -> (Block, Value) {
        let (count, known) = match &self.rounds {
            Rounds::Counted(count, known) => (*count, *known),
            Rounds::Elements(elements) => {
                return (at, self.constant(function, at, Type::I64, elements.entries.into()));
            }
        };
        if known.is_none_or(|count| count > MAX_LOOPS.into()) {
            let max = self.constant(function, at, Type::I64, MAX_LOOPS.into());
            let fits = self.push(function, at, Type::I32, Op::Compare(Cond::Ule, count, max));
            at = self.refuse_unless(function, at, fits, Errno::E2BIG, next);
        }
        (at, count)
    }

    /// Addresses of an element's key and of its value.
    fn element(
        &self,
        function: &mut Function,
        at: Block,
        array: &Elements,
        index: Value,
    ) -> [Value; 2] {
        let map = array.map;
        let keys = Op::MapMetaAddr { map, what: MapMeta::Keys };
        let keys = self.push(function, at, Type::I64, keys);
        let values = Op::MapValueAddr { map, offset: 0 };
        let mut values = self.push(function, at, Type::I64, values);
        if array.cpu_stride > 0 {
            let worker = self.push(function, at, Type::I32, Op::WorkerId);
            let worker = self.push(function, at, Type::I64, Op::Unary(UnaryOp::Zext, worker));
            values = self.scaled(function, at, values, worker, array.cpu_stride);
        }
        let key = self.scaled(function, at, keys, index, size_of::<u32>() as u64);
        [key, self.scaled(function, at, values, index, array.stride)]
    }

    /// `base + index * stride`.
    fn scaled(
        &self,
        function: &mut Function,
        at: Block,
        base: Value,
        index: Value,
        stride: u64,
    ) -> Value {
        let stride = self.constant(function, at, Type::I64, stride);
        let offset = Op::Binary(BinaryOp::Mul, index, stride);
        let offset = self.push(function, at, Type::I64, offset);
        self.push(function, at, Type::I64, Op::Binary(BinaryOp::Add, base, offset))
    }

    /// Continues in a new block if the condition holds, else in `next` with the error.
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

impl Elements {
    /// Arguments that a callback of a trusted program gets without the runtime: its keys are in
    /// memory, and need no grant.
    fn of(context: Context<'_>, map: u32, handle: Value) -> Option<Self> {
        if context.trust != Trust::Verified {
            return None;
        }
        match context.maps.get(map as usize)?.layout()? {
            Layout::Array { base: _, entries, stride, cpu_stride } if entries <= KEYS_MAX => {
                Some(Elements { map, handle, entries, stride, cpu_stride })
            }
            _ => None,
        }
    }
}
