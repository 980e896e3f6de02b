//! Helpers on maps: direct calls of the map's own functions.
//!
//! A map in a register is the address of some map: the verifier proved that it is one, of a kind
//! that has the operation, and that key and value are accessible.

use towpath_bpf::MapDef;
use towpath_bpf::proto::id;

use super::{Emitter, call};
use crate::trust::Trust;
use crate::xir::{Arg, Op, RuntimeFunction};

impl<'a> Emitter<'a> {
    /// The replacement of a helper call on a map.
    pub(super) fn map_helper(&mut self, helper: u32, args: &[Arg]) -> Option<Op> {
        let function = match helper {
            id::MAP_LOOKUP_ELEM => RuntimeFunction::MapLookup,
            id::MAP_LOOKUP_PERCPU_ELEM => RuntimeFunction::MapLookupPercpu,
            id::MAP_UPDATE_ELEM => RuntimeFunction::MapUpdate,
            id::MAP_DELETE_ELEM => RuntimeFunction::MapDelete,
            id::MAP_PUSH_ELEM => RuntimeFunction::MapPush,
            id::MAP_POP_ELEM => RuntimeFunction::MapPop,
            id::MAP_PEEK_ELEM => RuntimeFunction::MapPeek,
            _ => return None,
        };
        if let (id::MAP_LOOKUP_ELEM, [inner, key], Some((known, template))) =
            (helper, args, self.template())
            && let Some(op) = self.lookup_in_any(known, template, inner, key)
        {
            return Some(op);
        }
        let mut args = args.to_vec();
        if args.len() < function.arg_count() {
            args.push(self.worker());
        }
        (args.len() == function.arg_count()).then(|| call(function, args))
    }

    /// Properties of the map that the current call works on if it is an inner map or one of
    /// several; with the number of the outer map, or of one of the several.
    fn template(&self) -> Option<(u32, &'a MapDef)> {
        if self.context.trust == Trust::Guest {
            // For guests the helper checks whether it is one.
            return None;
        }
        let program = self.context.program;
        let fact = program.facts().get(self.origin as usize)?.map?;
        let (map, inner) = fact.example()?;
        let def = program.linked().maps.get(map as usize)?;
        Some((map, if inner { def.inner.as_deref()? } else { def }))
    }
}
