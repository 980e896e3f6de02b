//! What an object leaves open, and what makes two runs of a program differ.

use towpath_bpf::map::{Keys, MapType, Values};
use towpath_bpf::{Linked, MapDef};

/// Sizes and inner maps that an object leaves to its own loader; true when there were any.
pub fn complete(linked: &mut Linked) -> bool {
    let mut maps: Vec<MapDef> = linked.maps.to_vec();
    let mut changed = false;
    for map in &mut maps {
        let of_maps = map.kind.values() == Values::Map;
        if of_maps && map.inner.is_none() {
            map.inner = Some(Box::new(plain_map("inner", MapType::Array, (4, 4, 1))));
            changed = true;
        }
        // Of these 0 is a size, for local storage the only one.
        let may_be_zero = map.kind.values() == Values::Events || map.kind.keys() == Keys::Owner;
        if map.max_entries == 0 && !may_be_zero {
            map.max_entries = 64;
            changed = true;
        }
    }
    if changed {
        linked.maps = maps.into();
    }
    changed
}

/// Whether a program asks for something that differs from run to run: clock, random numbers, CPU,
/// task, addresses of kernel objects.
pub fn is_volatile(linked: &Linked) -> bool {
    linked.insns.iter().any(|insn| insn.is_helper_call() && VOLATILE_HELPERS.contains(&insn.imm))
}

/// A map without types, flags and first contents; sizes are those of key, value and the number of
/// elements.
pub fn plain_map(
    name: &str,
    kind: MapType,
    (key_size, value_size, max_entries): (u32, u32, u32),
) -> MapDef {
    MapDef::new(name, kind, key_size, value_size, max_entries)
}

const VOLATILE_HELPERS: &[i32] = &[
    5, 7, 8, 14, 15, 16, 17, 22, 35, 42, 55, 80, 112, 113, 114, 115, 118, 120, 123, 125, 141, 148,
    153, 154, 158, 160, 165, 175, 176, 208,
];
