//! Slots of program arrays that tail calls read without the runtime, for both tiers.

use std::sync::Arc;

use towpath_maps::Map;

use crate::environment::Environment;
use crate::xir::{Function, Op, Value};

/// The slot of a tail call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    /// The program array.
    pub(crate) map: u32,
    /// Number of its slots.
    pub(crate) entries: u32,
    /// The index, if it is known and below `entries`.
    pub(crate) index: Option<u32>,
}

/// By map of the program: number of slots, if it is a program array.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots(Vec<Option<u32>>);

impl Slots {
    pub(crate) fn of(environment: &Environment<'_>) -> Self {
        let maps = (0..).zip(environment.maps);
        let entries = |(number, map): (u32, &Arc<Map>)| {
            environment.slots_of(number).map(|_| map.max_entries())
        };
        Slots(maps.map(entries).collect())
    }

    /// The slot of a tail call through `map`, if the map is known.
    pub(crate) fn slot(&self, function: &Function, map: Value, index: Value) -> Option<Slot> {
        let Op::MapRef(map) = *op_of(function, map)? else { return None };
        let entries = (*self.0.get(map as usize)?)?;
        let index = match op_of(function, index) {
            Some(Op::Const(index)) if *index < u64::from(entries) => Some(*index as u32),
            _ => None,
        };
        Some(Slot { map, entries, index })
    }
}

/// The operation that defines a value; tail calls are too few for a table.
fn op_of(function: &Function, value: Value) -> Option<&Op> {
    let mut insts = function.blocks.iter().flat_map(|block| &block.insts);
    let inst = insts.find(|&&inst| function.inst(inst).result == Some(value))?;
    Some(&function.inst(*inst).op)
}
