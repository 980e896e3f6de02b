//! Rewriting instructions one by one: each may become another, with new ones in front of it.

use super::{Context, definitions};
use crate::xir::{
    Alias, Arg, BinaryOp, CtxField, Dominators, Function, Inst, InstData, Op, Place,
    RuntimeFunction, StackRange, Type, UnaryOp, Value, Width,
};

/// Gives each instruction of a function to `rewrite`, which says what it becomes, if anything.
pub(super) fn rewrite(
    function: &mut Function,
    context: Context<'_>,
    rewrite: impl Fn(&mut Emitter<'_>, &Op) -> Option<Op>,
) {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    for &block in dominators.order() {
        let insts = std::mem::take(&mut function.block_mut(block).insts);
        let mut emitter = Emitter {
            insts: Vec::with_capacity(insts.len()),
            origin: 0,
            definitions: &definitions,
            function,
            context,
        };
        for inst in insts {
            let data = emitter.function.inst(inst).clone();
            emitter.origin = data.origin;
            if let Some(op) = rewrite(&mut emitter, &data.op) {
                emitter.function.inst_mut(inst).op = op;
            }
            emitter.insts.push(inst);
        }
        let insts = emitter.insts;
        function.block_mut(block).insts = insts;
    }
}

/// Where new instructions go: in front of the one that is being rewritten.
pub(super) struct Emitter<'a> {
    pub(super) function: &'a mut Function,
    pub(super) context: Context<'a>,
    /// The block's instructions so far.
    pub(super) insts: Vec<Inst>,
    origin: u32,
    /// Definitions of values from before the rewriting.
    definitions: &'a [Option<Inst>],
}

impl Emitter<'_> {
    /// BPF instruction that is being rewritten.
    pub(super) fn origin(&self) -> u32 {
        self.origin
    }

    /// What defined a value when the rewriting began.
    pub(super) fn definition(&self, value: Value) -> Option<&Op> {
        let inst = self.definitions.get(value.0 as usize).copied().flatten()?;
        Some(&self.function.inst(inst).op)
    }

    /// The constant that an argument is.
    pub(super) fn constant_of(&self, arg: &Arg) -> Option<u64> {
        let Arg::Value(value) = arg else { return None };
        match self.definition(*value) {
            Some(Op::Const(constant)) => Some(*constant),
            _ => None,
        }
    }

    /// An address as another one and a constant distance from it.
    pub(super) fn root(&self, mut address: Value) -> (Value, i32) {
        let mut offset = 0i32;
        while let Some(Op::Binary(BinaryOp::Add, base, distance)) = self.definition(address) {
            let Some(Op::Const(distance)) = self.definition(*distance) else { break };
            let sum = i32::try_from(*distance as i64).ok().and_then(|d| offset.checked_add(d));
            let Some(sum) = sum else { break };
            (address, offset) = (*base, sum);
        }
        (address, offset)
    }

    /// What an address may lead to, as far as its computation in this function shows.
    pub(super) fn alias(&self, address: Value) -> Alias {
        const STEPS_MAX: usize = 32;
        let mut left = STEPS_MAX;
        self.alias_within(address, &mut left).unwrap_or(Alias::Other)
    }

    fn alias_within(&self, address: Value, left: &mut usize) -> Option<Alias> {
        *left = left.checked_sub(1)?;
        match self.definition(address)? {
            Op::CtxLoad(CtxField::Data | CtxField::DataMeta) => Some(Alias::Packet),
            Op::MapValueAddr { map, .. } | Op::MapLookup { map, .. } => Some(Alias::Map(*map)),
            // A pointer plus a number, in either order.
            Op::Binary(BinaryOp::Add, a, b) => {
                self.alias_within(*a, left).or_else(|| self.alias_within(*b, left))
            }
            _ => None,
        }
    }

    /// The running worker's number as an argument.
    pub(super) fn worker(&mut self) -> Arg {
        let worker = self.value(Type::I32, Op::WorkerId);
        Arg::Value(self.zext(worker))
    }

    pub(super) fn zext(&mut self, value: Value) -> Value {
        self.value(Type::I64, Op::Unary(UnaryOp::Zext, value))
    }

    pub(super) fn constant(&mut self, ty: Type, value: u64) -> Value {
        self.value(ty, Op::Const(value))
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let ty = self.function.ty(a);
        self.value(ty, Op::Binary(op, a, b))
    }

    /// `op a, constant`
    pub(super) fn binary_const(&mut self, op: BinaryOp, a: Value, b: u64) -> Value {
        let b = self.constant(self.function.ty(a), b);
        self.binary(op, a, b)
    }

    /// An instruction with a result.
    pub(super) fn value(&mut self, ty: Type, op: Op) -> Value {
        let result = self.function.add_value(ty);
        let data = InstData { op, result: Some(result), origin: self.origin };
        let inst = self.function.add_inst(data);
        self.insts.push(inst);
        result
    }

    /// One load of the bytes that a call would read.
    pub(super) fn load_part(&mut self, bytes: &Arg, offset: u32, width: Width) -> Value {
        let op = match bytes {
            Arg::StackRead(range) | Arg::StackReadWrite(range) => {
                let offset = range.offset + offset as i16;
                Op::StackLoad(StackRange { offset, len: width.bytes() as u16 })
            }
            Arg::Value(address) => {
                let place = self.place(*address, offset, width);
                Op::Load { place, probe: false }
            }
        };
        self.value(width.value_type(), op)
    }

    /// Bytes at a distance from an address.
    pub(super) fn place(&self, address: Value, offset: u32, width: Width) -> Place {
        let alias = self.alias(address);
        let (base, from) = self.root(address);
        match from.checked_add_unsigned(offset) {
            Some(offset) => Place { base, offset, width, alias },
            None => Place { base: address, offset: offset as i32, width, alias },
        }
    }
}

/// A direct call.
pub(super) fn call(function: RuntimeFunction, args: Vec<Arg>) -> Op {
    Op::CallRuntime { function, args }
}
