//! Map operations without the helper: lookups in arrays become arithmetic, those in hash tables
//! calls with the key in registers, and everything else direct calls of the map's own functions.
//!
//! Maps exist before their programs are compiled and never move, so base, stride and size are
//! constants in the code (`towpath_maps::Layout`). The kernel does the same
//! (`array_map_gen_lookup`), but has to read the map's fields.

mod calls;
mod keys;
mod lookups;

use towpath_bpf::program::MapType;

use super::Context;
use crate::xir::{Arg, Dominators, Function, Inst, InstData, Op, RuntimeFunction, Type, Value};

pub(super) fn lower(function: &mut Function, context: Context<'_>) {
    let dominators = Dominators::new(function);
    for &block in dominators.order() {
        let insts = std::mem::take(&mut function.block_mut(block).insts);
        let mut lowering =
            Lowering { function, context, insts: Vec::with_capacity(insts.len()), origin: 0 };
        for inst in insts {
            lowering.inst(inst);
        }
        let insts = lowering.insts;
        function.block_mut(block).insts = insts;
    }
}

struct Lowering<'a> {
    function: &'a mut Function,
    context: Context<'a>,
    /// The block's new instructions.
    insts: Vec<Inst>,
    origin: u32,
}

impl Lowering<'_> {
    fn inst(&mut self, inst: Inst) {
        let data = self.function.inst(inst).clone();
        self.origin = data.origin;
        let op = match &data.op {
            Op::MapLookup { map, key } => Some(self.lookup(*map, key)),
            Op::CallHelper { id, args } => self.helper(*id, args),
            _ => None,
        };
        if let Some(op) = op {
            self.function.inst_mut(inst).op = op;
        }
        self.insts.push(inst);
    }

    /// The running worker's number as an argument.
    fn worker(&mut self) -> Arg {
        let worker = self.value(Type::I32, Op::WorkerId);
        Arg::Value(self.zext(worker))
    }

    fn kind(&self, map: u32) -> Option<MapType> {
        Some(self.context.maps.get(map as usize)?.kind())
    }

    fn zext(&mut self, value: Value) -> Value {
        self.value(Type::I64, Op::Unary(crate::xir::UnaryOp::Zext, value))
    }

    fn constant(&mut self, ty: Type, value: u64) -> Value {
        self.value(ty, Op::Const(value))
    }

    fn value(&mut self, ty: Type, op: Op) -> Value {
        let result = self.function.add_value(ty);
        let data = InstData { op, result: Some(result), origin: self.origin };
        let inst = self.function.add_inst(data);
        self.insts.push(inst);
        result
    }
}

fn call(function: RuntimeFunction, args: Vec<Arg>) -> Op {
    Op::CallRuntime { function, args }
}
