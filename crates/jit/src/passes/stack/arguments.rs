//! Arguments that point to the stack become the range of bytes that the callee accesses, and
//! accesses through an address on the stack become accesses to named bytes.

use towpath_bpf::program::MapDef;
use towpath_bpf::proto::{self, ArgKind, Flags};

use super::super::Context;
use crate::xir::{Arg, Dominators, Function, Inst, Op, Place, StackRange, Value};

pub(in super::super) fn name_argument_bytes(function: &mut Function, context: Context<'_>) {
    let dominators = Dominators::new(function);
    let mut known = vec![None; function.values.len()];
    for &block in dominators.order() {
        for &inst in &function.block(block).insts {
            let data = function.inst(inst);
            if let (Some(result), Op::StackAddr(_) | Op::Const(_)) = (data.result, &data.op) {
                known[result.0 as usize] = Some(inst);
            }
        }
    }
    for &block in dominators.order() {
        for inst in function.block(block).insts.clone() {
            let namer = Namer { function, known: &known, context, inst };
            if let Some(op) = namer.renamed() {
                function.inst_mut(inst).op = op;
            }
        }
    }
}

struct Namer<'a> {
    function: &'a Function,
    /// Definitions of values that are stack addresses or constants.
    known: &'a [Option<Inst>],
    context: Context<'a>,
    inst: Inst,
}

impl Namer<'_> {
    fn renamed(&self) -> Option<Op> {
        match &self.function.inst(self.inst).op {
            Op::MapLookup { map, key: Arg::Value(key) } => {
                let def = self.context.program.linked().maps.get(*map as usize)?;
                let key = Arg::StackRead(self.range(*key, def.key_size)?);
                Some(Op::MapLookup { map: *map, key })
            }
            Op::CallHelper { id, args } => {
                let args = self.helper_args(*id, args)?;
                Some(Op::CallHelper { id: *id, args })
            }
            // An access of a callee through a pointer, before the callee was inlined.
            Op::Load { place, probe: false } => Some(Op::StackLoad(self.place(*place)?)),
            Op::Store { place, value } => Some(Op::StackStore(self.place(*place)?, *value)),
            _ => None,
        }
    }

    fn helper_args(&self, id: u32, args: &[Arg]) -> Option<Vec<Arg>> {
        let proto = proto::helper(id)?;
        let named = |index: usize| -> Option<Arg> {
            let Arg::Value(value) = args[index] else { return None };
            let arg = proto.args.get(index)?;
            let size = match arg.kind {
                ArgKind::MapKey => self.map()?.key_size,
                ArgKind::MapValue => self.map()?.value_size,
                ArgKind::Mem if arg.flags.has(Flags::FIXED) => arg.size,
                ArgKind::Mem => self.size_argument(args.get(index + 1)?)?,
                _ => return None,
            };
            let range = self.range(value, size)?;
            let writes = arg.flags.has(Flags::WRITE) || arg.flags.has(Flags::UNINIT);
            Some(if writes { Arg::StackReadWrite(range) } else { Arg::StackRead(range) })
        };
        let new: Vec<Option<Arg>> = (0..args.len()).map(named).collect();
        if new.iter().all(Option::is_none) {
            return None;
        }
        Some(new.into_iter().zip(args).map(|(new, old)| new.unwrap_or(old.clone())).collect())
    }

    /// The map that this call works on, or one like it: an inner map's template.
    fn map(&self) -> Option<&MapDef> {
        let origin = self.function.inst(self.inst).origin as usize;
        let program = self.context.program;
        let (map, inner) = program.facts().get(origin)?.map?.example()?;
        let def = program.linked().maps.get(map as usize)?;
        if inner { def.inner.as_deref() } else { Some(def) }
    }

    fn size_argument(&self, arg: &Arg) -> Option<u32> {
        let Arg::Value(value) = arg else { return None };
        match self.known(*value)? {
            Op::Const(size) => u32::try_from(*size).ok(),
            _ => None,
        }
    }

    fn range(&self, address: Value, len: u32) -> Option<StackRange> {
        match self.known(address)? {
            Op::StackAddr(offset) if len > 0 => {
                let range = StackRange { offset: *offset, len: u16::try_from(len).ok()? };
                range.is_valid().then_some(range)
            }
            _ => None,
        }
    }

    fn place(&self, place: Place) -> Option<StackRange> {
        let Op::StackAddr(base) = self.known(place.base)? else { return None };
        let offset = i16::try_from(i32::from(*base).checked_add(place.offset)?).ok()?;
        let range = StackRange { offset, len: place.width.bytes() as u16 };
        range.is_valid().then_some(range)
    }

    fn known(&self, value: Value) -> Option<&Op> {
        let inst = self.known[value.0 as usize]?;
        Some(&self.function.inst(inst).op)
    }
}
