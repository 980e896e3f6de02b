//! Turns constants of the object file into constants of the code.
//!
//! `const volatile` globals are in `.rodata`, which can't be written once the program is loaded;
//! the verifier takes them for constants too.

use towpath_bpf::program::MapDef;

use super::{Context, definition, definitions};
use crate::xir::{Dominators, Function, Op, Place, Type};

pub(super) fn read(function: &mut Function, context: Context<'_>) {
    let maps = &context.program.linked().maps;
    if !maps.iter().any(MapDef::is_constant) {
        return;
    }
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    for &block in dominators.order() {
        for inst in function.block(block).insts.clone() {
            let Op::Load { place, probe: false } = function.inst(inst).op else { continue };
            let base = definition(function, &definitions, place.base);
            let Some(&Op::MapValueAddr { map, offset }) = base else { continue };
            let Some(map) = maps.get(map as usize).filter(|map| map.is_constant()) else {
                continue;
            };
            if let Some(constant) = value_at(map, i64::from(offset), place) {
                let ty = function.inst(inst).result.map_or(Type::I64, |result| function.ty(result));
                function.inst_mut(inst).op = Op::Const(constant & ty.mask());
            }
        }
    }
}

fn value_at(map: &MapDef, offset: i64, place: Place) -> Option<u64> {
    let start = usize::try_from(offset + i64::from(place.offset)).ok()?;
    let bytes = map.initial.as_ref()?.get(start..start + place.width.bytes() as usize)?;
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}
