//! Rewriting instructions one by one: each may become another, with new ones in front of it.

use std::ops::{Deref, DerefMut};

use super::assemble::Assembler;
use super::{Context, definitions};
use crate::xir::{
    Alias, Arg, BinaryOp, CtxField, Dominators, Function, Inst, Op, Place, RuntimeFunction,
    StackRange, Type, Value, Width,
};

/// Passes each instruction of a function to `rewrite`, which may return a replacement.
pub(super) fn rewrite(
    function: &mut Function,
    context: Context<'_>,
    rewrite: impl Fn(&mut Emitter<'_>, &Op) -> Option<Op>,
) {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    for &block in dominators.order() {
        let insts = std::mem::take(&mut function.block_mut(block).insts);
        let assembler = Assembler::new(function, 0);
        let mut emitter = Emitter { assembler, context, definitions: &definitions };
        for inst in insts {
            let data = emitter.function.inst(inst).clone();
            emitter.origin = data.origin;
            if let Some(op) = rewrite(&mut emitter, &data.op) {
                emitter.function.inst_mut(inst).op = op;
            }
            emitter.insts.push(inst);
        }
        let insts = emitter.assembler.insts;
        function.block_mut(block).insts = insts;
    }
}

/// An assembler that appends in front of the instruction that is being rewritten, and knows the
/// definitions of its operands.
pub(super) struct Emitter<'a> {
    assembler: Assembler<'a>,
    pub(super) context: Context<'a>,
    /// Definitions of values from before the rewriting.
    definitions: &'a [Option<Inst>],
}

impl<'a> Deref for Emitter<'a> {
    type Target = Assembler<'a>;

    fn deref(&self) -> &Assembler<'a> {
        &self.assembler
    }
}

impl<'a> DerefMut for Emitter<'a> {
    fn deref_mut(&mut self) -> &mut Assembler<'a> {
        &mut self.assembler
    }
}

impl Emitter<'_> {
    /// The operation that defined a value when the rewriting began.
    pub(super) fn definition(&self, value: Value) -> Option<&Op> {
        super::definition(self.function, self.definitions, value)
    }

    /// The constant of an argument.
    pub(super) fn constant_of(&self, arg: &Arg) -> Option<u64> {
        let Arg::Value(value) = arg else { return None };
        match self.definition(*value) {
            Some(Op::Const(constant)) => Some(*constant),
            _ => None,
        }
    }

    /// An address as a base and a constant offset.
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

    /// Alias class of an address, as far as its computation in this function shows.
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

    /// Loads a part of the bytes that a call would read.
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

    /// The place at an offset from an address.
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
