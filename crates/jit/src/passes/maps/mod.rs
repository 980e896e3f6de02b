//! Map operations without the helper: lookups in arrays become arithmetic, those in hash tables
//! calls with the key in registers, and all others direct calls of the map's own functions.
//!
//! Maps exist before their programs are compiled and never move, so base, stride and size are
//! constants in the code (`towpath_maps::Layout`). The kernel does the same
//! (`array_map_gen_lookup`), but has to read the map's fields.

mod calls;
mod keys;
mod lookups;

use towpath_bpf::map::KindSpec;

use super::Context;
use super::emit::{Emitter, call, rewrite};
use crate::xir::{Function, Op};

pub(super) fn lower(function: &mut Function, context: Context<'_>) {
    rewrite(function, context, |emitter, op| match op {
        Op::MapLookup { map, key } => Some(emitter.lookup(*map, key)),
        Op::CallHelper { id, args } => emitter.map_helper(*id, args),
        _ => None,
    });
}

impl Emitter<'_> {
    fn spec(&self, map: u32) -> Option<&'static KindSpec> {
        Some(self.context.maps.get(map as usize)?.kind().spec())
    }
}
