//! Lookups in arrays become arithmetic: the address of a value is computed from its index.
//!
//! Maps exist before their programs are compiled and never move, so base, stride and size are
//! constants in the code (`towpath_maps::Layout`). The kernel does the same
//! (`array_map_gen_lookup`), but has to read the map's fields.

use towpath_bpf::MapDef;
use towpath_maps::Layout;

use super::Context;
use crate::xir::{
    Alias, Arg, BinaryOp, Cond, Dominators, Function, Inst, InstData, Op, Place, RuntimeFunction,
    Type, UnaryOp, Value, Width,
};

pub(super) fn inline_lookups(function: &mut Function, context: Context<'_>) {
    let dominators = Dominators::new(function);
    for &block in dominators.order() {
        let insts = std::mem::take(&mut function.block_mut(block).insts);
        let mut inliner = Inliner { function, context, insts: Vec::with_capacity(insts.len()) };
        for inst in insts {
            inliner.inst(inst);
        }
        let insts = inliner.insts;
        function.block_mut(block).insts = insts;
    }
}

/// What is constant about an array.
#[derive(Clone, Copy)]
struct Array {
    map: u32,
    entries: u32,
    /// Bytes from value to value.
    stride: u64,
    /// Bytes from CPU to CPU; 0 when all share the values.
    cpu_stride: u64,
}

struct Inliner<'a> {
    function: &'a mut Function,
    context: Context<'a>,
    insts: Vec<Inst>,
}

impl Inliner<'_> {
    fn inst(&mut self, inst: Inst) {
        let data = self.function.inst(inst).clone();
        if let Op::MapLookup { map, key } = &data.op {
            let op = match self.layout(*map) {
                Some(Layout::Array { base: _, entries, stride, cpu_stride }) => {
                    let array = Array { map: *map, entries, stride, cpu_stride };
                    self.array(array, key, data.origin)
                }
                _ => self.lookup(*map, key, data.origin),
            };
            self.function.inst_mut(inst).op = op;
        }
        self.insts.push(inst);
    }

    /// A lookup in any other kind of map.
    fn lookup(&mut self, map: u32, key: &Arg, origin: u32) -> Op {
        let map = self.push(origin, Type::I64, Op::MapRef(map));
        let worker = self.push(origin, Type::I32, Op::WorkerId);
        let worker = self.push(origin, Type::I64, Op::Unary(UnaryOp::Zext, worker));
        let args = vec![Arg::Value(map), key.clone(), Arg::Value(worker)];
        Op::CallRuntime { function: RuntimeFunction::MapLookup, args }
    }

    fn layout(&self, map: u32) -> Option<Layout> {
        let def: &MapDef = self.context.program.linked().maps.get(map as usize)?;
        let layout = self.context.maps.get(map as usize)?.layout()?;
        (def.key_size == 4).then_some(layout)
    }

    /// `index < entries ? base + index * stride + worker * cpu_stride : 0`
    fn array(&mut self, array: Array, key: &Arg, origin: u32) -> Op {
        let Array { map, entries, stride, cpu_stride } = array;
        let index = match key {
            Arg::StackRead(range) | Arg::StackReadWrite(range) => {
                self.push(origin, Type::I32, Op::StackLoad(*range))
            }
            Arg::Value(base) => {
                let place =
                    Place { base: *base, offset: 0, width: Width::W32, alias: Alias::Other };
                self.push(origin, Type::I32, Op::Load { place, probe: false })
            }
        };
        let limit = self.push(origin, Type::I32, Op::Const(entries.into()));
        let inside = self.push(origin, Type::I32, Op::Compare(Cond::Ult, index, limit));
        let first = self.push(origin, Type::I64, Op::MapValueAddr { map, offset: 0 });
        let mut address = self.scaled(origin, index, stride, first);
        if cpu_stride > 0 {
            let worker = self.push(origin, Type::I32, Op::WorkerId);
            address = self.scaled(origin, worker, cpu_stride, address);
        }
        let null = self.push(origin, Type::I64, Op::Const(0));
        Op::Select(inside, address, null)
    }

    /// `base + index * stride`
    fn scaled(&mut self, origin: u32, index: Value, stride: u64, base: Value) -> Value {
        let wide = self.push(origin, Type::I64, Op::Unary(UnaryOp::Zext, index));
        let stride = self.push(origin, Type::I64, Op::Const(stride));
        let offset = self.push(origin, Type::I64, Op::Binary(BinaryOp::Mul, wide, stride));
        self.push(origin, Type::I64, Op::Binary(BinaryOp::Add, base, offset))
    }

    fn push(&mut self, origin: u32, ty: Type, op: Op) -> Value {
        let result = self.function.add_value(ty);
        let inst = self.function.add_inst(InstData { op, result: Some(result), origin });
        self.insts.push(inst);
        result
    }
}
